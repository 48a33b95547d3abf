#include "agent/stacks/stacks.h"

#include <unistd.h>

#include <future>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/event_loop.h"
#include "tests/support/process.h"
#include "tests/support/stalling_file_system.h"

namespace drun::agent {
namespace {

using namespace std::chrono_literals;
using testing::Running;

// Stack tools are searched for in one folder only. The test's own commands use the normal PATH.
class StacksRig {
 public:
  explicit StacksRig(std::chrono::milliseconds limit = 5s)
      : environment_{"PATH=" + directory_.path() + ":/nowhere", "HOME=/"},
        collector_(io_, environment_, limit) {}

  void add_tool(const std::string& name, const std::string& script) {
    testing::write_file(directory_.file(name), "#!/bin/sh\n" + script + "\n", true);
  }
  FoundStacks collect(const std::vector<int>& pids) {
    std::optional<FoundStacks> found;
    collector_.collect(pids, [&found](const FoundStacks& all) { found = all; });
    io_.restart();
    io_.run_for(20s);
    REQUIRE(found.has_value());
    return *found;
  }
  StackCollector& collector() { return collector_; }
  asio::io_context& io() { return io_; }
  std::string file(const std::string& name) const { return directory_.file(name); }

 private:
  testing::TemporaryDirectory directory_;
  std::vector<std::string> environment_;
  asio::io_context io_;
  StackCollector collector_;
};

Running sleeper() {
  Running running({.argv = {"sh", "-c", "echo up; exec sleep 100"}});
  REQUIRE(running.prints("up"));
  return running;
}

bool is_allowed(const StacksRig&) {
  const StackTools tools = find_stack_tools(std::vector<std::string>{"PATH=/nowhere"});
  if (tools.objection.empty()) return true;
  WARN("skipped: " + tools.objection);
  return false;
}

constexpr const char* kGdbSays =
    "echo 'Thread 1 (Thread 0x7f2a (LWP '$5') \"sleep\"):'\n"
    "echo '#0  0x7f in nap (for=3) at bed.c:7'";

}  // namespace

TEST_CASE("without tools stacks come from /proc, and a note gives the reason") {
  StacksRig rig;
  const Running one = sleeper();
  const Running other = sleeper();
  REQUIRE(testing::eventually([&] {
    const FoundStacks found = rig.collect({one.pid(), other.pid(), 0});
    return stack_lines(found.workers[0]).front() == "process sleep" &&
           stack_lines(found.workers[0]) == stack_lines(found.workers[1]);
  }));
  const FoundStacks found = rig.collect({one.pid(), other.pid(), 0});
  REQUIRE(found.workers.size() == 3);
  CHECK(sources_of(found.workers[0]) == "/proc");
  CHECK(found.workers[2].empty());
  CHECK(found.notes.size() == 1);
}

TEST_CASE("a tool on PATH is run for each process, and its output is used") {
  StacksRig rig;
  if (!is_allowed(rig)) return;
  rig.add_tool("gdb", kGdbSays);
  const Running one = sleeper();
  const FoundStacks found = rig.collect({one.pid()});
  REQUIRE(found.workers[0].size() == 1);
  CHECK(found.workers[0][0].source == "gdb");
  CHECK(found.workers[0][0].threads ==
        std::vector<ThreadStack>{{.name = "sleep", .frames = {"nap (bed.c:7)"}}});
  CHECK(found.notes.empty());
}

TEST_CASE("a directory of PATH that hangs delays neither the loop nor later looks") {
  if (!is_allowed(StacksRig())) return;
  const test::StallingFileSystem files;
  if (!files.is_mounted()) {
    WARN("skipped: " << files.why());
    return;
  }
  const std::vector<std::string> environment{"PATH=" + (files / "bin")};
  asio::io_context io;
  StackCollector collector(io, environment);
  const Running one = sleeper();
  files.stall();
  // Without a thread for the search, the loop waits for this.
  std::promise<void> looked;
  auto was_in_time = std::async(std::launch::async, [&] {
    const auto status = looked.get_future().wait_for(test::scaled(10s));
    files.resume();
    return status == std::future_status::ready;
  });
  for (int looks = 0; looks < 2; ++looks) {
    std::optional<FoundStacks> found;
    collector.collect({one.pid()}, [&found](const FoundStacks& all) { found = all; });
    CHECK(test::run_until(io, [&] { return found.has_value(); }));
    REQUIRE(found.has_value());
    CHECK(sources_of(found->workers[0]) == "/proc");
    REQUIRE(found->notes.size() == 1);
    CHECK_THAT(found->notes[0], ContainsSubstring("cannot search PATH"));
  }
  looked.set_value();
  CHECK(was_in_time.get());
}

TEST_CASE("child processes of a worker are listed with it") {
  StacksRig rig;
  Running shell({.argv = {"sh", "-c", "sleep 100 & echo up; wait"}});
  REQUIRE(shell.prints("up"));
  REQUIRE(testing::eventually(
      [&] { return rig.collect({shell.pid()}).workers[0].back().name == "sleep"; }));
  CHECK(rig.collect({shell.pid()}).workers[0].front().name == "sh");
}

TEST_CASE("if a tool fails, /proc is used, and the tool's error is reported") {
  StacksRig rig;
  if (!is_allowed(rig)) return;
  rig.add_tool("gdb", "echo hello; echo 'ptrace: Operation not permitted (4711).' >&2; exit 1");
  const Running one = sleeper();
  const FoundStacks found = rig.collect({one.pid()});
  CHECK(found.workers[0][0].source == "/proc");
  CHECK(found.notes == std::vector<std::string>{"gdb: ptrace: Operation not permitted (####)."});
}

TEST_CASE("a tool that hangs is killed at the limit and leaves no process") {
  StacksRig rig(300ms);
  if (!is_allowed(rig)) return;
  rig.add_tool("gdb", "echo $$ >> " + rig.file("pids") + "; exec /bin/sleep 100");
  const Running one = sleeper();
  const FoundStacks found = rig.collect({one.pid()});
  CHECK(found.workers[0][0].source == "/proc");
  REQUIRE(found.notes.size() == 1);
  CHECK_THAT(found.notes[0], ContainsSubstring("gdb was stopped after"));
  const int pid = std::atoi(testing::read_file(rig.file("pids")).c_str());
  REQUIRE(pid > 0);
  CHECK(
      testing::eventually([&] { return access(("/proc/" + std::to_string(pid)).c_str(), F_OK); }));
}

TEST_CASE("a process runs again after a tool was killed that had stopped it") {
  StacksRig rig(300ms);
  if (!is_allowed(rig)) return;
  rig.add_tool("gdb",
               "while [ \"$1\" != -p ]; do shift; done; kill -STOP \"$2\"; exec /bin/sleep 100");
  const Running one = sleeper();
  const auto state = [&one] {
    const std::string stat = testing::read_file("/proc/" + std::to_string(one.pid()) + "/stat");
    return stat.substr(std::min(stat.rfind(')'), stat.size()), 3);
  };
  const FoundStacks found = rig.collect({one.pid()});
  REQUIRE(found.notes.size() == 1);
  CHECK_THAT(found.notes[0], ContainsSubstring("gdb was stopped after"));
  CHECK(testing::eventually([&] { return state() == ") S"; }));
}

TEST_CASE("a look that is stopped at any moment of its start leaves nothing to wait for") {
  StacksRig rig;
  if (!is_allowed(rig)) return;
  rig.add_tool("gdb", "exec sleep 100");
  const Running one = sleeper();
  for (int steps = 0; steps < 60; ++steps) {
    CAPTURE(steps);
    int answers = 0;
    rig.collector().collect({one.pid()}, [&answers](const FoundStacks&) { ++answers; });
    rig.io().restart();
    for (int i = 0; i < steps % 6; ++i) rig.io().poll_one();
    rig.collector().stop();
    CHECK(answers == 1);
    const auto began = std::chrono::steady_clock::now();
    rig.io().restart();
    rig.io().run_for(20s);
    REQUIRE(std::chrono::steady_clock::now() - began < 10s);
  }
}

TEST_CASE("a tool that prints endlessly is stopped") {
  StacksRig rig;
  if (!is_allowed(rig)) return;
  rig.add_tool("gdb", "while :; do echo '#0  0x7f in f ()'; done");
  const Running one = sleeper();
  CHECK(rig.collect({one.pid()}).workers[0][0].source == "/proc");
}

TEST_CASE("concurrent calls get the same answer, and stop answers pending calls") {
  StacksRig rig;
  rig.add_tool("gdb", "exec /bin/sleep 100");
  const Running one = sleeper();
  int answers = 0;
  for (int i = 0; i < 2; ++i)
    rig.collector().collect({one.pid()}, [&answers](const FoundStacks& found) {
      ++answers;
      CHECK(found.workers.size() == 1);
    });
  rig.io().poll();
  CHECK(answers <= 2);
  rig.collector().stop();
  CHECK(answers == 2);
  rig.collector().stop();
  CHECK(answers == 2);
}

}  // namespace drun::agent
