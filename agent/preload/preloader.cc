#include "agent/preload/preloader.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <sstream>
#include <utility>

#include "agent/preload/interpreter_source.h"
#include "agent/spawn/child_descriptors.h"
#include "agent/spawn/raw_syscall.h"

namespace drun::agent {
namespace preloading {

constexpr std::size_t kMostTailBytes = 16 * 1024;  // of what the modules print, for the report
constexpr std::size_t kMostLinesLogged = 50;
constexpr std::size_t kMostReasons = 20;
// After its own limit the interpreter shows where it hangs; then it is killed.
constexpr std::chrono::seconds kTimeToShowStack{2};
// A fork takes milliseconds. An interpreter that does not answer is stopped, or stuck.
constexpr std::chrono::seconds kForkLimit{30};
constexpr int kMostDeaths = 3;  // in a row, without a worker in between

// In memory: however long the environment is, writing it does not block.
UniqueFd memory_file(const std::string& text) {
  UniqueFd file(static_cast<int>(syscall(SYS_memfd_create, "drun-preload", 1U)));  // MFD_CLOEXEC
  for (std::size_t at = 0; file && at < text.size();) {
    const ssize_t count =
        pwrite(file.get(), text.data() + at, text.size() - at, static_cast<off_t>(at));
    if (count <= 0) return UniqueFd();
    at += static_cast<std::size_t>(count);
  }
  return file;
}

bool is_our_child(int pidfd) {
  siginfo_t info{};
  return waitid(kPidfd, static_cast<id_t>(pidfd), &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

// A forked worker until it begins the program. (interpreter.py: _become_worker)
class WarmStart final : public Start {
 public:
  explicit WarmStart(UniqueFd channel) : channel_(std::move(channel)) {}
  WarmStart(const WarmStart&) = delete;
  WarmStart& operator=(const WarmStart&) = delete;

  void go() override { send(channel_.get(), "g", 1, MSG_DONTWAIT | MSG_NOSIGNAL); }
  int sign() const override { return channel_.get(); }
  bool look() override {
    std::array<char, 64> bytes;
    while (!has_begun_) {
      const ssize_t count = recv(channel_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
      if (count <= 0) {
        has_begun_ = true;
        break;
      }
      note({bytes.data(), static_cast<std::size_t>(count)});
    }
    return true;
  }
  void ended() override {
    look();
    has_begun_ = true;
  }
  std::optional<Refusal> refusal() const override { return refusal_; }
  int memory_error() const override { return memory_error_; }

 private:
  void note(std::string_view bytes) {
    const auto message = preload::parse_channel_message(bytes);
    if (!message) return;
    if (const auto* not_bound = std::get_if<NotBound>(&*message)) refusal_ = *not_bound;
    if (const auto* memory = std::get_if<preload::MemoryNotPlaced>(&*message))
      memory_error_ = memory->error_number;
  }

  const UniqueFd channel_;
  bool has_begun_ = false;
  std::optional<Refusal> refusal_;
  int memory_error_ = 0;
};

}  // namespace preloading

using namespace preloading;

Preloader::Preloader(asio::io_context& io, Log log, PreloaderSpec spec, Listener& listener)
    : io_(io),
      log_(std::move(log)),
      spec_(std::move(spec)),
      listener_(listener),
      starter_(io, 1),
      control_(io),
      output_(io),
      timer_(io) {}

std::string Preloader::modules() const {
  std::string text;
  for (const std::string& module : spec_.preload.modules)
    text += (text.empty() ? "" : ",") + module;
  return text;
}

std::string Preloader::not_begun(const Refusal& refusal) const {
  return "could not begin: " + spec_.start.program.python + ": " +
         system_message(error_number_of(refusal));
}

void Preloader::start() {
  if (is_stopped_ || (state_ != State::Idle && state_ != State::Failed)) return;
  failure_.reset();
  tail_.clear();
  line_.clear();
  std::optional<SocketPair> pair = socket_pair();
  int ends[2];
  if (!pair || pipe2(ends, O_CLOEXEC) != 0) return turn_off(system_message(errno));
  UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  fcntl(reading.get(), F_SETFL, O_NONBLOCK);
  const auto seconds =
      std::chrono::duration_cast<std::chrono::duration<double>>(spec_.preload.import_timeout);
  const preload::PythonProgram& program = spec_.start.program;
  Command command{
      .argv = {program.python, "-u", "-c", preload::kInterpreterSource,
               std::to_string(seconds.count()), program.is_module ? "module" : "script",
               program.name},
      .inherited = spec_.inherited,
      .environment = spec_.start.environment,
      .stdin_fd = pair->theirs.get(),
      .stdout_fd = writing.get(),
      .stderr_fd = writing.get(),
      .descriptor_limit = spec_.descriptor_limit,
  };
  command.argv.insert(command.argv.end(), spec_.preload.modules.begin(),
                      spec_.preload.modules.end());
  std::vector<UniqueFd> theirs;
  theirs.push_back(std::move(pair->theirs));
  theirs.push_back(std::move(writing));
  error_code ec;
  control_.assign(pair->ours.release(), ec);
  output_.assign(reading.release(), ec);
  state_ = State::Starting;
  program_ =
      starter_.start(command, std::move(theirs), [this](const auto& result) { on_begun(result); });
  timer_.set(
      std::chrono::steady_clock::now() + spec_.preload.import_timeout + kTimeToShowStack, [this] {
        if (!is_importing()) return;
        log_lines(true);
        fail("took longer than " + std::to_string(spec_.preload.import_timeout.count() / 1000) +
             " s; --preload-timeout changes the limit");
      });
  read_control();
  read_output();
}

void Preloader::on_begun(const std::variant<Spawned, Refusal>& result) {
  const auto* spawned = std::get_if<Spawned>(&result);
  if (spawned == nullptr) {
    return fail(not_begun(std::get<Refusal>(result)));
  }
  process_ = std::make_unique<Process>(io_, *spawned,
                                       [this](const ExitStatus& status) { on_end(status); });
  listener_.on_interpreter_begun(spawned->pid);
  if (is_stopped_ || state_ != State::Starting) return kill();
  state_ = State::Importing;
}

void Preloader::read_control() {
  control_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const error_code& ec) {
    if (ec || !control_.is_open()) return;
    std::array<char, preload::kMostMessageBytes> bytes;
    const ssize_t count = recv(control_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return;  // on_end()
    if (count > 0) handle(preload::parse_message({bytes.data(), static_cast<std::size_t>(count)}));
    if (control_.is_open()) read_control();
  });
}

void Preloader::handle(const preload::Message& message) {
  using Kind = preload::Message::Kind;
  if (is_importing() && message.kind == Kind::Ready) {
    state_ = State::Ready;
    timer_.cancel();
    log_printed();
    log_.info("preloaded " + modules() + " in " + message.text + " s (pid " +
              std::to_string(pid()) + ")");
    return settle(Result<void>());
  }
  // on_end() follows, once what it printed has been read.
  if (is_importing() && message.kind == Kind::ImportFailed)
    return fail("failed at the import of " + message.text);
  if (is_importing() && message.kind == Kind::Unsafe) return turn_off(message.text);
  if (state_ == State::Forking && message.kind == Kind::Forked) return on_forked(message.pid);
  if (state_ == State::Forking && message.kind == Kind::Refused) {
    turn_off(message.text);
    return answer(std::nullopt);
  }
  if (state_ == State::Failed || state_ == State::Off) return;  // it is being killed
  turn_off("the interpreter sent a message that is not valid");
  answer(std::nullopt);
}

// The worker waits for go(), so that it cannot have been reaped unless something killed it.
void Preloader::on_forked(int pid) {
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (pidfd < 0 || !is_our_child(pidfd)) {
    if (pidfd >= 0) close(pidfd);
    return answer(std::nullopt);
  }
  fcntl(pidfd, F_SETFD, FD_CLOEXEC);
  deaths_ = 0;
  answer(Spawner::Begun{.spawned = {.pid = pid, .pidfd = pidfd},
                        .start = std::make_unique<WarmStart>(std::move(channel_))});
}

// To the one that asked for a worker.
void Preloader::answer(std::optional<Spawner::Begun> begun) {
  if (state_ == State::Forking) state_ = State::Ready;
  if (!on_worker_) return;
  timer_.cancel();
  channel_.reset();
  std::exchange(on_worker_, nullptr)(std::move(begun));
}

bool Preloader::start(const Command& command, int local_rank, OnBegun on_begun) {
  assert(!on_worker_);
  if (state_ != State::Ready) {
    if (state_ != State::Off) report_plain(local_rank, "the preloaded interpreter is not ready");
    return false;
  }
  if (const auto reason = preload::mismatch(spec_.start, command)) {
    report_plain(local_rank, *reason);
    return false;
  }
  std::optional<SocketPair> pair = socket_pair();
  const UniqueFd request = memory_file(preload::request(command, static_cast<int>(getpid())));
  int error = pair && request ? 0 : errno;
  if (error == 0)
    error = send_descriptors(control_.native_handle(), "fork",
                             std::array{command.stdin_fd, command.stdout_fd, command.stderr_fd,
                                        pair->theirs.get(), request.get()});
  if (error != 0) {
    report_plain(local_rank, system_message(error));
    return false;
  }
  channel_ = std::move(pair->ours);
  on_worker_ = std::move(on_begun);
  state_ = State::Forking;
  is_canceled_ = false;
  timer_.set(std::chrono::steady_clock::now() + kForkLimit, [this] { kill_if_forking(); });
  return true;
}

// The interpreter may be stuck in the fork: in a handler of a module (os.register_at_fork).
void Preloader::cancel(std::chrono::milliseconds grace) {
  if (state_ != State::Forking) return;
  is_canceled_ = true;
  if (grace.count() == 0) return kill_if_forking();
  timer_.set(std::chrono::steady_clock::now() + grace, [this] { kill_if_forking(); });
}

void Preloader::kill_if_forking() {
  if (state_ != State::Forking) return;
  timer_.cancel();
  log_.warning("the preloaded interpreter does not answer and is killed");
  kill();
}

void Preloader::report_plain(int local_rank, const std::string& reason) {
  if (reasons_.size() >= kMostReasons || !reasons_.insert(reason).second) return;
  log_.warning("--preload: local rank " + std::to_string(local_rank) +
               " starts without the preloaded modules: " + reason);
}

void Preloader::on_end(const ExitStatus& status) {
  const std::optional<Refusal> refusal = program_ ? program_->ended() : std::nullopt;
  program_.reset();
  listener_.on_interpreter_reaped();
  // The pipe may still hold its last words.
  log_lines(true);
  close_all();  // process_ stays: this is called by it
  const State before = std::exchange(state_, State::Idle);
  timer_.cancel();
  if (is_stopped_) return settle(Result<void>());
  if (before == State::Off || before == State::Failed) {
    state_ = before;
    if (before == State::Failed && waiting_) start();
    return;
  }
  if (before == State::Starting || before == State::Importing)
    return fail(refusal ? not_begun(*refusal) : "ended at the import: " + to_string(status));
  if (before == State::Forking && is_canceled_) {  // the next round starts it
    state_ = State::Failed;
    if (waiting_) start();
  } else {
    log_.warning("the preloaded interpreter ended (" + to_string(status) +
                 ") and is started again");
    if (++deaths_ >= kMostDeaths)
      turn_off("the preloaded interpreter ended " + std::to_string(kMostDeaths) + " times");
    else
      start();
  }
  channel_.reset();
  if (on_worker_) std::exchange(on_worker_, nullptr)(std::nullopt);
}

void Preloader::read_output() {
  output_.async_read_some(asio::buffer(buffer_), [this](const error_code& ec, std::size_t count) {
    if (ec) return;
    line_.append(buffer_.data(), count);
    log_lines(false);
    if (output_.is_open()) read_output();
  });
}

// Its output before a failure is part of the error; after that, workers have separate streams.
void Preloader::log_lines(bool is_last) {
  while (is_last && output_.is_open()) {
    std::array<char, 4096> bytes;
    const ssize_t count = read(output_.native_handle(), bytes.data(), bytes.size());
    if (count <= 0) break;
    line_.append(bytes.data(), static_cast<std::size_t>(count));
    if (line_.size() > 4 * kMostTailBytes) line_.erase(0, line_.size() - kMostTailBytes);
  }
  tail_ += line_;
  line_.clear();
  if (tail_.size() > kMostTailBytes) tail_.erase(0, tail_.size() - kMostTailBytes);
}

// In a cold start each worker would print it.
void Preloader::log_printed() {
  log_lines(true);
  std::istringstream lines(std::exchange(tail_, {}));
  std::string line;
  for (std::size_t i = 0; i < kMostLinesLogged && std::getline(lines, line); ++i)
    log_.info("preload: " + line);
}

// The failure of the round that waits for it, or of the next one.
void Preloader::fail(const std::string& what) {
  log_lines(true);
  while (!tail_.empty() && tail_.back() == '\n') tail_.pop_back();
  failure_ = Error{ErrorCode::System, "--preload=" + modules() + ": the preloaded interpreter " +
                                          what + (tail_.empty() ? "" : "\n" + tail_)};
  tail_.clear();
  state_ = State::Failed;
  timer_.cancel();
  kill();
  if (waiting_) settle(*std::exchange(failure_, std::nullopt));
}

// From now on workers are started as usual.
void Preloader::turn_off(const std::string& reason) {
  state_ = State::Off;
  timer_.cancel();
  log_.warning("--preload=" + modules() +
               ": workers start without the preloaded modules: " + reason);
  kill();
  settle(Result<void>());
}

bool Preloader::when_imported(std::function<void(Result<void>)> then) {
  assert(!waiting_);
  waiting_ = std::move(then);
  if (failure_) {
    settle(*std::exchange(failure_, std::nullopt));
    return false;
  }
  // One that was reported: once more, when the killed one is gone.
  if (state_ == State::Failed && pid() == 0) start();
  if (!is_importing() && state_ != State::Failed) settle(Result<void>());
  return waiting_ != nullptr;
}

void Preloader::settle(const Result<void>& result) {
  if (!waiting_) return;
  asio::post(io_, [then = std::exchange(waiting_, nullptr), result] { then(result); });
}

// on_end() follows, if there is a process.
void Preloader::kill() {
  if (process_ && process_->is_running())
    process_->signal_group(SIGKILL);
  else if (state_ == State::Failed || state_ == State::Off)
    close_all();
}

void Preloader::close_all() {
  error_code ignored;
  control_.close(ignored);
  output_.close(ignored);
}

void Preloader::stop() {
  is_stopped_ = true;
  timer_.cancel();
  waiting_ = nullptr;
  kill();
  close_all();
  if (state_ == State::Starting && !process_) program_.reset();
}

}  // namespace drun::agent
