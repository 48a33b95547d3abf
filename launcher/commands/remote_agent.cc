// The agent's side of --hosts:
//
//   Start -> directory, facts -> HostReport -> NodeSpec -> Hello -> Go -> the job -> End
//
// Start must arrive within kStartAtMost. The other messages have no timeout, because the launcher
// waits for all hosts. A line has at most kMostLineBytes. End of file ends the agent at any time.

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "agent/output/host_channel.h"
#include "agent/process/guardian.h"
#include "agent/process/scratch.h"
#include "agent/supervise/agent.h"
#include "launcher/base/version.h"
#include "launcher/commands/commands.h"
#include "launcher/facts/host.h"
#include "launcher/hosts/node_plan.h"
#include "launcher/plan/doctor.h"
#include "launcher/plan/plan.h"
#include "launcher/remote/agent_protocol.h"
#include "launcher/remote/meeting.h"
#include "launcher/report/report.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/endpoint.h"
#include "rendezvous/net/listener.h"

namespace drun::hosts {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kStartAtMost{60};

// Reads lines from a descriptor before there is an event loop. Blocks. Input after the last line
// stays available to the next reader. Errors: Closed at end of file, Timeout, Refused if a line is
// too long, System.
class LineReader {
 public:
  LineReader(int fd, std::size_t most_bytes) : fd_(fd), most_bytes_(most_bytes) {}

  // Returns a line without its newline. Without `at_most` there is no timeout.
  Result<std::string> read(std::optional<std::chrono::milliseconds> at_most) {
    std::optional<Clock::time_point> deadline;
    if (at_most) deadline = Clock::now() + *at_most;
    for (std::size_t seen = 0;;) {
      const std::size_t end = held_.find('\n', seen);
      if (end != held_.npos) {
        std::string line = held_.substr(0, end);
        held_.erase(0, end + 1);
        return line;
      }
      seen = held_.size();
      if (seen > most_bytes_)
        return Error{ErrorCode::Refused, "a line over " + std::to_string(most_bytes_) + " bytes"};
      if (Result<void> got = read_some(deadline); !got) return got.error();
    }
  }

  std::string take_rest() { return std::move(held_); }

 private:
  Result<void> read_some(std::optional<Clock::time_point> deadline) {
    int wait_ms = -1;
    if (deadline) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(*deadline - Clock::now());
      wait_ms = std::max(0, static_cast<int>(left.count()));
    }
    pollfd asked{.fd = fd_, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&asked, 1, wait_ms);
    if (ready < 0 && errno == EINTR) return {};
    if (ready < 0) return system_error("wait for standard input", errno);
    if (ready == 0) return Error{ErrorCode::Timeout, "nothing came in time"};
    std::array<char, 64 * 1024> buffer{};
    const ssize_t got = ::read(fd_, buffer.data(), buffer.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return {};
    if (got < 0) return system_error("read standard input", errno);
    if (got == 0) return Error{ErrorCode::Closed, "standard input has ended"};
    held_.append(buffer.data(), static_cast<std::size_t>(got));
    return {};
  }

  int fd_;
  std::size_t most_bytes_;
  std::string held_;
};

constexpr std::chrono::seconds kWriteAtMost{30};

// Writes all of `text`, also to a non-blocking descriptor (sshd may pass one). Gives up after
// kWriteAtMost without progress.
void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
      continue;
    }
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno != EAGAIN) return;
    pollfd asked{.fd = fd, .events = POLLOUT, .revents = 0};
    const auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(kWriteAtMost);
    if (::poll(&asked, 1, static_cast<int>(wait.count())) == 0) return;
  }
}

// Takes over ssh's standard output as a close-on-exec descriptor, and redirects fd 1 to standard
// error.
Result<UniqueFd> take_channel() {
  UniqueFd channel(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  if (!channel || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
    return system_error("duplicate standard output", errno);
  return channel;
}

class Channel {
 public:
  Channel(UniqueFd fd, std::string nonce) : fd_(std::move(fd)), nonce_(std::move(nonce)) {}

  int fd() const { return fd_.get(); }
  // Sends a control frame; the preamble precedes the first one.
  void send(const Message& message) {
    const std::string text = to_text(message);
    if (text.size() <= kMostLineBytes) return write_frame(text);
    decline("the facts of this host, such as its environment, have over 4 MiB", kSystemError);
  }
  int decline(const std::string& problem, int code) {
    send(Hello{.problem = problem, .exit_code = code});
    return code;
  }
  // `unfinished`: the rest of the previous frame.
  void end(const End& end, const std::string& unfinished) {
    std::string text = to_text(end);
    if (text.size() > kMostLineBytes) text = to_text(End{end.exit_code, end.text, end.report, {}});
    if (text.size() > kMostLineBytes) text = to_text(End{end.exit_code, end.text, {}, {}});
    write_all(fd_.get(), unfinished);
    write_frame(text);
  }

 private:
  void write_frame(const std::string& text) {
    const std::string start = nonce_.empty() ? "" : agent::preamble(std::exchange(nonce_, {}));
    write_all(fd_.get(), start + agent::to_frame(agent::FrameType::Control, text));
  }

  UniqueFd fd_;
  std::string nonce_;  // empty: the preamble has been sent
};

// For a launcher that cannot read frames of this version.
int decline_in_words(const std::string& problem) {
  std::fprintf(stderr, "drun: %s\n", problem.c_str());
  return kRendezvousRefused;
}

int decline_version() {
  return decline_in_words(std::string("another version of drun is installed here (") + kVersion +
                          "); install the same on all hosts");
}

// Applies the variables, CPUs and directory of `start`. Returns a Hello with the problem, if any.
std::optional<Hello> enter(const Start& start) {
  for (const auto& [name, value] : start.devices) {
    if (!names_devices(name) || ::setenv(name.c_str(), value.c_str(), 1) != 0)
      return Hello{.problem = "cannot set the variable \"" + name + "\"", .exit_code = kUsage};
  }
  // Must precede the detection of this process's CPUs.
  if (!start.cpus.empty()) {
    if (Result<void> bound = set_affinity(start.cpus); !bound)
      return Hello{.problem = bound.error().message, .exit_code = kSystemError};
  }
  if (::chdir(start.directory.c_str()) == 0) return std::nullopt;
  return Hello{.problem = "no folder " + start.directory + " here: " + system_message(errno) +
                          "; start the job in one that all hosts have",
               .exit_code = kNotFound};
}

bool could_not_reach(const Outcome& outcome) {
  const auto* not_run = std::get_if<NotRun>(&outcome.ending);
  return not_run != nullptr && not_run->error.code == ErrorCode::Unreachable;
}

// If this agent may coordinate the job, opens the listening sockets and returns their address.
Result<Place> open_place(JoinSpec& join, const NodeSpec& spec, const HostFacts& host) {
  Place place;
  if (!spec.listens) return place;
  const Endpoint& endpoint = join.own_seats.empty() ? join.endpoint : join.seats[join.own_seats[0]];
  rendezvous::ListenSpec listen{.port = endpoint.port};
  if (spec.has_own_address && is_loopback(endpoint.host)) {
    listen.loopback_only = true;
    if (endpoint.host != "localhost") listen.loopback_host = endpoint.host;
  }
  Result<rendezvous::ListenSockets> sockets = rendezvous::open_listen_sockets(listen);
  if (!sockets) return sockets.error();
  place.port = sockets->port;
  for (rendezvous::ListenSocket& socket : sockets->sockets)
    join.listening.push_back({.fd = socket.fd.release(), .is_v6 = socket.is_v6});
  place.addresses =
      addresses_to_report({.ssh_connection = variable(host, "SSH_CONNECTION").value_or(""),
                           .interfaces = host.interfaces,
                           .host_name = host.hostname});
  if (join.store_host != StoreHost::Worker || spec.has_master_port) return place;
  // Rank 0 binds the port itself; it can only be checked that the port is free now.
  const Result<rendezvous::ListenSockets> free = rendezvous::open_listen_sockets({});
  if (!free) return free.error();
  place.master_port = free->port;
  return place;
}

// Runs the job; its outcome is sent to the launcher, which reports it.
int run(const NodeSpec& spec, const std::string& scratch, Channel& channel) {
  const Plan& plan = spec.plan;
  const std::string& invoked_as = spec.style.invoked_as;
  const Log log = job_log(plan, invoked_as, plan.agent.host);
  for (const std::string& note : plan.notes) log.debug(note);
  for (const std::string& warning : plan.warnings) log.warning(warning);
  const Result<int> code = agent::run_guarded([&] {
    agent::set_scratch_parent(scratch);
    const agent::AgentEnd ended = agent::run_agent(plan.agent, log);
    ReportStyle style = spec.style;
    if (!plan.agent.output.gathers_by_channel) style.log_directory = ended.log_directory;
    style.timeouts = ended.timeouts;
    style.has_shown_stderr = has_shown_stderr(plan.agent, ended);
    const bool has_printed = plan.is_doctor && is_verdict(ended.outcome);
    End end{.exit_code = exit_code(ended.outcome, plan.exit_codes),
            .text = has_printed ? std::string() : report_text(ended.outcome, style),
            .report = {},
            .could_not_reach = could_not_reach(ended.outcome),
            .events = ended.events};
    end.report = report_for_file(style.report_file, ended.outcome, end.exit_code,
                                 plan.agent.worker.placements, style, ended.phases);
    channel.end(end, ended.unfinished_frame);
    return end.exit_code;
  });
  if (code) return *code;
  channel.end(
      {exit_code(code.error(), plan.exit_codes), error_text(invoked_as, code.error()), {}, {}}, "");
  return exit_code(code.error(), plan.exit_codes);
}

}  // namespace

int run_from_stdin() {
  std::signal(SIGPIPE, SIG_IGN);
  LineReader input(STDIN_FILENO, kMostLineBytes);
  const Result<std::string> line = input.read(kStartAtMost);
  if (!line) {
    std::fprintf(stderr, "drun: --from-stdin is what drun --hosts starts on other machines: %s\n",
                 line.error().message.c_str());
    return kUsage;
  }
  Result<UniqueFd> fd = take_channel();
  if (!fd) return decline_in_words(fd.error().message);
  const Result<Message> first = parse(*line);
  const Start* const start = first ? std::get_if<Start>(&*first) : nullptr;
  if (start == nullptr) return decline_version();
  Channel channel(*std::move(fd), start->nonce);
  if (const auto problem = enter(*start))
    return channel.decline(problem->problem, problem->exit_code);
  const HostFacts host = look_at_host();
  channel.send(HostReport{.facts = host, .answers = look_up(start->lookups, host)});
  std::optional<NodeSpec> spec;
  for (;;) {
    const Result<std::string> word = input.read(std::nullopt);
    if (!word) return 0;  // the launcher has canceled the job or exited
    if (word->empty()) continue;
    Result<Message> message = parse(*word);
    if (!message) return channel.decline(message.error().message, kRendezvousRefused);
    if (const auto* const lookups = std::get_if<Lookups>(&*message)) {
      channel.send(look_up(*lookups, host));
    } else if (auto* const sent = std::get_if<NodeSpec>(&*message)) {
      spec = std::move(*sent);
      add_own_variables(*spec, host.environment);
      Result<Place> place = open_place(spec->plan.agent.join, *spec, host);
      if (!place) return channel.decline(place.error().message, kSystemError);
      channel.send(Hello{.place = *std::move(place), .machine = host.machine_id});
    } else if (const auto* const go = std::get_if<Go>(&*message); go != nullptr && spec) {
      settle_places(spec->plan.agent.join, *go, spec->has_own_address);
      break;
    }
  }
  spec->plan.agent.output.channel_fd = channel.fd();
  spec->plan.agent.lifeline = input.take_rest();
  return run(*spec, start->scratch, channel);
}

}  // namespace drun::hosts
