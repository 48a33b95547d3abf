#include "launcher/remote/ssh_tree.h"

#include <algorithm>
#include <utility>

#include "launcher/remote/agent_protocol.h"
#include "launcher/remote/launch_machine.h"

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
  const Result<Hello> hello = parse_hello(frame.payload);
  if (!hello || (hello->protocol == kProtocol && hello->problem.empty())) return;
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

}  // namespace drun::hosts
