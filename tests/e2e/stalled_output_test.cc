// A suspended terminal, a pipe that is not read and a file system that hangs block only the output
// written to them. The job keeps its heartbeats and its exit code.

#include <fcntl.h>
#include <pty.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <regex>
#include <sstream>
#include <thread>

#include "rendezvous/base/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/job.h"
#include "tests/support/job_traces.h"
#include "tests/support/stalling_file_system.h"

namespace drun::testing {
namespace {

namespace fs = std::filesystem;

// The same program with its stderr redirected to `path`.
Launch with_stderr(Launch launch, const std::string& path) {
  Words words{"sh", "-c", "path=$1; shift; exec \"$@\" 2>\"$path\"", "sh", path};
  words.insert(words.end(), launch.argv.begin(), launch.argv.end());
  launch.argv = std::move(words);
  return launch;
}

// Accepts no bytes until the first call of read().
class StoppedReader {
 public:
  StoppedReader(const std::string& kind, const std::string& fifo) {
    if (kind == "pipe") {
      REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
      path_ = fifo;
      outer_ = UniqueFd(::open(fifo.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
      const std::string filling(4096, '.');
      while (::write(outer_.get(), filling.data(), filling.size()) > 0) continue;
      return;
    }
    int fds[2];
    char name[256];
    REQUIRE(::openpty(&fds[0], &fds[1], name, nullptr, nullptr) == 0);
    path_ = name;
    outer_ = UniqueFd(fds[0]);
    inner_ = UniqueFd(fds[1]);
    ::fcntl(outer_.get(), F_SETFL, O_NONBLOCK);
    REQUIRE(::tcflow(inner_.get(), TCOOFF) == 0);  // Ctrl-S
  }
  const std::string& path() const { return path_; }
  std::string read() {
    if (inner_) ::tcflow(inner_.get(), TCOON);
    std::string text;
    char bytes[4096];
    for (ssize_t got = 0; (got = ::read(outer_.get(), bytes, sizeof(bytes))) > 0;)
      text.append(bytes, static_cast<std::size_t>(got));
    return text;
  }

 private:
  std::string path_;
  UniqueFd outer_;
  UniqueFd inner_;
};

// Whether the process has this name and waits in the kernel for the FUSE file system.
bool is_in_fuse(const std::string& pid, const std::string& name) {
  const std::string where = read_file("/proc/" + pid + "/wchan");
  return read_file("/proc/" + pid + "/comm") == name + "\n" &&
         (where.find("fuse") != where.npos || where == "request_wait_answer");
}

const std::string kUntilGo = "until [ -e $DIR/go ]; do sleep 0.05; done; ";

}  // namespace

TEST_CASE("a node with a blocked stderr keeps its heartbeats and its worker's exit code") {
  const std::string kind = GENERATE("pipe", "terminal");
  CAPTURE(kind);
  Nodes nodes(2, {"--heartbeat-timeout=2", "--max-restarts=1"});
  StoppedReader reader(kind, nodes.directory().file("stderr"));
  // Node 1 logs the first failure and the restart, then has to send many heartbeats.
  const std::string script =
      "echo a line of the worker >&2; [ $RANK = 0 ] && exec sleep 600; "
      "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 4; " +
      kUntilGo + "exit 3";
  nodes.start(0, {}, script);
  Running stuck(with_stderr(nodes.launch(1, {"--log-level=debug"}, script), reader.path()));
  REQUIRE(nodes[0].prints("restart 1 of at most 1"));
  std::this_thread::sleep_for(6s);  // three heartbeat timeouts without any event
  write_file(nodes.directory().file("go"), "");
  const Ended ended = nodes[0].wait(40s);
  INFO(ended.err);
  CHECK(ended.code == 3);
  CHECK_THAT(ended.err, !ContainsSubstring("lost"));
  // At the end it waits for its reader, as any program does, and no output is lost.
  std::string text;
  REQUIRE(eventually([&] {
    text += reader.read();
    return text.find("restart 1 of 1") != text.npos;
  }));
  std::optional<Ended> end;
  std::thread waiting([&] { end = stuck.wait(20s); });
  REQUIRE(eventually(
      [&] {
        text += reader.read();
        return end.has_value();
      },
      20s));
  waiting.join();
  CHECK(end->code == 3);
  CHECK(text.find("failed: exit code 4") != text.npos);
  CHECK(text.find("a line of the worker") != text.npos);
}

TEST_CASE("drun's log lines begin on a new line") {
  const Ended ended =
      run(shell_job({"--nproc-per-node=2"},
                    "[ $RANK = 0 ] || exec sleep 600; printf '\\r 50%%|####     |' >&2; exit 3"));
  INFO(ended.err);
  CHECK(ended.code == 3);
  CHECK_THAT(ended.err, ContainsSubstring(" 50%|####     |\ndrun: job failed"));
  CHECK_FALSE(std::regex_search(ended.err, std::regex(R"([^\n]drun \d\d:\d\d:\d\d)")));
}

TEST_CASE("a file system that hangs for 15 s loses no node and no line", "[slow]") {
  test::StallingFileSystem files;
  if (!files.is_mounted()) {
    WARN("skipped: cannot mount a FUSE file system: " << files.why());
    return;
  }
  // Slow files must block neither the coordinator's loop nor another node's heartbeats.
  const auto [node, options] =
      GENERATE(table<int, Words>({{0, {"--gather-logs", "--tee=3"}},
                                  {1, {"--tee=3"}},
                                  {1, {"--redirects=3", "--hang-timeout=3"}}}));
  const std::string logs = files / "logs";
  Nodes nodes(2, {"--heartbeat-timeout=3"});
  const Words common = options[0] == "--gather-logs" ? options : Words();
  Words own = options + Words{"--log-dir=" + logs, "--events=" + (files / "events")};
  const std::string script = "echo begin; touch $DIR/began.$RANK; " + kUntilGo +
                             "i=0; while [ $i -lt 200 ]; do echo line $i; echo err $i >&2; "
                             "i=$((i+1)); done; exit 0";
  nodes.start(0, node == 0 ? own : common, script);
  nodes.start(1, node == 1 ? own : common, script);
  CAPTURE(node, options[0]);
  const auto has_begun = [&](const char* rank) {
    return fs::exists(nodes.directory().file(std::string("began.") + rank));
  };
  REQUIRE(eventually([&] { return has_begun("0") && has_begun("1"); }, 20s));
  files.stall();
  write_file(nodes.directory().file("go"), "");
  std::this_thread::sleep_for(15s);  // the length of the hang: five heartbeat timeouts
  files.resume();
  const std::vector<Ended> ends = nodes.wait(60s);
  for (const Ended& ended : ends) {
    INFO(ended.err);
    CHECK(ended.code == 0);
    CHECK_THAT(ended.err, !ContainsSubstring("lost"));
  }
  const std::string& log = ends[static_cast<std::size_t>(node)].err;
  CHECK_THAT(log, ContainsSubstring("the log directory has not answered for 10 s"));
  CHECK_THAT(log, ContainsSubstring("the log directory answers again after 1"));
  const std::string rank = node == 0 ? "1" : "0";  // node 0 gathers both ranks; node 1 has only
                                                   // local rank 0
  std::string expected = "begin\n";
  for (int i = 0; i < 200; ++i) expected += "line " + std::to_string(i) + "\n";
  CHECK(read_file(only_entry(logs) + "/attempt_0/" + rank + "/stdout.log") == expected);
  CHECK_THAT(read_file(files / "events"), ContainsSubstring("\"outcome\""));
}

// The end of a process waits for its system calls, so drun only exits when the file system is back.
TEST_CASE("a failed job is reported while the log directory hangs", "[slow]") {
  const test::StallingFileSystem files;
  if (!files.is_mounted()) {
    WARN("skipped: cannot mount a FUSE file system: " << files.why());
    return;
  }
  const TemporaryDirectory directory;
  // More output than may wait for the log directory must not delay the end, either.
  const std::string output = GENERATE("", "yes $(seq -s_ 300) | head -c 700000; echo; ");
  CAPTURE(output);
  Launch launch = shell_job({"--nproc-per-node=2", "--tee=3", "--shutdown-timeout=1",
                             "--log-dir=" + (files / "logs"), "--events=" + (files / "events")},
                            "echo up; " + kUntilGo + "[ $RANK = 0 ] || exec sleep 600; " + output +
                                "echo the cause >&2; exit 3");
  launch.environment["DIR"] = directory.path();
  Running running(launch);
  REQUIRE(running.prints("[default0]:up"));
  REQUIRE(running.prints("[default1]:up"));
  files.stall();
  write_file(directory.file("go"), "");
  const bool is_reported = running.prints("job failed", 45s);
  files.resume();
  CHECK(is_reported);
  const Ended ended = running.wait(40s);
  INFO(ended.err);
  CHECK(ended.code == 3);
  CHECK_THAT(ended.err.substr(ended.err.find("job failed")), ContainsSubstring("the cause"));
}

TEST_CASE("a signal ends a job whose log directory hangs at the start") {
  test::StallingFileSystem files;
  if (!files.is_mounted()) {
    WARN("skipped: cannot mount a FUSE file system: " << files.why());
    return;
  }
  files.stop_server();
  Running running(shell_job({"--log-dir=" + (files / "logs")}, "true"));
  const std::string pid = std::to_string(running.pid());
  const bool has_hung = eventually([&] {
    std::istringstream children(read_file("/proc/" + pid + "/task/" + pid + "/children"));
    std::string agent;
    return children >> agent && is_in_fuse(agent, "drun-agent");
  });
  running.signal(SIGTERM);
  const Ended ended = running.wait(10s);
  CHECK(has_hung);
  CHECK_FALSE(ended.timed_out);
  CHECK(ended.code == 128 + SIGTERM);
}

TEST_CASE("a signal ends the wait for a file that hangs after the job") {
  const int signal = GENERATE(SIGINT, SIGTERM);
  const bool holds_events = GENERATE(true, false);
  const test::StallingFileSystem files;
  if (!files.is_mounted()) {
    WARN("skipped: cannot mount a FUSE file system: " << files.why());
    return;
  }
  const std::string option =
      holds_events ? "--events=" + (files / "events") : "--log-dir=" + (files / "logs");
  CAPTURE(signal, option);
  const TemporaryDirectory directory;
  Launch launch = shell_job({"--tee=3", "--report=" + directory.file("report.json"), option},
                            "echo up; " + kUntilGo + "echo end");
  launch.environment["DIR"] = directory.path();
  Running running(launch);
  REQUIRE(running.prints("up"));
  files.stall();
  write_file(directory.file("go"), "");
  const bool has_ended = running.prints("end");
  const bool is_reported_before =
      eventually([&] { return fs::exists(directory.file("report.json")); }, 3s);
  running.signal(signal);
  const bool is_reported =
      eventually([&] { return fs::exists(directory.file("report.json")); }, 20s);
  files.resume();
  CHECK(has_ended);
  CHECK_FALSE(is_reported_before);
  CHECK(is_reported);
  const Ended ended = running.wait(40s);
  INFO(ended.err);
  CHECK(ended.code == 0);
}

TEST_CASE("a signal ends that wait on every host of the job, too") {
  const test::StallingFileSystem files;
  if (!files.is_mounted()) {
    WARN("skipped: cannot mount a FUSE file system: " << files.why());
    return;
  }
  const TemporaryDirectory directory;
  const std::string option = "--events=" + (files / "events");
  Launch launch = shell_job({"--local-nodes=2", option}, "echo up; " + kUntilGo + "echo end");
  launch.environment["DIR"] = directory.path();
  Running running(launch);
  REQUIRE(running.prints("[node0:0]: up"));
  REQUIRE(running.prints("[node1:1]: up"));
  files.stall();
  write_file(directory.file("go"), "");
  CHECK(running.prints("[node0:0]: end"));
  CHECK(running.prints("[node1:1]: end"));
  CHECK_FALSE(running.prints("node 0: " + option + ": it does not answer", 2s));
  running.signal(SIGINT);
  const bool has_ended_0 = running.prints("node 0: " + option + ": it does not answer", 5s);
  const bool has_ended_1 = running.prints("node 1: " + option + ": it does not answer", 5s);
  files.resume();
  CHECK(has_ended_0);
  CHECK(has_ended_1);
  const Ended ended = running.wait(40s);
  INFO(ended.err);
  CHECK(ended.code == 0);
}

TEST_CASE("no round starts while SIGKILL has not ended a worker") {
  const test::StallingFileSystem files;
  if (!files.is_mounted()) {
    WARN("skipped: " << files.why());
    return;
  }
  write_file(files / "data", "x");
  const TemporaryDirectory directory;
  Launch launch = shell_job({"--nproc-per-node=2", "--max-restarts=3", "--shutdown-timeout=1"},
                            "echo round $TORCHELASTIC_RESTART_COUNT; "
                            "[ $RANK = 0 ] && { echo $$ > $DIR/pid; echo up; exec cat $DATA; }; " +
                                kUntilGo + "exit 3");
  launch.environment["DATA"] = files / "data";
  launch.environment["DIR"] = directory.path();
  launch.environment["TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT"] = "2";
  files.stall();
  Running running(launch);
  REQUIRE(running.prints("up"));
  std::string pid = read_file(directory.file("pid"));
  pid.pop_back();
  REQUIRE(eventually([&] { return is_in_fuse(pid, "cat"); }));
  write_file(directory.file("go"), "");
  const Ended ended = running.wait(40s);
  INFO(ended.out << ended.err);
  CHECK(ended.code != 0);
  CHECK_THAT(ended.out, ContainsSubstring("round 0") && !ContainsSubstring("round 1"));
  CHECK_THAT(ended.err, ContainsSubstring("uninterruptible sleep"));
}

}  // namespace drun::testing
