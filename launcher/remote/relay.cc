#include "launcher/remote/relay.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "agent/output/console.h"
#include "agent/output/worker_stdin.h"
#include "agent/process/child_descriptors.h"
#include "agent/process/command.h"
#include "agent/process/guardian.h"
#include "agent/process/lifeline.h"
#include "launcher/base/log.h"
#include "launcher/base/version.h"
#include "launcher/facts/host.h"
#include "launcher/remote/agent_protocol.h"
#include "launcher/remote/launch_machine.h"
#include "launcher/remote/ssh_session.h"
#include "launcher/report/exit_code.h"

namespace drun::hosts {
namespace {

constexpr std::size_t kReadBytes = std::size_t{128} << 10;

class Relay {
 public:
  Relay(std::string pending, RelayChannel channel);
  int run();

 private:
  void read();
  void take();
  void obey(const RelayCommand& command, std::string_view bytes);
  void begin(std::size_t host, std::string_view text);
  SessionListener listener_of(std::size_t host);
  void tell(std::string_view bytes);
  void pass_on(std::size_t host, const agent::Frame& frame);
  void await_sound();
  void end();
  void end_when_over();

  asio::io_context io_{1};
  Log log_ = console_log({.level = LogLevel::Warning});
  std::vector<std::string> environment_ = agent::to_lines(look_at_host().environment);
  std::vector<char> buffer_ = std::vector<char>(kReadBytes);
  agent::ProgramStarter ssh_starter_{io_, agent::ChildDescriptors::kSlots};
  OwnProgram own_program_{io_};
  asio::posix::stream_descriptor input_{io_};
  asio::steady_timer patience_{io_};
  std::array<char, 64 * 1024> bytes_{};
  std::string held_;
  std::optional<RelayCommand> command_;  // the bytes of this command are still to come
  RelayChannel channel_;
  std::unique_ptr<agent::Console> out_;  // the channel
  std::map<std::size_t, std::unique_ptr<SshSession>> sessions_;
  std::size_t ended_ = 0;
  bool is_ending_ = false;
};

Relay::Relay(std::string pending, RelayChannel channel)
    : held_(std::move(pending)), channel_(std::move(channel)) {}

int Relay::run() {
  std::signal(SIGPIPE, SIG_IGN);
  agent::raise_descriptor_limit();
  out_ = std::make_unique<agent::Console>(
      io_, log_, channel_.fd, "the channel to the launcher",
      agent::Console::Listener{.on_room =
                                   [this] {
                                     for (const auto& [host, session] : sessions_) session->wake();
                                   },
                               .on_empty = [this] { end_when_over(); }});
  error_code ec;
  input_.assign(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3), ec);
  if (ec) return kSystemError;
  tell(agent::preamble(channel_.nonce) +
       agent::to_frame(agent::FrameType::Control, to_text(Hello{.version = kVersion})));
  asio::post(io_, [this] {
    take();
    read();
  });
  await_sound();
  io_.run();
  return 0;
}

void Relay::tell(std::string_view bytes) {
  if (out_->is_gone()) return;
  out_->queue().put_between_lines(bytes);
  out_->flush();
}

// Splits text so that it fits this relay's frames.
void Relay::pass_on(std::size_t host, const agent::Frame& frame) {
  const bool is_text = frame.type != agent::FrameType::Control &&
                       frame.type != agent::FrameType::Lines &&
                       frame.type != agent::FrameType::Ended;
  const std::size_t most_bytes =
      is_text ? agent::kMostTextFrameBytes : agent::kMostPayloadBytes - agent::kRelayedHeadBytes;
  std::string_view left = frame.payload;
  if (!is_text && left.size() > most_bytes) return;  // drun's agents never send such a frame
  do {
    const agent::Frame piece{.type = frame.type, .payload = left.substr(0, most_bytes)};
    tell(agent::relayed_frame(static_cast<std::uint32_t>(host), piece));
    left.remove_prefix(piece.payload.size());
  } while (!left.empty());
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
  if (command.order == RelayCommand::Order::Start) return begin(command.host, bytes);
  const auto found = sessions_.find(command.host);
  if (found == sessions_.end()) return;
  SshSession& session = *found->second;
  if (command.order == RelayCommand::Order::To) session.send(bytes);
  if (command.order == RelayCommand::Order::Eof) session.let_go();
  if (command.order == RelayCommand::Order::Kill) session.kill();
}

void Relay::begin(std::size_t host, std::string_view text) {
  Result<RelayStart> start = parse_relay_start(text);
  if (!start || sessions_.contains(host)) return;
  if (start->argv.empty()) {
    std::error_code ec;
    start->argv = {std::filesystem::read_symlink("/proc/self/exe", ec).string(), "--from-stdin"};
  }
  auto& session = sessions_[host];
  session = std::make_unique<SshSession>(io_, SshMeans{buffer_, ssh_starter_, own_program_},
                                         SshSpec{.argv = std::move(start->argv),
                                                 .environment = environment_,
                                                 .name = std::move(start->name),
                                                 .first_line = std::move(start->first_line),
                                                 .nonce = std::move(start->nonce)},
                                         listener_of(host));
  session->start();
}

SessionListener Relay::listener_of(std::size_t host) {
  using agent::FrameType;
  return {.on_frame =
              [this, host](const agent::Frame& frame) {
                // Only relays may send Relayed frames; an agent's are dropped.
                if (frame.type != FrameType::Relayed) pass_on(host, frame);
              },
          .on_stray =
              [this, host](bool is_stderr, std::string_view text) {
                pass_on(host, {.type = is_stderr ? FrameType::StrayErr : FrameType::StrayOut,
                               .payload = text});
              },
          .is_held_up = [this] { return out_->is_congested(); },
          .on_ended =
              [this, host](int code, const std::string& reason) {
                if (!reason.empty())
                  pass_on(host, {.type = FrameType::StrayErr, .payload = reason});
                pass_on(host, {.type = FrameType::Ended, .payload = ended_text(code)});
                ++ended_;
                end_when_over();
              }};
}

// Restarts the timer for the launcher's silence.
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
  });
  end_when_over();
}

void Relay::end_when_over() {
  if (!is_ending_ || ended_ < sessions_.size() || !out_->is_empty()) return;
  patience_.cancel();
}

}  // namespace

int run_relay(const std::string& pending, const RelayChannel& channel) {
  const Result<int> code =
      agent::run_guarded([&pending, &channel] { return Relay(pending, channel).run(); });
  if (code) return *code;
  std::fprintf(stderr, "drun: %s\n", code.error().message.c_str());
  return kSystemError;
}

}  // namespace drun::hosts
