#include "tests/support/output_rig.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <utility>

#include "tests/support/catch.h"
#include "tests/support/machine.h"
#include "tests/support/process.h"

namespace drun::test {

using Clock = std::chrono::steady_clock;

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return lines;
}

bool run_until_blocked(asio::io_context& io, pid_t pid) {
  const auto deadline = Clock::now() + test::scaled(std::chrono::seconds(30));
  int quiet = 0;
  while (quiet < 3) {
    if (Clock::now() > deadline) return false;
    io.restart();
    const bool did_nothing = io.run_for(std::chrono::milliseconds(10)) == 0;
    const std::string stat = testing::read_file("/proc/" + std::to_string(pid) + "/stat");
    const bool sleeps = stat.find(") S ") != stat.npos;
    quiet = did_nothing && sleeps ? quiet + 1 : 0;
  }
  return true;
}

Collector::Collector(asio::io_context& io, UniqueFd fd) : fd_(io, fd.release()), buffer_(65536) {}

void Collector::start() {
  fd_.async_read_some(asio::buffer(buffer_), [this](const error_code& ec, std::size_t count) {
    text_.append(buffer_.data(), count);
    is_at_end_ = static_cast<bool>(ec);
    if (!ec) start();
  });
}

PipeEnds make_plain_pipe() {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

bool is_non_blocking(int fd) { return (::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0; }

Worker::Worker(const std::string& script, int stdout_fd, int stderr_fd) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // Duplicates both, because one may have the other's target number.
  const UniqueFd out(::fcntl(stdout_fd, F_DUPFD_CLOEXEC, 100));
  const UniqueFd err(::fcntl(stderr_fd, F_DUPFD_CLOEXEC, 100));
  posix_spawn_file_actions_adddup2(&actions, out.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, err.get(), 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  std::string words[] = {"sh", "-c", script};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  REQUIRE(::posix_spawn(&pid_, "/bin/sh", &actions, &attributes, argv, environ) == 0);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
}

Worker::Worker(Worker&& other) noexcept : pid_(std::exchange(other.pid_, 0)), code_(other.code_) {}

Worker::~Worker() {
  if (pid_ == 0 || code_ >= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

bool Worker::is_running() {
  int status = 0;
  if (code_ < 0 && ::waitpid(pid_, &status, WNOHANG) == pid_)
    code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return code_ < 0;
}

int Worker::wait() {
  int status = 0;
  if (code_ < 0 && ::waitpid(pid_, &status, 0) == pid_)
    code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return code_;
}

OutputRig::OutputRig(OutputSpec spec, agent::ConsoleFds console)
    : output(io, Log([this](LogLevel, std::string_view text) { log.emplace_back(text); }),
             std::move(spec), "here", console) {}

void OutputRig::start(const std::vector<std::string>& scripts, int round) {
  if (!std::exchange(is_prepared, true)) REQUIRE(output.prepare("job/1"));
  World world;
  world.round = round;
  world.base_rank = 4;
  world.node_rank = 1;
  world.local_world_size = static_cast<int>(scripts.size());
  bool is_open = false;
  output.open_round(world, [&](Result<std::vector<agent::WorkerStreams>> opened) {
    REQUIRE(opened);
    streams = *std::move(opened);
    is_open = true;
  });
  CHECK_FALSE(is_open);
  REQUIRE(run_until(io, [&] { return is_open; }));
  workers.clear();
  for (std::size_t rank = 0; rank < scripts.size(); ++rank)
    workers.emplace_back(scripts[rank], streams[rank].stdout_fd, streams[rank].stderr_fd);
  output.close_worker_ends();
}

bool OutputRig::drain(std::chrono::milliseconds at_most) {
  const auto all_gone = [this] {
    for (Worker& worker : workers)
      if (worker.is_running()) return false;
    return true;
  };
  if (!run_until(io, all_gone)) return false;
  const int before = drained;
  output.drain(at_most, [this] { ++drained; });
  CHECK(drained == before);
  return run_until(io, [this, before] { return drained > before; });
}

}  // namespace drun::test
