#include "agent/stacks/helper_program.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>
#include <variant>

#include "agent/output/worker_stream.h"
#include "agent/spawn/command.h"
#include "agent/spawn/raw_syscall.h"
#include "agent/spawn/spawn.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/job/outcome.h"

namespace drun::agent {
namespace {

constexpr std::size_t kMostOutputBytes = std::size_t{1} << 20;
constexpr std::size_t kHelperReadBytes = std::size_t{32} << 10;
constexpr std::size_t kPipeBytes = std::size_t{64} << 10;

// A debugger is not to ask the network, nor to run the worker's Python in its own.
const std::vector<EnvironmentEntry> kEnvironment{
    {"DEBUGINFOD_URLS", ""}, {"LC_ALL", "C"}, {"PYTHONHOME", ""}, {"PYTHONPATH", ""}};

}  // namespace

class Helper::Impl : public std::enable_shared_from_this<Helper::Impl> {
 public:
  Impl(asio::io_context& io, std::function<void(const End&)> on_end)
      : io_(io), pidfd_(io), timer_(io), buffer_(kHelperReadBytes), on_end_(std::move(on_end)) {}

  void start(ProgramStarter& starter, const std::vector<std::string>& argv,
             std::span<const std::string> environment, std::chrono::milliseconds limit) {
    if (const std::string trouble = launch(starter, argv, environment); !trouble.empty()) {
      end_.trouble = trouble;
      return asio::post(io_, [self = shared_from_this()] { self->report(); });
    }
    timer_.expires_after(limit);
    timer_.async_wait([self = shared_from_this()](const error_code& ec) {
      if (ec) return;
      self->end_.is_late = true;
      self->kill();
      self->report();  // one that is stuck in the kernel is not waited for
    });
  }

  int pid() const { return pidfd_.is_open() ? pid_ : 0; }

  void stop() {
    on_end_ = nullptr;
    kill();
    if (pidfd_.is_open() && start_ && start_->is_before_exec()) {  // await_end() follows
      timer_.cancel();
      return reader_->close();
    }
    start_.reset();
    reap();
    close();
  }

 private:
  std::string launch(ProgramStarter& starter, const std::vector<std::string>& argv,
                     std::span<const std::string> environment) {
    UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    Result<Pipe> pipe = make_pipe(kPipeBytes);
    if (!null || !pipe) return pipe ? system_message(errno) : pipe.error().message;
    reader_ = std::make_shared<PipeReader>(
        io_, buffer_,
        PipeReader::Listener{.is_ready = [] { return true; },
                             .on_bytes = [this](std::string_view bytes) { take(bytes); },
                             .on_end = [] {}});
    if (const Result<void> started = reader_->start(std::move(pipe->read_end)); !started)
      return started.error().message;
    const Command command{.argv = argv,
                          .inherited = environment,
                          .environment = kEnvironment,
                          .stdin_fd = null.get(),
                          .stdout_fd = pipe->write_end.get(),
                          .stderr_fd = pipe->write_end.get()};
    std::vector<UniqueFd> descriptors;
    descriptors.push_back(std::move(null));
    descriptors.push_back(std::move(pipe->write_end));
    start_ = starter.start(command, std::move(descriptors),
                           [self = shared_from_this()](const auto& begun) { self->began(begun); });
    return "";
  }

  void began(const std::variant<Spawned, Refusal>& begun) {
    if (const auto* child = std::get_if<Spawned>(&begun)) {
      pidfd_.assign(child->pidfd);
      pid_ = child->pid;
      return await_end();
    }
    refused(std::get<Refusal>(begun));
    report();
  }

  void refused(const Refusal& refusal) { end_.trouble = system_message(error_number_of(refusal)); }

  void take(std::string_view bytes) {
    const std::size_t room = kMostOutputBytes - end_.output.size();
    end_.output += bytes.substr(0, room);
    if (bytes.size() > room) kill();
  }

  void await_end() {
    pidfd_.async_wait(asio::posix::stream_descriptor::wait_read,
                      [self = shared_from_this()](const error_code& ec) {
                        if (ec || !self->pidfd_.is_open()) return;
                        self->reap();
                        if (const auto refusal = self->start_->ended()) self->refused(*refusal);
                        if (self->on_end_) self->reader_->take_now();
                        self->report();
                        self->close();
                      });
  }

  void kill() {
    if (!pidfd_.is_open())
      start_.reset();  // not begun yet: then it never will
    else
      syscall(SYS_pidfd_send_signal, pidfd_.native_handle(), SIGKILL, nullptr, 0);
  }

  void reap() {
    if (!pidfd_.is_open()) return;
    siginfo_t info{};
    waitid(kPidfd, static_cast<id_t>(pidfd_.native_handle()), &info, WEXITED | WNOHANG);
  }

  void report() {
    timer_.cancel();
    if (on_end_) std::exchange(on_end_, nullptr)(end_);
  }

  void close() {
    timer_.cancel();
    if (reader_) reader_->close();
    // As in agent/process/process.cc: out of epoll first.
    if (pidfd_.is_open()) ::close(pidfd_.release());
  }

  asio::io_context& io_;
  asio::posix::stream_descriptor pidfd_;
  int pid_ = 0;
  asio::steady_timer timer_;
  std::vector<char> buffer_;
  std::shared_ptr<PipeReader> reader_;
  std::unique_ptr<ProgramStart> start_;
  std::function<void(const End&)> on_end_;
  End end_;
};

Helper::Helper(asio::io_context& io, ProgramStarter& starter, const std::vector<std::string>& argv,
               std::span<const std::string> environment, std::chrono::milliseconds limit,
               std::function<void(const End&)> on_end)
    : impl_(std::make_shared<Impl>(io, std::move(on_end))) {
  impl_->start(starter, argv, environment, limit);
}

Helper::~Helper() { stop(); }

void Helper::stop() { impl_->stop(); }

int Helper::pid() const { return impl_->pid(); }

}  // namespace drun::agent
