#include "launcher/hosts/starter.h"

#include <unistd.h>

#include <csignal>
#include <memory>
#include <utility>

#include "agent/command.h"
#include "agent/descriptor_limit.h"
#include "agent/lifeline.h"
#include "agent/output/console.h"
#include "agent/progress.h"
#include "agent/signals.h"
#include "launcher/hosts/ssh_session.h"
#include "rendezvous/asio.h"
#include "rendezvous/overloaded.h"

namespace drun::hosts {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr std::size_t kReadBytes = std::size_t{128} << 10;
// Once somebody wants it all killed, a console that takes nothing is not waited for.
constexpr std::chrono::seconds kConsoleAtMost{1};

class Starter final : agent::Signals::Listener {
 public:
  Starter(const HostPlan& plan, const std::vector<EnvironmentEntry>& environment,
          const StarterStyle& style, const Log& log);
  LaunchEnd run();

 private:
  void on_terminate(int signal) override { take(SignalCame{signal}); }
  void on_kill_now() override;
  void on_pass_on(int signal) override { take(PassOn{signal}); }

  void take(const Event& event);
  void log_in(std::size_t host);
  std::string first_line(const HostNode& node) const;
  void remind();
  void arm();
  void tick();
  void wake_all();
  void end_when_over();
  agent::Console& err() { return err_ ? *err_ : *out_; }
  std::unique_ptr<agent::Console> make_console(int fd, const char* name);

  const HostPlan& plan_;
  StarterStyle style_;
  asio::io_context io_{1};
  agent::Progress progress_{io_};
  Log log_;
  std::vector<std::string> environment_;
  asio::steady_timer timer_{io_};
  asio::steady_timer ticks_{io_};
  asio::steady_timer give_up_{io_};
  std::vector<char> buffer_;
  std::unique_ptr<agent::Console> out_;
  std::unique_ptr<agent::Console> err_;  // null: the same file as out_
  agent::Signals signals_;
  Launching state_;
  std::vector<std::unique_ptr<SshSession>> sessions_;
};

Starter::Starter(const HostPlan& plan, const std::vector<EnvironmentEntry>& environment,
                 const StarterStyle& style, const Log& log)
    : plan_(plan),
      style_(style),
      log_(progress_.around(log)),
      environment_(agent::to_lines(environment)),
      buffer_(kReadBytes),
      signals_(io_, {SIGTERM, SIGINT, SIGHUP, SIGQUIT}, *this),
      state_(launching_of(plan.nodes.size(), plan.fanout, plan.login_timeout)),
      sessions_(plan.nodes.size()) {}

std::unique_ptr<agent::Console> Starter::make_console(int fd, const char* name) {
  return std::make_unique<agent::Console>(
      io_, log_, fd, name,
      agent::Console::Listener{.on_room = [this] { wake_all(); },
                               .on_empty = [this] { end_when_over(); }});
}

LaunchEnd Starter::run() {
  agent::raise_descriptor_limit();  // three for each host
  signals_.start();                 // ignores SIGPIPE, too: what the consoles need
  out_ = make_console(STDOUT_FILENO, "stdout");
  if (!agent::is_same_file(STDOUT_FILENO, STDERR_FILENO))
    err_ = make_console(STDERR_FILENO, "stderr");
  progress_.start([this, began = Clock::now()] {
    return progress_text(state_, plan_, std::chrono::floor<Milliseconds>(Clock::now() - began));
  });
  take(Began{});
  tick();
  io_.run();
  return launch_end(state_, plan_, style_.invoked_as);
}

void Starter::take(const Event& event) {
  for (const Action& action : step(state_, event, Clock::now())) {
    std::visit(Overloaded{[this](const LogIn& login) { log_in(login.host); },
                          [this](const Say& say) { sessions_[say.host]->say(say.line); },
                          [this](const LetGo& go) { sessions_[go.host]->let_go(); },
                          [this](const KillSsh& kill) { sessions_[kill.host]->kill(); },
                          [this](const Remind&) { remind(); }},
               action);
  }
  if (state_.phase != Launching::Phase::Starting) progress_.stop();
  arm();
  end_when_over();
}

// On a terminal a line says so all the time.
void Starter::remind() {
  if (!progress_.is_shown()) log_.info(reminder_text(state_, plan_));
}

std::string Starter::first_line(const HostNode& node) const {
  return to_line(Start{.protocol = kProtocol,
                       .arguments = node.arguments,
                       .environment = node.environment,
                       .directory = plan_.directory,
                       .host = node.name,
                       .label = node.label,
                       .secret = plan_.secret,
                       .report_file = plan_.report_file,
                       .columns = style_.columns,
                       .has_colour = style_.has_colour,
                       .utc_offset_s = style_.utc_offset_s});
}

void Starter::log_in(std::size_t host) {
  const HostNode& node = plan_.nodes[host];
  log_.debug("logging in host=" + node.name);
  sessions_[host] = std::make_unique<SshSession>(
      io_, buffer_, SshConsoles{.out = *out_, .err = err()},
      SshSpec{.argv = node.ssh_command,
              .environment = environment_,
              .name = node.name,
              .first_line = first_line(node),
              .stream = 1 + 3 * host},
      SshSession::Listener{.on_hello =
                               [this, host](const Hello& hello) {
                                 take(HelloCame{host, hello});
                               },
                           .on_end =
                               [this, host](const End& end) {
                                 take(EndCame{host, end});
                               },
                           .on_ended =
                               [this, host](int code, const std::string& words) {
                                 take(SessionEnded{host, code, words});
                               }});
  sessions_[host]->start();
}

void Starter::arm() {
  const std::optional<Time> when = deadline(state_);
  if (!when || is_over(state_)) {
    timer_.cancel();
    return;
  }
  timer_.expires_at(*when);
  timer_.async_wait([this](const error_code& ec) {
    if (!ec) take(Woken{});
  });
}

// The agents hear that this machine is there.
void Starter::tick() {
  if (is_over(state_)) return;
  ticks_.expires_after(agent::kLifelineTick);
  ticks_.async_wait([this](const error_code& ec) {
    if (ec) return;
    for (const auto& session : sessions_)
      if (session) session->say("");
    tick();
  });
}

void Starter::on_kill_now() {
  take(KillCame{});
  give_up_.expires_after(kConsoleAtMost);
  give_up_.async_wait([this](const error_code& ec) {
    if (ec) return;
    out_->stop();
    if (err_) err_->stop();
  });
}

void Starter::wake_all() {
  for (const auto& session : sessions_)
    if (session) session->wake();
}

void Starter::end_when_over() {
  if (!is_over(state_) || !out_->is_empty() || (err_ && !err_->is_empty())) return;
  signals_.stop();
  timer_.cancel();
  ticks_.cancel();
  give_up_.cancel();
}

}  // namespace

LaunchEnd run_starter(const HostPlan& plan, const std::vector<EnvironmentEntry>& environment,
                      const StarterStyle& style, const Log& log) {
  Starter starter(plan, environment, style, log);
  return starter.run();
}

}  // namespace drun::hosts
