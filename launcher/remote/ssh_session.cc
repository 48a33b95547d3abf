#include "launcher/remote/ssh_session.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "agent/output/worker_stream.h"
#include "agent/spawn/spawn.h"
#include "launcher/base/version.h"
#include "launcher/base/words.h"
#include "launcher/hosts/remote_command.h"
#include "launcher/report/report.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/tls/openssl_library.h"

namespace drun::hosts {
namespace {

OwnProgram::Copy read_own_program() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  auto copy = std::make_shared<ProgramCopy>();
  copy->bytes.assign(std::istreambuf_iterator<char>(file), {});
  if (!file || copy->bytes.empty())
    return Error{ErrorCode::System, "cannot read /proc/self/exe; see whether /proc is mounted"};
  Result<std::string> hash = sha256_text(copy->bytes);
  if (!hash) return hash.error();
  copy->hash = *std::move(hash);
  return std::shared_ptr<const ProgramCopy>(std::move(copy));
}

}  // namespace

void OwnProgram::get(Done done) {
  reader_.run(
      [copy = copy_] {
        if (!*copy) *copy = read_own_program();
      },
      [copy = copy_, done = std::move(done)](bool has_run) {
        if (has_run) done(**copy);
      });
}

namespace {

// As in uname -m.
std::string own_machine() {
  utsname name{};
  return ::uname(&name) == 0 ? name.machine : "";
}

constexpr std::size_t kPipeBytes = std::size_t{64} << 10;
// A process that outlives ssh (ControlPersist) may hold its pipes open.
constexpr std::chrono::seconds kDrainAtMost{1};

}  // namespace

class SshSession::Impl : public std::enable_shared_from_this<SshSession::Impl> {
 public:
  Impl(asio::io_context& io, const SshMeans& means, SshSpec spec, SessionListener listener)
      : io_(io),
        means_(means),
        spec_(std::move(spec)),
        listener_(std::move(listener)),
        input_(io),
        patience_(io),
        channel_(spec_.nonce) {}

  void start();
  void send(std::string_view bytes);
  void let_go();
  void kill();
  void wake() {
    if (out_) out_->wake();
    if (err_) err_->wake();
  }
  void close();

 private:
  Result<void> open();
  Result<std::shared_ptr<agent::PipeReader>> open_reader(std::function<void(std::string_view)> take,
                                                         UniqueFd& write_end);
  void start_ssh(UniqueFd in, UniqueFd out, UniqueFd err);
  void refused(const agent::Refusal& refusal);
  void ssh_ended(const ExitStatus& status);
  void cannot_start(int code, const std::string& reason);
  void write();
  void write(const void* bytes, std::size_t size, std::shared_ptr<const void> owner);
  void take_out(std::string_view bytes);  // empty: end of file
  void take_word(const CopyWord& word);
  void offer(const CopyWanted& wanted, const OwnProgram::Copy& copy);
  void say_of_copy();
  void take_channel(std::string_view bytes);
  void on_exit(int code);
  void check_ended();

  asio::io_context& io_;
  const SshMeans means_;
  SshSpec spec_;
  SessionListener listener_;
  asio::posix::stream_descriptor input_;
  asio::steady_timer patience_;
  std::string outgoing_;
  std::string writing_;  // unchanged during the write
  bool is_writing_ = false;
  // Sent before the agent's first answer.
  bool has_spoken_ = false;
  std::string sent_;
  CopyWords words_;
  std::optional<CopyWanted> wanted_{};         // set: send nothing until the copy starts
  std::shared_ptr<const ProgramCopy> copy_{};  // the offered copy
  bool is_copy_next_ = false;                  // write it next
  std::shared_ptr<agent::PipeReader> out_;
  std::shared_ptr<agent::PipeReader> err_;
  std::unique_ptr<agent::ProgramStart> start_;  // until it is executed, refused or killed
  std::optional<agent::Process> process_;
  agent::ChannelReader channel_;
  std::string reason_;  // why ssh could not be started
  std::optional<int> code_;
};

void SshSession::Impl::start() {
  outgoing_ = std::move(spec_.first_line);
  if (spec_.is_ssh) sent_ = outgoing_;
  if (Result<void> opened = open(); !opened)
    return cannot_start(kSystemError, opened.error().message);
  write();
}

Result<std::shared_ptr<agent::PipeReader>> SshSession::Impl::open_reader(
    std::function<void(std::string_view)> take, UniqueFd& write_end) {
  Result<agent::Pipe> pipe = agent::make_pipe(kPipeBytes);
  if (!pipe) return pipe.error();
  auto reader = std::make_shared<agent::PipeReader>(
      io_, means_.buffer,
      agent::PipeReader::Listener{.is_ready = [this] { return !listener_.is_held_up(); },
                                  .on_bytes = std::move(take),
                                  .on_end = [this] { check_ended(); }});
  if (Result<void> started = reader->start(std::move(pipe->read_end)); !started)
    return started.error();
  write_end = std::move(pipe->write_end);
  return reader;
}

Result<void> SshSession::Impl::open() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return system_error("make a pipe for ssh", errno);
  UniqueFd read_end(fds[0]);
  UniqueFd write_end(fds[1]);
  if (::fcntl(write_end.get(), F_SETFL, O_NONBLOCK) != 0)
    return system_error("set O_NONBLOCK", errno);
  error_code ec;
  input_.assign(write_end.get(), ec);
  if (ec) return system_error("watch ssh's standard input", ec.value());
  write_end.release();
  UniqueFd out_end;
  UniqueFd err_end;
  auto out = open_reader([this](std::string_view bytes) { take_out(bytes); }, out_end);
  if (!out) return out.error();
  out_ = *out;
  auto err =
      open_reader([this](std::string_view bytes) { listener_.on_stray(true, bytes); }, err_end);
  if (!err) return err.error();
  err_ = *err;
  start_ssh(std::move(read_end), std::move(out_end), std::move(err_end));
  return {};
}

void SshSession::Impl::start_ssh(UniqueFd in, UniqueFd out, UniqueFd err) {
  agent::Command command{.argv = spec_.argv, .inherited = spec_.environment};
  command.stdin_fd = in.get();
  command.stdout_fd = out.get();
  command.stderr_fd = err.get();
  command.network_fd = spec_.network_fd;
  std::vector<UniqueFd> ends;
  for (UniqueFd* end : {&in, &out, &err}) ends.push_back(std::move(*end));
  start_ = means_.launcher.start(
      command, std::move(ends), [self = shared_from_this()](const auto& begun) {
        if (const auto* child = std::get_if<agent::Spawned>(&begun)) {
          self->process_.emplace(self->io_, *child,
                                 [self](const ExitStatus& status) { self->ssh_ended(status); });
        } else {
          self->refused(std::get<agent::Refusal>(begun));
        }
      });
}

void SshSession::Impl::refused(const agent::Refusal& refusal) {
  const int error = agent::error_number_of(refusal);
  cannot_start(
      error == ENOENT ? kNotFound : kNotExecutable,
      "cannot start " + spec_.argv.front() + ": " + system_message(error) +
          (spec_.is_ssh ? "; install OpenSSH's client, or name a program with --ssh" : ""));
}

void SshSession::Impl::ssh_ended(const ExitStatus& status) {
  const std::optional<agent::Refusal> refusal = start_ ? start_->ended() : std::nullopt;
  if (refusal) return refused(*refusal);
  on_exit(exit_code(status));
}

void SshSession::Impl::cannot_start(int code, const std::string& reason) {
  reason_ = reason;
  asio::post(io_, [self = shared_from_this(), code] { self->on_exit(code); });
}

void SshSession::Impl::send(std::string_view bytes) {
  if (!input_.is_open()) return;
  if (spec_.is_ssh && !has_spoken_) sent_ += bytes;
  if (wanted_) return;
  outgoing_ += bytes;
  write();
}

void SshSession::Impl::write() {
  if (is_writing_ || !input_.is_open()) return;
  if (!outgoing_.empty()) {
    writing_.swap(outgoing_);
    write(writing_.data(), writing_.size(), nullptr);
  } else if (std::exchange(is_copy_next_, false)) {
    write(copy_->bytes.data(), copy_->bytes.size(), copy_);
  }
}

void SshSession::Impl::write(const void* bytes, std::size_t size,
                             std::shared_ptr<const void> owner) {
  is_writing_ = true;
  asio::async_write(
      input_, asio::buffer(bytes, size),
      [self = shared_from_this(), owner = std::move(owner)](const error_code& ec, std::size_t) {
        self->is_writing_ = false;
        self->writing_.clear();
        if (!ec) self->write();  // else ssh's exit gives the reason
      });
}

void SshSession::Impl::let_go() {
  error_code ignored;
  input_.close(ignored);
}

void SshSession::Impl::kill() {
  if (process_) return process_->signal_group(SIGKILL);
  // Not executed yet: cancel the start.
  if (!std::exchange(start_, nullptr) || code_) return;
  asio::post(io_, [self = shared_from_this()] { self->on_exit(exit_code(Killed{SIGKILL})); });
}

void SshSession::Impl::take_out(std::string_view bytes) {
  if (!spec_.is_ssh) return take_channel(bytes);
  const CopyWords::Listener parts{.on_word = [this](const CopyWord& word) { take_word(word); },
                                  .on_text = [this](std::string_view text) { take_channel(text); }};
  if (!has_spoken_ && !bytes.empty()) return words_.take(bytes, parts);
  words_.end_of_stream(parts);
  take_channel(bytes);
}

void SshSession::Impl::take_word(const CopyWord& word) {
  if (const auto* wanted = std::get_if<CopyWanted>(&word); wanted != nullptr && !wanted_) {
    wanted_ = *wanted;
    means_.own_program.get([weak = weak_from_this(), wanted = *wanted](const auto& copy) {
      if (const auto self = weak.lock()) self->offer(wanted, copy);
    });
  } else if (std::holds_alternative<CopyRequested>(word) && copy_) {
    say_of_copy();
    if (listener_.on_copy) listener_.on_copy();
    is_copy_next_ = true;
  } else if (std::holds_alternative<CopyStarts>(word) && copy_) {
    wanted_.reset();
    copy_.reset();
    outgoing_ += sent_;
  }
  write();
}

void SshSession::Impl::offer(const CopyWanted& wanted, const OwnProgram::Copy& copy) {
  const std::string machine = own_machine();
  if (!copy) {
    outgoing_ += refuse_line(copy.error().message);
  } else if (wanted.machine != machine) {
    outgoing_ += refuse_line("this host is " + printable(wanted.machine) +
                             ", and the drun that would be copied is for " + machine +
                             "; install drun there");
  } else {
    copy_ = *copy;
    outgoing_ += copy_line(copy_->bytes.size(), copy_->hash);
  }
  write();
}

// Prints "copying drun 1.0.0 (9.5 MiB) to this host, which has drun 0.9.0".
void SshSession::Impl::say_of_copy() {
  const std::size_t tenths = (copy_->bytes.size() * 10 + (1 << 19)) >> 20;
  listener_.on_stray(
      true, std::string("copying drun ") + kVersion + " (" + std::to_string(tenths / 10) + "." +
                std::to_string(tenths % 10) + " MiB) to this host, which has " +
                (wanted_->installed.empty() ? "no drun" : wanted_->installed) + "\n");
}

void SshSession::Impl::take_channel(std::string_view bytes) {
  const agent::ChannelReader::Listener parts{
      .on_stray = [this](std::string_view text) { listener_.on_stray(false, text); },
      .on_frame =
          [this](const agent::Frame& frame) {
            if (!std::exchange(has_spoken_, true)) std::string().swap(sent_);
            listener_.on_frame(frame);
          }};
  if (bytes.empty())
    channel_.end_of_stream(parts);
  else
    channel_.take(bytes, parts);
}

void SshSession::Impl::on_exit(int code) {
  code_ = code;
  let_go();
  patience_.expires_after(kDrainAtMost);
  patience_.async_wait([self = shared_from_this()](const error_code& ec) {
    if (ec) return;
    for (const auto& reader : {self->out_, self->err_}) {
      if (!reader) continue;
      reader->take_now();
      reader->close();
    }
  });
  check_ended();
}

void SshSession::Impl::check_ended() {
  const bool is_open = (out_ && !out_->is_closed()) || (err_ && !err_->is_closed());
  if (!code_ || is_open || !listener_.on_ended) return;
  patience_.cancel();
  take_out({});
  const auto on_ended = std::exchange(listener_.on_ended, nullptr);
  asio::post(io_, [on_ended, code = *code_, reason = reason_] { on_ended(code, reason); });
}

void SshSession::Impl::close() {
  listener_.on_ended = nullptr;
  start_.reset();
  process_.reset();
  patience_.cancel();
  let_go();
  for (const auto& reader : {out_, err_})
    if (reader) reader->close();
}

SshSession::SshSession(asio::io_context& io, const SshMeans& means, SshSpec spec,
                       SessionListener listener)
    : impl_(std::make_shared<Impl>(io, means, std::move(spec), std::move(listener))) {}
SshSession::~SshSession() { impl_->close(); }

void SshSession::start() { impl_->start(); }
void SshSession::send(std::string_view bytes) { impl_->send(bytes); }
void SshSession::let_go() { impl_->let_go(); }
void SshSession::kill() { impl_->kill(); }
void SshSession::wake() { impl_->wake(); }

}  // namespace drun::hosts
