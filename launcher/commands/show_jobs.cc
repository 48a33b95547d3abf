#include "launcher/commands/commands.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/stacks/evidence.h"
#include "launcher/base/words.h"
#include "launcher/commands/local_jobs.h"
#include "launcher/report/status_text.h"
#include "rendezvous/base/unique_fd.h"

namespace drun {
namespace {

// Absent: stdout is not a terminal, and lines are not cut.
std::optional<std::size_t> terminal_columns() {
  winsize size{};
  if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 ||
      size.ws_col == 0)
    return std::nullopt;
  return size.ws_col;
}

constexpr int kRefreshMs = 1000;

struct FoundJobs {
  std::vector<std::string> statuses{};
  std::vector<LocalAgent> silent{};  // agents that do not answer
  bool is_empty() const { return statuses.empty() && silent.empty(); }
};

FoundJobs find_jobs(const StatusCommand& command) {
  FoundJobs found;
  std::vector<LocalAgent> agents = agents_called(local_agents(), command.job);
  found.silent = silent(agents);
  agents = answering(std::move(agents));
  if (command.is_node)
    for (LocalAgent& agent : agents) found.statuses.push_back(std::move(agent.status));
  else
    found.statuses = job_statuses(agents);
  return found;
}

std::string shown(const StatusCommand& command, const std::vector<std::string>& statuses) {
  std::string text;
  for (const std::string& status : statuses) {
    if (!text.empty() && !command.is_json) text += '\n';
    if (command.is_json)
      text += status;
    else
      text += command.is_node ? status_text(status) : job_text(status);
  }
  return text;
}

void complain_of(const std::vector<LocalAgent>& silent, const char* command) {
  for (const LocalAgent& agent : silent)
    std::fprintf(stderr, "drun %s: %s\n", command, silent_text(agent).c_str());
}

bool print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return std::fflush(stdout) == 0;
}

// The signals that end the view are read instead of ending the process, so that the terminal is
// restored.
class EndSignals {
 public:
  EndSignals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    fd_ = UniqueFd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  // Whether one of them arrives within that time.
  bool arrives_in(int wait_ms) const {
    pollfd waited{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    return poll(&waited, 1, wait_ms) != 0;
  }

 private:
  UniqueFd fd_;
};

// A second screen without a cursor; the destructor returns to the first one.
class SecondScreen {
 public:
  SecondScreen() { print("\x1b[?1049h\x1b[?25l"); }
  ~SecondScreen() { print("\x1b[?25h\x1b[?1049l"); }
  SecondScreen(const SecondScreen&) = delete;
  SecondScreen& operator=(const SecondScreen&) = delete;
};

ScreenSize screen_size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return {};
  return {.columns = size.ws_col, .rows = size.ws_row};
}

// Until the jobs have ended, or a signal. The last status stays on the first screen.
// Returns whether a job was shown.
bool watch_on_terminal(const StatusCommand& command, bool has_color) {
  const EndSignals signals;
  StateHistory history;
  std::string text;
  {
    const SecondScreen screen;
    do {
      const FoundJobs found = find_jobs(command);
      if (found.is_empty()) break;
      for (const std::string& status : found.statuses) history.add(status);
      text = shown(command, found.statuses);
      for (const LocalAgent& agent : found.silent) text += silent_text(agent) + "\n";
      const ScreenSize size = screen_size();
      if (!print(repaint(text + history.text(size.columns, has_color), size))) break;
    } while (!signals.arrives_in(kRefreshMs));
  }
  print(text);
  return !text.empty();
}

// On a pipe or a plain terminal: one text after the other. Returns whether a job was shown.
bool watch_as_text(const StatusCommand& command) {
  bool has_shown = false;
  while (true) {
    const FoundJobs found = find_jobs(command);
    complain_of(found.silent, "status");
    has_shown = has_shown || !found.statuses.empty();
    if (found.is_empty() && !has_shown)
      std::fprintf(stderr, "drun status: %s\n", no_such_job(command.job).c_str());
    if (found.is_empty() || !print(shown(command, found.statuses)) || !command.is_live)
      return has_shown;
    poll(nullptr, 0, kRefreshMs);
  }
}

constexpr std::chrono::seconds kStacksLimit{20};  // agents answer within 12 s

std::string shown(const StatusNames& job, const std::string& answer, bool is_json) {
  const std::optional<agent::Evidence> evidence = agent::decode_evidence(answer);
  if (is_json) return evidence ? evidence_json(*evidence, job.run_id) : "";
  std::string text = printable(job.run_id) + "  agent " + std::to_string(job.agent_pid) + "\n";
  if (!evidence) return text + "  it does not answer\n";
  for (const std::string& line : evidence_lines(*evidence, 0))
    text += "  " + printable(line) + "\n";
  return text;
}

}  // namespace

int show_list(const ListCommand& command) {
  const std::vector<LocalAgent> agents = local_agents();
  std::string text;
  if (command.is_json) {
    for (const std::string& status : job_statuses(agents)) text += status;
  } else {
    text = job_table(job_rows(agents), terminal_columns());
  }
  std::fputs(text.c_str(), stdout);
  return 0;
}

int show_status(const StatusCommand& command) {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string_view(value == nullptr ? "" : value);
  };
  const bool is_dumb = variable("TERM").empty() || variable("TERM") == "dumb";
  const bool is_picture =
      command.is_live && !command.is_json && isatty(STDOUT_FILENO) == 1 && !is_dumb;
  const bool has_color = variable("NO_COLOR").empty();
  if (!is_picture) return watch_as_text(command) ? 0 : 1;
  if (watch_on_terminal(command, has_color)) return 0;
  std::fprintf(stderr, "drun status: %s\n", no_such_job(command.job).c_str());
  return 1;
}

int show_stacks(const StacksCommand& command) {
  const std::vector<LocalAgent> called = agents_called(local_agents(), command.job);
  const std::vector<LocalAgent> found = one_of_each_job(answering(called));
  complain_of(silent(called), "stacks");
  bool is_first = true;
  for (const auto& [job, status] : found) {
    const std::string answer = ask_agent("drun-stacks", job.agent_pid, kStacksLimit);
    if (!is_first && !command.is_json) std::fputs("\n", stdout);
    is_first = false;
    std::fputs(shown(job, answer, command.is_json).c_str(), stdout);
  }
  if (called.empty()) std::fprintf(stderr, "drun stacks: %s\n", no_such_job(command.job).c_str());
  return found.empty() ? 1 : 0;
}

}  // namespace drun
