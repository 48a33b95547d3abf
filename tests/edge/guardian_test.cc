#include "agent/process/guardian.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <map>
#include <thread>

#include "agent/process/descendants.h"
#include "agent/spawn/spawn.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/pipe.h"
#include "tests/support/places.h"
#include "tests/support/process.h"

namespace drun::agent {
namespace {

// drun promises one second, and tests/bench/orphans checks that figure. This test only checks that
// the processes end, with room for a busy machine.
constexpr std::chrono::seconds kGoneWithin{15};

using std::chrono::milliseconds;
using test::Pipe;
using testing::eventually;
using testing::processes_with;

// A launcher with a guardian (tests/workers/guarded_tree.cc). All its processes carry a tag.
class Guarded {
 public:
  explicit Guarded(const std::vector<std::string>& arguments, const std::string& prefix = "") {
    static int count = 0;
    tag_ = std::to_string(getpid()) + "-" + std::to_string(++count);
    Command command{.environment = {{"DRUN_TEST_TAG", tag_}, {"PATH", "/usr/bin:/bin"}}};
    std::string line = prefix + " exec " + testing::built("workers/guarded_tree");
    for (const std::string& argument : arguments) line += " '" + argument + "'";
    command.argv = {"/bin/sh", "-c", line};
    command.stdout_fd = output.writing_end();
    spawned_ = std::get<Spawned>(spawn(command));
    output.close_writing_end();
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() {
    for (const pid_t pid : all()) kill(pid, SIGKILL);
    if (!is_reaped_) wait();
    close(spawned_.pidfd);
  }

  ExitStatus wait() {
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(spawned_.pid), &info, WEXITED);
    is_reaped_ = true;
    return decode({.how = info.si_code, .status = info.si_status});
  }
  std::vector<pid_t> all() const { return processes_with("DRUN_TEST_TAG=" + tag_); }
  bool is_gone_within(milliseconds limit) const {
    return eventually([this] { return all().empty(); }, limit);
  }
  // Guardian, agent and seven processes per worker.
  bool is_up(std::size_t workers) const {
    return eventually([&] { return all().size() == 2 + 7 * workers; }, milliseconds(10'000));
  }
  pid_t guardian() const { return spawned_.pid; }
  std::vector<pid_t> children_of(pid_t parent) const {
    std::vector<pid_t> children;
    const Descendants found;
    for (const ProcessStat& process : found.all())
      if (process.parent == parent) children.push_back(process.pid);
    return children;
  }
  pid_t agent() const {
    const std::vector<pid_t> children = children_of(guardian());
    REQUIRE(children.size() == 1);
    return children[0];
  }

  Pipe output;

 private:
  std::string tag_;
  Spawned spawned_;
  bool is_reaped_ = false;
};

const std::string kTree = testing::built("workers/tree");

void stop_and_wait(pid_t pid) {
  kill(pid, SIGSTOP);
  REQUIRE(eventually(
      [pid] {
        const Descendants found;
        for (const ProcessStat& process : found.all())
          if (process.pid == pid) return process.state == 'T';
        return false;
      },
      milliseconds(5'000)));
}

}  // namespace

TEST_CASE(
    "the guardian ends with its agent's exit code, and the reader of its output sees the end") {
  Guarded good({"2", "1000", "/bin/true"});
  CHECK(good.output.read_all() == "succeeded\ngone leftovers=0 unkillable=0\n");
  CHECK(good.wait() == ExitStatus(Exited{0}));
  Guarded bad({"2", "1000", "/bin/sh", "-c", "exit 42"});
  CHECK(bad.wait() == ExitStatus(Exited{42}));
}

TEST_CASE("no process is left after SIGKILL of the guardian or the agent") {
  const std::string victim = GENERATE("guardian", "agent");
  const std::string stopped = GENERATE("nobody", "guardian", "agent");
  CAPTURE(victim, stopped);
  Guarded run({"2", "60000", kTree, "stay"});
  REQUIRE(run.is_up(2));
  const std::map<std::string, pid_t> pids{{"guardian", run.guardian()}, {"agent", run.agent()}};
  if (stopped != "nobody") stop_and_wait(pids.at(stopped));
  kill(pids.at(victim), SIGKILL);
  REQUIRE(run.is_gone_within(kGoneWithin));
  CHECK(run.wait() ==
        (victim == "guardian" ? ExitStatus(Killed{.signal = SIGKILL}) : ExitStatus(Exited{137})));
}

TEST_CASE("no process is left after SIGKILL of the agent while the console does not take a line") {
  testing::TemporaryDirectory directory;
  const std::string console = directory / "console";
  REQUIRE(mkfifo(console.c_str(), 0600) == 0);
  const UniqueFd stalled(open(console.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  const std::string page(PIPE_BUF, '.');
  while (write(stalled.get(), page.data(), page.size()) > 0) {
  }
  // The workers' own stderr is elsewhere: only the guardian has lines for the console.
  Guarded run({"1", "60000", "/bin/sh", "-c", "exec 2>/dev/null; exec '" + kTree + "' stay"},
              "exec 2> '" + console + "';");
  REQUIRE(run.is_up(1));
  kill(run.agent(), SIGKILL);
  REQUIRE(run.is_gone_within(kGoneWithin));
  CHECK(run.wait() == ExitStatus(Exited{137}));
}

TEST_CASE("no process is left after SIGKILL at any moment of the start") {
  for (int moment = 0; moment < 24; ++moment) {
    CAPTURE(moment);
    Guarded run({"2", "60000", kTree, "stay"});
    // From before the fork of the agent until about when all processes are running.
    std::this_thread::sleep_for(std::chrono::microseconds(700 * (moment / 2)));
    const std::vector<pid_t> children = run.children_of(run.guardian());
    const bool is_agents_turn = moment % 2 == 1 && !children.empty();
    kill(is_agents_turn ? children[0] : run.guardian(), SIGKILL);
    REQUIRE(run.is_gone_within(kGoneWithin));
  }
}

TEST_CASE("SIGKILL of a worker ends the job, including descendants that ignore SIGTERM") {
  Guarded run({"2", "100", kTree, "stay"});
  REQUIRE(run.is_up(2));
  const std::vector<pid_t> children = run.children_of(run.agent());
  kill(*std::min_element(children.begin(), children.end()), SIGKILL);
  REQUIRE(run.is_gone_within(kGoneWithin));
  CHECK(run.wait() == ExitStatus(Exited{137}));
}

TEST_CASE("a termination signal to the guardian ends the job with 128 plus the signal") {
  const int signal = GENERATE(SIGTERM, SIGINT, SIGHUP, SIGQUIT);
  Guarded run({"1", "100", kTree, "stay"});
  REQUIRE(run.is_up(1));
  kill(run.guardian(), signal);
  CHECK(run.wait() == ExitStatus(Exited{128 + signal}));
  CHECK(run.all().empty());
}

TEST_CASE("a signal that drun does not handle ends the agent and the job") {
  Guarded run({"1", "60000", kTree, "stay"});
  REQUIRE(run.is_up(1));
  kill(run.guardian(), SIGALRM);
  CHECK(run.wait() == ExitStatus(Exited{128 + SIGALRM}));
  CHECK(run.all().empty());
}

TEST_CASE("the guardian keeps ignoring signals that were ignored at its start") {
  Guarded run({"1", "100", kTree, "stay"}, "trap '' HUP;");
  REQUIRE(run.is_up(1));
  kill(run.guardian(), SIGHUP);
  kill(run.guardian(), SIGTERM);
  CHECK(run.wait() == ExitStatus(Exited{128 + SIGTERM}));
}

TEST_CASE("SIGUSR1 is passed on and does not end the job") {
  Guarded run({"1", "1000", "/bin/sh", "-c",
               "exec 2>&-; trap \"echo got; exit 5\" USR1; echo up; while :; do sleep 0.01; done"});
  CHECK(run.output.read_line() == "up");
  kill(run.guardian(), SIGUSR1);
  CHECK(run.output.read_line() == "got");
  CHECK(run.wait() == ExitStatus(Exited{5}));
}

TEST_CASE("children from before the guardian started are left running") {
  const std::string end = GENERATE("by itself", "killed");
  Guarded run({"1", "1000", "/bin/sleep", end == "killed" ? "1000" : "0"}, "sleep 1000 & echo $!;");
  const pid_t sidecar = std::stoi(run.output.read_line());
  if (end == "killed") {
    REQUIRE(eventually([&] { return run.all().size() == 4; }, milliseconds(5'000)));
    for (const pid_t child : run.children_of(run.guardian()))
      if (child != sidecar) kill(child, SIGKILL);
  }
  run.wait();
  CHECK(run.all() == std::vector<pid_t>{sidecar});
}

}  // namespace drun::agent
