#include "launcher/hosts/relay.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "agent/command.h"
#include "agent/descriptor_limit.h"
#include "agent/guardian.h"
#include "agent/lifeline.h"
#include "agent/worker_stdin.h"
#include "launcher/exit_code.h"
#include "launcher/host.h"
#include "launcher/hosts/launching.h"
#include "launcher/hosts/relay_wire.h"
#include "launcher/hosts/ssh_session.h"
#include "launcher/log.h"
#include "launcher/version.h"

namespace drun::hosts {
namespace {

constexpr std::size_t kReadBytes = std::size_t{128} << 10;

class Relay {
 public:
  explicit Relay(std::string pending);
  int run();

 private:
  void read();
  void take();
  void obey(const RelayCommand& command, std::string_view bytes);
  void begin(std::size_t host, std::string_view text);
  SessionListener listener_of(std::size_t host);
  void tell(std::string_view line);
  void await_sound();
  void end();
  void end_when_over();
  std::unique_ptr<agent::Console> make_console(int fd, const char* name);

  asio::io_context io_{1};
  Log log_ = console_log({.invoked_as = "drun", .level = LogLevel::Warning, .node_rank = {}});
  std::vector<std::string> environment_ = agent::to_lines(look_at_host().environment);
  std::vector<char> buffer_ = std::vector<char>(kReadBytes);
  asio::posix::stream_descriptor input_{io_};
  asio::steady_timer patience_{io_};
  std::array<char, 64 * 1024> bytes_{};
  std::string held_;
  std::optional<RelayCommand> command_;  // whose bytes are still to come
  std::unique_ptr<agent::Console> out_;
  std::unique_ptr<agent::Console> err_;
  agent::LineBuffer own_lines_{1, ""};
  std::map<std::size_t, std::unique_ptr<SshSession>> sessions_;
  std::size_t ended_ = 0;
  bool is_ending_ = false;
};

Relay::Relay(std::string pending) : held_(std::move(pending)) {}

std::unique_ptr<agent::Console> Relay::make_console(int fd, const char* name) {
  return std::make_unique<agent::Console>(
      io_, log_, fd, name,
      agent::Console::Listener{.on_room =
                                   [this] {
                                     for (const auto& [host, session] : sessions_) session->wake();
                                   },
                               .on_empty = [this] { end_when_over(); }});
}

int Relay::run() {
  std::signal(SIGPIPE, SIG_IGN);
  agent::raise_descriptor_limit();
  out_ = make_console(STDOUT_FILENO, "stdout");
  err_ = make_console(STDERR_FILENO, "stderr");
  error_code ec;
  input_.assign(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3), ec);
  if (ec) return kSystemError;
  tell(to_line(Hello{.version = kVersion}));
  asio::post(io_, [this] {
    take();
    read();
  });
  await_sound();
  io_.run();
  return 0;
}

void Relay::tell(std::string_view line) {
  if (out_->is_gone()) return;
  own_lines_.take(line, out_->queue());
  out_->flush();
}

void Relay::read() {
  if (is_ending_) return;
  input_.async_read_some(asio::buffer(bytes_), [this](const error_code& ec, std::size_t got) {
    if (ec == asio::error::operation_aborted) return;
    if (ec) return end();
    await_sound();
    held_.append(bytes_.data(), got);
    take();
    read();
  });
}

void Relay::take() {
  std::size_t at = 0;
  for (;;) {
    const std::string_view left = std::string_view(held_).substr(at);
    if (command_) {
      if (left.size() < command_->bytes) break;
      const RelayCommand command = *std::exchange(command_, std::nullopt);
      at += command.bytes;
      obey(command, left.substr(0, command.bytes));
      continue;
    }
    const std::size_t end = left.find('\n');
    if (end == left.npos) break;
    at += end + 1;
    command_ = parse_relay_command(left.substr(0, end));
  }
  held_.erase(0, at);
}

void Relay::obey(const RelayCommand& command, std::string_view bytes) {
  if (command.deed == RelayCommand::Deed::Start) return begin(command.host, bytes);
  const auto found = sessions_.find(command.host);
  if (found == sessions_.end()) return;
  SshSession& session = *found->second;
  if (command.deed == RelayCommand::Deed::To) session.send(bytes);
  if (command.deed == RelayCommand::Deed::Eof) session.let_go();
  if (command.deed == RelayCommand::Deed::Kill) session.kill();
}

void Relay::begin(std::size_t host, std::string_view text) {
  Result<RelayStart> start = parse_relay_start(text);
  if (!start || sessions_.contains(host)) return;
  if (start->argv.empty()) {
    std::error_code ec;
    start->argv = {std::filesystem::read_symlink("/proc/self/exe", ec).string(), "--from-stdin"};
  }
  auto& session = sessions_[host];
  session = std::make_unique<SshSession>(io_, buffer_, SshConsoles{.out = *out_, .err = *err_},
                                         SshSpec{.argv = std::move(start->argv),
                                                 .environment = environment_,
                                                 .name = std::move(start->name),
                                                 .first_line = std::move(start->first_line),
                                                 .stream = 2 + 3 * host},
                                         listener_of(host));
  session->start();
}

SessionListener Relay::listener_of(std::size_t host) {
  return {
      .on_hello = [this, host](const Hello& hello) { tell(relayed(host, to_line(hello))); },
      .on_end = [this, host](const End& end) { tell(relayed(host, to_line(end))); },
      .on_room = [this, host](std::size_t bytes) { tell(relayed(host, agent::room_line(bytes))); },
      .on_frame = [this, host](
                      const agent::FrameHead& head,
                      std::string_view payload) { tell(agent::to_frame(head, host, payload)); },
      .on_ended =
          [this, host](int code, const std::string& words) {
            const std::string line =
                "ended " + to_text(RelayEnded{.code = code, .words = words}) + "\n";
            tell(relayed(host, std::string(kMark) + line));
            ++ended_;
            end_when_over();
          }};
}

// The starter is there, or it has been silent for too long.
void Relay::await_sound() {
  if (is_ending_) return;
  patience_.expires_after(agent::kLifelineSilence);
  patience_.async_wait([this](const error_code& ec) {
    if (ec || patience_.expiry() > asio::steady_timer::clock_type::now()) return;
    end();
  });
}

void Relay::end() {
  if (std::exchange(is_ending_, true)) return;
  error_code ignored;
  input_.close(ignored);
  for (const auto& [host, session] : sessions_) session->let_go();
  patience_.expires_after(kEndGrace);
  patience_.async_wait([this](const error_code& ec) {
    if (ec) return;
    for (const auto& [host, session] : sessions_) session->kill();
    out_->stop();
    err_->stop();
  });
  end_when_over();
}

void Relay::end_when_over() {
  if (!is_ending_ || ended_ < sessions_.size() || !out_->is_empty() || !err_->is_empty()) return;
  patience_.cancel();
}

}  // namespace

int run_relay(const std::string& pending) {
  const Result<int> code = agent::run_guarded([&pending] { return Relay(pending).run(); });
  if (code) return *code;
  std::fprintf(stderr, "drun: %s\n", code.error().message.c_str());
  return kSystemError;
}

}  // namespace drun::hosts
