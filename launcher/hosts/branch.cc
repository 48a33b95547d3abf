#include "launcher/hosts/branch.h"

#include <algorithm>
#include <utility>

#include "agent/worker_stdin.h"
#include "launcher/hosts/launching.h"

namespace drun::hosts {
namespace {

constexpr std::size_t kMostNamed = 8;

SshSpec with_first_line(SshSpec spec) {
  spec.first_line = relay_line();
  return spec;
}

}  // namespace

class Branch::Session final : public HostSession {
 public:
  Session(Branch& branch, std::size_t host, RelayStart start, SessionListener listener)
      : branch_(branch), host_(host), start_(std::move(start)), listener_(std::move(listener)) {}

  void start() override { branch_.begin(host_, *this, start_); }
  void send(std::string_view bytes) override {
    branch_.send({.deed = RelayCommand::Deed::To, .host = host_, .bytes = bytes.size()}, bytes);
  }
  void let_go() override { branch_.send({.deed = RelayCommand::Deed::Eof, .host = host_}, {}); }
  void kill() override { branch_.kill(host_); }
  void wake() override { branch_.ssh_.wake(); }

  const std::string& name() const { return start_.name; }
  const SessionListener& listener() const { return listener_; }
  bool has_hello() const { return has_hello_; }
  void take_hello(const Hello& hello) {
    has_hello_ = true;
    listener_.on_hello(hello);
  }
  // Absent: it goes on.
  std::optional<RelayEnded> take(std::string_view line);

 private:
  Branch& branch_;
  std::size_t host_;
  RelayStart start_;
  SessionListener listener_;
  bool has_hello_ = false;
};

std::optional<RelayEnded> Branch::Session::take(std::string_view line) {
  constexpr std::string_view kEnded = "ended ";
  if (line.starts_with(kEnded)) {
    Result<RelayEnded> ended = parse_relay_ended(line.substr(kEnded.size()));
    return ended ? *std::move(ended) : RelayEnded{.code = kSshFailed, .words = {}};
  }
  if (!has_hello_) {
    if (const Result<Hello> hello = parse_hello(line)) take_hello(*hello);
    return std::nullopt;
  }
  const auto room = agent::parse_room(line);
  if (room && listener_.on_room)
    listener_.on_room(*room);
  else if (const Result<End> end = parse_end(line))
    listener_.on_end(*end);
  return std::nullopt;
}

Branch::Branch(asio::io_context& io, std::vector<char>& buffer, SshConsoles consoles, SshSpec spec,
               Log log, std::function<bool()> is_held_up)
    : name_(spec.name),
      log_(std::move(log)),
      grace_(io),
      ssh_(io, buffer, consoles, with_first_line(std::move(spec)),
           SessionListener{
               .on_hello = [this](const Hello& hello) { take_hello(hello); },
               .on_end = [](const End&) {},
               .on_frame = [this](const agent::FrameHead& head,
                                  std::string_view payload) { take_frame(head, payload); },
               .is_held_up = std::move(is_held_up),
               .on_relayed = [this](std::string_view line) { take_line(line); },
               .on_ended = [this](int code, const std::string& words) { take_end(code, words); }}) {
}

std::unique_ptr<HostSession> Branch::session(std::size_t host, RelayStart start,
                                             SessionListener listener) {
  return std::make_unique<Session>(*this, host, std::move(start), std::move(listener));
}

void Branch::begin(std::size_t host, Session& session, const RelayStart& start) {
  sessions_[host] = &session;
  if (!std::exchange(has_started_, true)) ssh_.start();
  const std::string text = to_text(start);
  send({.deed = RelayCommand::Deed::Start, .host = host, .bytes = text.size()}, text);
}

void Branch::send(const RelayCommand& command, std::string_view bytes) {
  if (is_let_go_) return;
  ssh_.send(to_line(command));
  ssh_.send(bytes);
}

// Of all that are left: then the ssh that they need.
void Branch::kill(std::size_t host) {
  killed_.insert(host);
  const bool is_all = std::all_of(sessions_.begin(), sessions_.end(), [this](const auto& each) {
    return killed_.contains(each.first);
  });
  if (is_all) return ssh_.kill();
  send({.deed = RelayCommand::Deed::Kill, .host = host}, {});
}

// The relay's own; one that cannot serve answers for all its hosts.
void Branch::take_hello(const Hello& hello) {
  if (hello.protocol == kProtocol && hello.problem.empty()) return;
  const auto sessions = sessions_;
  for (const auto& [host, session] : sessions)
    if (!session->has_hello()) session->take_hello(hello);
}

void Branch::take_line(std::string_view line) {
  const auto about = parse_relayed(line);
  const auto found = about ? sessions_.find(about->host) : sessions_.end();
  if (found == sessions_.end()) return;
  Session& session = *found->second;
  const auto ended = session.take(about->line);
  if (!ended) return;
  forget(about->host);
  session.listener().on_ended(ended->code, ended->words);
}

void Branch::take_frame(const agent::FrameHead& head, std::string_view payload) {
  const auto found = head.host ? sessions_.find(*head.host) : sessions_.end();
  if (found == sessions_.end() || !found->second->listener().on_frame) return;
  found->second->listener().on_frame(head, payload);
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

void Branch::take_end(int code, const std::string& words) {
  grace_.cancel();
  const auto left = std::exchange(sessions_, {});
  std::string names;
  std::size_t count = 0;
  bool was_running = false;
  for (const auto& [host, session] : left) {
    was_running = was_running || session->has_hello();
    if (session->name() == name_) continue;
    if (++count <= kMostNamed) names += (count == 1 ? "" : ", ") + session->name();
  }
  if (count > kMostNamed) names += " and " + std::to_string(count - kMostNamed) + " more";
  if (was_running && count > 0 && killed_.empty())
    log_.warning("lost the ssh connection of " + name_ + ", and with it what is behind: " + names);
  for (const auto& [host, session] : left) {
    const bool is_first = session->name() == name_;
    const std::string why = is_first ? words : "behind " + name_ + ", which is not there";
    session->listener().on_ended(code == 0 ? kSshFailed : code, why);
  }
}

}  // namespace drun::hosts
