#include "launcher/remote/ssh_tree.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "agent/output/console.h"
#include "agent/process/guardian.h"
#include "agent/process/lifeline.h"
#include "agent/spawn/child_descriptors.h"
#include "agent/spawn/command.h"
#include "agent/workers/worker_stdin.h"
#include "launcher/base/log.h"
#include "launcher/facts/host.h"
#include "launcher/remote/agent_protocol.h"
#include "launcher/remote/launch_machine.h"
#include "launcher/remote/ssh_session.h"
#include "launcher/report/report.h"

namespace drun::hosts {
namespace {

constexpr std::size_t kMostNamedHosts = 8;

SshSpec with_first_line(SshSpec spec) {
  spec.first_line = relay_line(spec.nonce);
  return spec;
}

}  // namespace

class Branch::Session final : public HostSession {
 public:
  Session(Branch& branch, std::size_t host, RelayStart start, SessionListener listener)
      : branch_(branch), host_(host), start_(std::move(start)), listener_(std::move(listener)) {}

  void start() override { branch_.begin(host_, *this, start_); }
  void send(std::string_view bytes) override {
    branch_.send({.order = RelayCommand::Order::To, .host = host_, .bytes = bytes.size()}, bytes);
  }
  void let_go() override { branch_.send({.order = RelayCommand::Order::Eof, .host = host_}, {}); }
  void kill() override { branch_.kill(host_); }
  void wake() override { branch_.ssh_.wake(); }

  const std::string& name() const { return start_.name; }
  const SessionListener& listener() const { return listener_; }
  bool has_spoken() const { return has_spoken_; }
  void take(const agent::Frame& frame);

 private:
  Branch& branch_;
  std::size_t host_;
  RelayStart start_;
  SessionListener listener_;
  bool has_spoken_ = false;  // its agent or the relay has answered
};

void Branch::Session::take(const agent::Frame& frame) {
  using agent::FrameType;
  const bool is_stderr = frame.type == FrameType::StrayErr;
  if (is_stderr || frame.type == FrameType::StrayOut)
    return listener_.on_stray(is_stderr, frame.payload);
  has_spoken_ = has_spoken_ || frame.type == FrameType::Control;
  listener_.on_frame(frame);
}

Branch::Branch(asio::io_context& io, const SshMeans& means, SshSpec spec, Log log,
               SessionListener listener)
    : name_(spec.name),
      log_(std::move(log)),
      grace_(io),
      on_stray_(std::move(listener.on_stray)),
      ssh_(io, means, with_first_line(std::move(spec)),
           SessionListener{
               .on_frame = [this](const agent::Frame& frame) { take(frame); },
               .on_stray =
                   [this](bool is_stderr, std::string_view text) {
                     if (!text.empty()) is_line_open_[is_stderr ? 1 : 0] = !text.ends_with('\n');
                     on_stray_(is_stderr, text);
                   },
               .is_held_up = std::move(listener.is_held_up),
               .on_ended = [this](int code,
                                  const std::string& reason) { take_end(code, reason); }}) {}

std::unique_ptr<HostSession> Branch::session(std::size_t host, RelayStart start,
                                             SessionListener listener) {
  return std::make_unique<Session>(*this, host, std::move(start), std::move(listener));
}

void Branch::begin(std::size_t host, Session& session, const RelayStart& start) {
  sessions_[host] = &session;
  if (!std::exchange(has_started_, true)) ssh_.start();
  const std::string text = to_text(start);
  send({.order = RelayCommand::Order::Start, .host = host, .bytes = text.size()}, text);
}

void Branch::send(const RelayCommand& command, std::string_view bytes) {
  if (is_let_go_) return;
  ssh_.send(to_line(command));
  ssh_.send(bytes);
}

// Kills a session; if all remaining ones are killed, kills their ssh.
void Branch::kill(std::size_t host) {
  killed_.insert(host);
  const bool is_all = std::all_of(sessions_.begin(), sessions_.end(), [this](const auto& each) {
    return killed_.contains(each.first);
  });
  if (is_all) return ssh_.kill();
  send({.order = RelayCommand::Order::Kill, .host = host}, {});
}

void Branch::take(const agent::Frame& frame) {
  using agent::FrameType;
  if (frame.type == FrameType::Control) return take_hello(frame);
  const auto about =
      frame.type == FrameType::Relayed ? agent::parse_relayed(frame.payload) : std::nullopt;
  const auto found = about ? sessions_.find(about->host) : sessions_.end();
  if (found == sessions_.end()) return;
  Session& session = *found->second;
  if (about->frame.type != FrameType::Ended) return session.take(about->frame);
  forget(about->host);
  session.listener().on_ended(parse_ended(about->frame.payload).value_or(kSshFailed), "");
}

// The relay's own Hello. If the relay cannot serve, the answer applies to all its hosts.
void Branch::take_hello(const agent::Frame& frame) {
  const Result<Message> message = parse(frame.payload);
  const Hello* const hello = message ? std::get_if<Hello>(&*message) : nullptr;
  if (hello == nullptr || hello->problem.empty()) return;
  const auto sessions = sessions_;
  for (const auto& [host, session] : sessions)
    if (!session->has_spoken()) session->take(frame);
}

void Branch::forget(std::size_t host) {
  sessions_.erase(host);
  if (!sessions_.empty() || std::exchange(is_let_go_, true)) return;
  ssh_.let_go();
  grace_.expires_after(kEndGrace);
  grace_.async_wait([this](const error_code& ec) {
    if (!ec) ssh_.kill();
  });
}

void Branch::take_end(int code, const std::string& reason) {
  grace_.cancel();
  // The session of the first host may have ended already.
  for (const bool is_stderr : {false, true})
    if (is_line_open_[is_stderr ? 1 : 0]) on_stray_(is_stderr, "\n");
  const auto left = std::exchange(sessions_, {});
  std::string names;
  std::size_t count = 0;
  bool was_running = false;
  for (const auto& [host, session] : left) {
    was_running = was_running || session->has_spoken();
    if (session->name() == name_) continue;
    if (++count <= kMostNamedHosts) names += (count == 1 ? "" : ", ") + session->name();
  }
  if (count > kMostNamedHosts) names += " and " + std::to_string(count - kMostNamedHosts) + " more";
  if (was_running && count > 0 && killed_.empty())
    log_.warning("lost the ssh connection of " + name_ + ", and with it what is behind: " + names);
  for (const auto& [host, session] : left) {
    const bool is_first = session->name() == name_;
    const std::string why = is_first ? reason : "behind " + name_ + ", which is not there";
    session->listener().on_ended(code == 0 ? kSshFailed : code, why);
  }
}

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
       agent::to_frame(agent::FrameType::Control, to_text(Hello{})));
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
  Result<Message> message = parse(text);
  RelayStart* const start = message ? std::get_if<RelayStart>(&*message) : nullptr;
  if (start == nullptr || sessions_.contains(host)) return;
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
