#include "agent/process/process.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <utility>

#include "agent/spawn/raw_syscall.h"
#include "agent/spawn/spawn.h"

namespace drun::agent {
namespace {

WorkerUsage usage_of(const rusage& usage) {
  const auto time = [](const timeval& value) {
    return std::chrono::seconds(value.tv_sec) + std::chrono::microseconds(value.tv_usec);
  };
  return {.peak_memory_bytes = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024,
          .processor_time = time(usage.ru_utime) + time(usage.ru_stime)};
}

}  // namespace

Process::Process(asio::io_context& io, Spawned spawned, OnEnd on_end)
    : pid_(spawned.pid),
      shown_pid_(spawned.pid),
      pidfd_(io, spawned.pidfd),
      on_end_(std::move(on_end)) {
  watch();
}

Process::~Process() { close_pidfd(); }

void Process::watch() {
  pidfd_.async_wait(asio::posix::stream_descriptor::wait_read,
                    [this, alive = std::weak_ptr<char>(alive_)](error_code ec) {
                      if (ec || alive.expired()) return;
                      collect();
                      if (is_running()) watch();
                    });
}

void Process::signal_group(int signal) {
  if (!pid_) return;
  if (kill(-*pid_, signal) == 0 || errno != ESRCH) return;
  syscall(SYS_pidfd_send_signal, pidfd_.native_handle(), signal, nullptr, 0);
}

void Process::collect() {
  if (!pid_) return;
  siginfo_t info{};
  // The system call itself: the C library's waitid() has no rusage.
  rusage usage{};
  const long waited = syscall(SYS_waitid, kPidfd, static_cast<id_t>(pidfd_.native_handle()), &info,
                              WEXITED | WNOHANG, &usage);
  if (waited == 0 && info.si_pid == 0) return;
  assert(waited == 0);  // no other code reaps the children
  usage_ = usage_of(usage);
  pid_.reset();
  close_pidfd();
  const OnEnd on_end = std::exchange(on_end_, nullptr);
  on_end(decode({.how = info.si_code, .status = info.si_status}));
}

void Process::close_pidfd() {
  if (!pidfd_.is_open()) return;
  // release() takes it out of epoll, close() alone would not: a child that is just being cloned
  // may hold a copy of the descriptor, which keeps the entry, and the number's next owner then
  // loses its events.
  close(pidfd_.release());
}

}  // namespace drun::agent
