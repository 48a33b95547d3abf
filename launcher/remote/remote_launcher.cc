#include "launcher/remote/remote_launcher.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "agent/output/console.h"
#include "agent/output/log_files.h"
#include "agent/output/progress.h"
#include "agent/process/lifeline.h"
#include "agent/process/scratch.h"
#include "agent/process/signals.h"
#include "agent/spawn/child_descriptors.h"
#include "agent/spawn/command.h"
#include "agent/workers/worker_stdin.h"
#include "launcher/hosts/local_nodes.h"
#include "launcher/remote/host_output.h"
#include "launcher/remote/local_network.h"
#include "launcher/remote/ssh_session.h"
#include "rendezvous/base/random_instance.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/asio.h"

namespace drun::hosts {
namespace {

// Reads the launcher's standard input for rank 0 (--stdin=rank0), but no more than rank 0's
// host has room for.
//
// O_NONBLOCK belongs to the open file description, which the shell shares, so it is not set.
// Instead an epoll instance waits for input. Files are not supported by epoll but never block. A
// terminal stays in line mode; Ctrl-D ends the input. An input that cannot be read counts as ended.
// stop() releases the event loop.
class LauncherInput {
 public:
  struct Listener {
    std::function<void(std::string_view)> on_bytes;
    std::function<void()> on_end;  // once
  };

  LauncherInput(asio::io_context& io, int fd, Listener listener)
      : fd_(fd), listener_(std::move(listener)), readiness_(io) {}
  LauncherInput(const LauncherInput&) = delete;
  LauncherInput& operator=(const LauncherInput&) = delete;

  // Allows reading `bytes` bytes from now on.
  void set_room(std::size_t bytes) {
    room_bytes_ = bytes;
    wait();
  }
  std::size_t room() const { return room_bytes_; }
  bool has_ended() const { return has_ended_; }
  void stop() {
    is_stopped_ = true;
    error_code ignored;
    readiness_.close(ignored);
  }

 private:
  // Called when rank 0 first has room for input.
  bool open() {
    if (readiness_.is_open() || is_file_) return true;
    UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{};
    event.events = EPOLLIN;
    if (!epoll) return false;
    if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd_, &event) != 0) {
      is_file_ = errno == EPERM;
      return is_file_;
    }
    error_code ec;
    readiness_.assign(epoll.get(), ec);
    if (!ec) epoll.release();
    return !ec;
  }

  void wait() {
    if (has_ended_ || is_stopped_ || is_waiting_ || room_bytes_ == 0) return;
    if (!open()) return end();
    is_waiting_ = true;
    const auto go_on = [this](const error_code& ec) {
      is_waiting_ = false;
      if (!ec && !is_stopped_) read_some();
    };
    if (is_file_)
      asio::post(readiness_.get_executor(), [go_on] { go_on({}); });
    else
      readiness_.async_wait(asio::posix::stream_descriptor::wait_read, go_on);
  }

  void read_some() {
    pollfd asked{.fd = fd_, .events = POLLIN, .revents = 0};
    // Another process may have read it.
    if (!is_file_ && ::poll(&asked, 1, 0) != 1) return wait();
    std::array<char, 32 * 1024> buffer{};
    const ssize_t got = ::read(fd_, buffer.data(), std::min(buffer.size(), room_bytes_));
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return wait();
    if (got <= 0) return end();
    room_bytes_ -= static_cast<std::size_t>(got);
    listener_.on_bytes(std::string_view(buffer.data(), static_cast<std::size_t>(got)));
    wait();
  }

  void end() {
    if (!std::exchange(has_ended_, true)) listener_.on_end();
  }

  int fd_;
  Listener listener_;
  asio::posix::stream_descriptor readiness_;
  bool is_file_ = false;
  bool is_waiting_ = false;
  bool has_ended_ = false;
  bool is_stopped_ = false;
  std::size_t room_bytes_ = 0;
};

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr std::size_t kStdinReadBytes = std::size_t{128} << 10;
// After a kill request, do not wait longer for a blocked console.
constexpr std::chrono::seconds kConsoleAtMost{1};
// The stream number of drun's log on the console. No session uses it.
constexpr std::uint64_t kOwnStream = std::numeric_limits<std::uint64_t>::max();

// 128 random bits: output of a login cannot contain them by accident.
std::string new_nonce() {
  std::string nonce;
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t bits = rendezvous::random_instance();
    for (int shift = 60; shift >= 0; shift -= 4) nonce += "0123456789abcdef"[bits >> shift & 15];
  }
  return nonce;
}

// The plan of a host, until it is sent.
struct Planning {
  std::optional<HostReport> report{};
  Lookups asked{};
  bool is_done = false;
};

class RemoteLauncher final : agent::Signals::Listener {
 public:
  RemoteLauncher(const HostPlan& plan, const HostFacts& own_facts, const Log& log);
  RemoteLauncher(const RemoteLauncher&) = delete;
  RemoteLauncher& operator=(const RemoteLauncher&) = delete;
  ~RemoteLauncher() override;
  LaunchEnd run();

 private:
  void on_terminate(int signal) override { take(SignalCame{signal}); }
  void on_kill_now() override;
  void on_pass_on(int signal) override { take(ForwardSignal{signal}); }

  void take(const Event& event);
  void log_in(std::size_t host);
  std::string first_line(std::size_t host, const std::string& nonce) const;
  void take_report(std::size_t host, HostReport&& report);
  void take_answers(std::size_t host, LookupAnswers&& answers);
  void plan_host(std::size_t host);
  void send_spec(std::size_t host, Plan&& plan);
  void say(std::size_t host, const std::string& line);
  void refuse(std::size_t host, const std::string& problem, int exit_code);
  HostReceiver& receiver_at(std::size_t host);
  SessionListener listener_of(std::size_t host);
  SshSpec spec_of(std::size_t host) const;
  Result<void> prepare();
  void prepare_lookups();
  Result<void> prepare_lines();
  Result<void> prepare_scratch();
  Result<void> prepare_network();
  void take_room(std::size_t host, std::size_t bytes);
  void send_input(std::string_view bytes);
  void remind();
  void arm();
  void tick();
  void wake_all();
  void end_when_over();
  const std::string& invoked_as() const { return plan_.options.invoked_as; }
  agent::Console& err() { return err_ ? *err_ : *out_; }
  bool is_held_up() {
    return out_->is_congested() || err().is_congested() || (lines_ && lines_->is_congested());
  }
  std::unique_ptr<agent::Console> make_console(int fd, const char* name);

  const HostPlan& plan_;
  asio::io_context io_{1};
  agent::Progress progress_{io_, STDERR_FILENO, [this](std::string_view bytes) {
                              if (own_lines_) own_lines_->draw(bytes);
                            }};
  Log log_;
  std::vector<std::string> environment_;
  asio::steady_timer timer_{io_};
  asio::steady_timer ticks_{io_};
  asio::steady_timer give_up_{io_};
  std::vector<char> buffer_;
  agent::ProgramStarter ssh_starter_{io_, agent::ChildDescriptors::kSlots};
  OwnProgram own_program_{io_, log_};
  std::unique_ptr<agent::Console> out_;
  std::unique_ptr<agent::Console> err_;  // null: the same file as out_
  std::optional<agent::OwnLines> own_lines_;
  std::unique_ptr<HostLines> lines_;  // null: lines arrive as text
  LauncherInput input_;
  std::optional<std::size_t> reader_;  // for input_: the host of rank 0
  agent::Signals signals_;
  std::optional<LocalNetwork> network_;
  std::string scratch_;  // of all local nodes; empty: their own choice
  Launching state_;
  Time last_output_{};  // when a frame arrived last, or output waited for the console
  const HostFacts& own_facts_;
  std::vector<Planning> plannings_;
  std::size_t planned_ = 0;  // number of complete plans, and of their workers
  std::int64_t all_workers_ = 0;
  std::vector<std::unique_ptr<HostReceiver>> receivers_;  // null: not started
  std::vector<std::unique_ptr<SshSession>> sessions_;
};

RemoteLauncher::RemoteLauncher(const HostPlan& plan, const HostFacts& own_facts, const Log& log)
    : plan_(plan),
      log_(progress_.around(log.via([this](std::string_view line) {
        if (own_lines_) return own_lines_->say(line);
        agent::write_all(STDERR_FILENO, std::string(line) + "\n");
      }))),
      environment_(agent::to_lines(own_facts.environment)),
      buffer_(kStdinReadBytes),
      input_(io_, STDIN_FILENO,
             {.on_bytes = [this](std::string_view bytes) { send_input(bytes); },
              .on_end = [this] { send_input({}); }}),
      signals_(io_, plan.termination_signals, *this),
      state_(launching_of(plan.nodes.size(), plan.fanout, plan.options.hosts.login_timeout)),
      own_facts_(own_facts),
      plannings_(plan.nodes.size()),
      receivers_(plan.nodes.size()),
      sessions_(plan.nodes.size()) {
  // On this machine, limiting the number of concurrent starts gains nothing.
  if (plan.local_nodes) {
    state_.fanout = static_cast<int>(plan.nodes.size());
    state_.link = "its agent";
  }
  if (plan.nodes_wanted) state_.least_hosts = plan.nodes_wanted->min;
  state_.seats = plan.seats;
  state_.endpoints = plan.endpoints;
}

RemoteLauncher::~RemoteLauncher() {
  std::error_code ignored;
  if (!scratch_.empty()) std::filesystem::remove_all(scratch_, ignored);
}

std::unique_ptr<agent::Console> RemoteLauncher::make_console(int fd, const char* name) {
  return std::make_unique<agent::Console>(
      io_, log_, fd, name,
      agent::Console::Listener{.on_room = [this] { wake_all(); },
                               .on_empty = [this] { end_when_over(); }});
}

LaunchEnd RemoteLauncher::run() {
  agent::raise_descriptor_limit();  // three per host
  signals_.start();                 // also ignores SIGPIPE, as the consoles require
  out_ = make_console(STDOUT_FILENO, "stdout");
  if (!agent::is_same_file(STDOUT_FILENO, STDERR_FILENO))
    err_ = make_console(STDERR_FILENO, "stderr");
  own_lines_.emplace(err(), log_, kOwnStream);
  if (Result<void> prepared = prepare(); !prepared) {
    signals_.stop();
    return launch_end(prepared.error(), plan_, invoked_as());
  }
  progress_.start([this, began = Clock::now()] {
    return progress_text(state_, plan_, std::chrono::floor<Milliseconds>(Clock::now() - began));
  });
  take(Began{});
  tick();
  io_.run();
  if (lines_) lines_->finish(state_.phase == Launching::Phase::Running);
  LaunchEnd end = launch_end(state_, plan_, invoked_as());
  for (const HostProgress& host : state_.hosts)
    if (host.end) end.events += host.end->events;
  end.has_lost_stdout = out_->has_failed();
  return end;
}

Result<void> RemoteLauncher::prepare() {
  prepare_lookups();
  if (Result<void> prepared = prepare_network(); !prepared) return prepared;
  if (Result<void> prepared = prepare_scratch(); !prepared) return prepared;
  return prepare_lines();
}

Result<void> RemoteLauncher::prepare_scratch() {
  if (!plan_.local_nodes) return {};
  Result<std::string> made = agent::make_scratch_directory("nodes");
  if (!made) return made.error();
  scratch_ = *std::move(made);
  return {};
}

Result<void> RemoteLauncher::prepare_network() {
  if (!plan_.local_nodes || !plan_.local_nodes->has_networks) return {};
  std::vector<LocalNetwork::Node> nodes;
  for (const HostNode& node : plan_.nodes) nodes.push_back({node.address});
  Result<LocalNetwork> network = LocalNetwork::make(nodes, kNodeInterface, kNodePrefixBits);
  if (!network) return network.error();
  network_ = *std::move(network);
  return {};
}

Result<void> RemoteLauncher::prepare_lines() {
  if (!plan_.lines) return {};
  lines_ =
      std::make_unique<HostLines>(io_, log_, *plan_.lines, HostConsoles{*out_, err()},
                                  HostLines::Listener{.on_room = [this] { wake_all(); },
                                                      .on_empty = [this] { end_when_over(); }});
  return lines_->prepare(plan_.run_id);
}

void RemoteLauncher::take(const Event& event) {
  for (const Action& action : step(state_, event, Clock::now())) {
    std::visit(Overloaded{[this](const LogIn& login) { log_in(login.host); },
                          [this](const SendLine& say) { sessions_[say.host]->say(say.line); },
                          [this](const CloseStdin& go) { sessions_[go.host]->let_go(); },
                          [this](const KillSsh& kill) { sessions_[kill.host]->kill(); },
                          [this](const RemindOfHosts&) { remind(); },
                          [this](const ContinueWithout& without) {
                            log_.warning(going_without_text(without, plan_));
                          }},
               action);
  }
  if (state_.phase != Launching::Phase::Starting) progress_.stop();
  arm();
  end_when_over();
}

// On a terminal the progress line shows the same all the time.
void RemoteLauncher::remind() {
  if (!progress_.is_shown()) log_.info(reminder_text(state_, plan_));
}

// May block on file systems.
void RemoteLauncher::prepare_lookups() {
  for (std::size_t host = 0; host < plan_.nodes.size(); ++host) {
    const bool is_same = host > 0 && plan_.nodes[host].programs == plan_.nodes[host - 1].programs;
    plannings_[host].asked =
        is_same ? plannings_[host - 1].asked : expected_lookups(plan_, host, own_facts_);
  }
}

std::string RemoteLauncher::first_line(std::size_t host, const std::string& nonce) const {
  const HostNode& node = plan_.nodes[host];
  Start start{.nonce = nonce,
              .directory = plan_.directory,
              .devices = {},
              .cpus = node.cpus,
              .scratch = scratch_,
              .lookups = plannings_[host].asked};
  for (const EnvironmentEntry& entry : node.environment)
    if (names_devices(entry.first)) start.devices.push_back(entry);
  return to_text(start) + "\n";
}

void RemoteLauncher::refuse(std::size_t host, const std::string& problem, int exit_code) {
  plannings_[host] = {.report = {}, .asked = {}, .is_done = true};
  take(HelloCame{host, Hello{.problem = problem, .exit_code = exit_code}});
}

void RemoteLauncher::say(std::size_t host, const std::string& line) {
  if (line.size() > kMostLineBytes)
    return refuse(host, "the plan of this node has over 4 MiB; start fewer workers", kUsage);
  sessions_[host]->say(line);
}

void RemoteLauncher::take_report(std::size_t host, HostReport&& report) {
  Planning& planning = plannings_[host];
  const bool is_awaited = state_.hosts[host].state == HostState::LoggingIn;
  if (!is_awaited || planning.report || planning.is_done) return;
  LookupAnswers answers = std::exchange(report.answers, {});
  planning.report = std::move(report);
  take_answers(host, std::move(answers));
}

void RemoteLauncher::take_answers(std::size_t host, LookupAnswers&& answers) {
  Planning& planning = plannings_[host];
  if (!planning.report) return;
  LookupAnswers& known = planning.report->answers;
  for (const std::string& path : planning.asked.paths) {
    const auto found = answers.files.find(path);
    if (found == answers.files.end())
      return refuse(host, "its agent has not looked up " + path, kRendezvousRefused);
    known.files.insert(*found);
  }
  if (planning.asked.has_topology) {
    known.topology = std::move(answers.topology);
    known.topology_problem = std::move(answers.topology_problem);
    if (!known.topology && known.topology_problem.empty())
      known.topology_problem = "cannot read the topology of this host";
  }
  plan_host(host);
}

// Asks the host until its plan is complete.
void RemoteLauncher::plan_host(std::size_t host) {
  Planning& planning = plannings_[host];
  auto step = plan_node(plan_, host, *planning.report);
  if (!step)
    return refuse(host, step.error().message, exit_code(step.error(), ExitCodeStyle::Drun));
  if (auto* const lookups = std::get_if<Lookups>(&*step)) {
    planning.asked = std::move(*lookups);
    return say(host, to_text(planning.asked));
  }
  Plan& made = std::get<Plan>(*step);
  if (made.cannot_start)
    return refuse(host, made.cannot_start->message, exit_code(made.cannot_start->status));
  planning.is_done = true;
  all_workers_ += made.agent.join.local_world_size;
  const bool is_last = ++planned_ == plan_.nodes.size();
  if (is_last && !plan_.nodes_wanted) {
    const Result<void> fits = check_ranks(plan_, all_workers_);
    if (!fits) return take(JobRefused{fits.error()});
  }
  send_spec(host, std::move(made));
}

void RemoteLauncher::send_spec(std::size_t host, Plan&& plan) {
  const auto& endpoints = plan_.endpoints;
  NodeSpec spec{.plan = std::move(plan),
                .style = {.invoked_as = invoked_as(),
                          .has_color = own_facts_.has_terminal && !variable(own_facts_, "NO_COLOR"),
                          .columns = own_facts_.columns,
                          .utc_offset = own_facts_.utc_offset,
                          .log_directory = lines_ ? lines_->place() : "",
                          .report_file = plan_.report_file},
                .removed_variables = {},
                .listens = std::find(endpoints.begin(), endpoints.end(), host) != endpoints.end(),
                .has_own_address = plan_.has_own_address,
                .has_master_port = plan_.master_port != 0};
  remove_own_variables(spec, plannings_[host].report->facts.environment);
  plannings_[host].report.reset();
  say(host, to_text(std::move(spec)));
}

SshSpec RemoteLauncher::spec_of(std::size_t host) const {
  const HostNode& node = plan_.nodes[host];
  const std::string nonce = new_nonce();
  return {.argv = node.ssh_command,
          .network_fd = network_ ? std::optional(network_->of_node(host)) : std::nullopt,
          .is_ssh = !plan_.local_nodes,
          .environment = environment_,
          .name = node.name,
          .first_line = first_line(host, nonce),
          .nonce = nonce};
}

void RemoteLauncher::log_in(std::size_t host) {
  log_.debug((plan_.local_nodes ? "starting the agent of host=" : "logging in host=") +
             plan_.nodes[host].name);
  sessions_[host] = std::make_unique<SshSession>(io_, SshMeans{buffer_, ssh_starter_, own_program_},
                                                 spec_of(host), listener_of(host));
  sessions_[host]->start();
}

HostReceiver& RemoteLauncher::receiver_at(std::size_t host) {
  auto& receiver = receivers_[host];
  if (receiver) return *receiver;
  HostReceiver::Listener listener{
      .on_report = [this, host](HostReport&& report) { take_report(host, std::move(report)); },
      .on_answers = [this,
                     host](LookupAnswers&& answers) { take_answers(host, std::move(answers)); },
      .on_hello =
          [this, host](const Hello& hello) {
            take(HelloCame{host, hello});
          },
      .on_end =
          [this, host](const End& end) {
            take(EndCame{host, end});
          }};
  if (plan_.gives_stdin)
    listener.on_room = [this, host](std::size_t bytes) { take_room(host, bytes); };
  if (lines_)
    listener.on_lines = [this, host](std::string_view payload) {
      lines_->take(host, plan_.nodes[host].name, payload);
    };
  receiver = std::make_unique<HostReceiver>(HostConsoles{.out = *out_, .err = err()},
                                            plan_.nodes[host].name,
                                            1 + HostReceiver::kStreams * host, std::move(listener));
  return *receiver;
}

SessionListener RemoteLauncher::listener_of(std::size_t host) {
  HostReceiver& receiver = receiver_at(host);
  return {.on_frame =
              [this, &receiver](const agent::Frame& frame) {
                last_output_ = Clock::now();
                receiver.take(frame);
              },
          .on_stray = [&receiver](bool is_stderr,
                                  std::string_view text) { receiver.take_stray(is_stderr, text); },
          .on_copy = [this, host] { take(CopyBegan{host}); },
          .is_held_up = [this] { return is_held_up(); },
          .on_ended =
              [this, host, &receiver](int code, const std::string& reason) {
                const std::string words = receiver.end();
                if (lines_) lines_->take_end(host);
                take(SessionEnded{host, code, words.empty() ? reason : words});
              }};
}

// After a restart rank 0 may be on another host; input that the previous one has not read is lost.
void RemoteLauncher::take_room(std::size_t host, std::size_t bytes) {
  const bool is_new = std::exchange(reader_, host) != host;
  if (is_new && input_.has_ended()) return send_input({});
  input_.set_room(bytes + (is_new ? 0 : input_.room()));
}

// Empty `bytes` mean end of input.
void RemoteLauncher::send_input(std::string_view bytes) {
  SshSession& session = *sessions_[*reader_];
  if (bytes.empty()) return session.send(agent::kInputEnd);
  session.send(agent::input_line(bytes.size()));
  session.send(bytes);
}

void RemoteLauncher::arm() {
  const std::optional<Time> when = deadline(state_);
  if (!when || is_over(state_)) {
    timer_.cancel();
    return;
  }
  timer_.expires_at(*when);
  timer_.async_wait([this](const error_code& ec) {
    if (ec) return;
    if (is_held_up()) last_output_ = Clock::now();
    take(TimerExpired{last_output_});
  });
}

// A heartbeat for the agents.
void RemoteLauncher::tick() {
  if (is_over(state_)) return;
  ticks_.expires_after(agent::kLifelineTick);
  ticks_.async_wait([this](const error_code& ec) {
    if (ec) return;
    for (const auto& session : sessions_)
      if (session) session->say("");
    tick();
  });
}

void RemoteLauncher::on_kill_now() {
  take(KillCame{});
  give_up_.expires_after(kConsoleAtMost);
  give_up_.async_wait([this](const error_code& ec) {
    if (ec) return;
    out_->stop();
    if (err_) err_->stop();
    if (lines_) lines_->give_up();
    wake_all();
  });
}

void RemoteLauncher::wake_all() {
  for (const auto& session : sessions_)
    if (session) session->wake();
  if (lines_) lines_->wake();
  if (own_lines_) own_lines_->note_room();
}

void RemoteLauncher::end_when_over() {
  if (!is_over(state_) || !out_->is_empty() || (err_ && !err_->is_empty())) return;
  if (lines_ && !lines_->is_empty()) return;
  signals_.stop();
  input_.stop();
  timer_.cancel();
  ticks_.cancel();
  give_up_.cancel();
}

}  // namespace

LaunchEnd run_launcher(const HostPlan& plan, const HostFacts& own_facts, const Log& log) {
  RemoteLauncher launcher(plan, own_facts, log);
  return launcher.run();
}

}  // namespace drun::hosts
