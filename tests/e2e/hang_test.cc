#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/job.h"
#include "tests/support/places.h"

namespace drun::testing {
namespace {

using nlohmann::json;

Ended stacks(const Words& words) { return run({.argv = Words{drun_program(), "stacks"} + words}); }

// Returns the ranks of all groups.
std::vector<int> ranks_of(const json& said) {
  std::vector<int> ranks;
  for (const json& group : said["groups"]) {
    for (const json& range : group["ranks"])
      for (int rank = range[0]; rank <= range[1]; ++rank) ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// Whether a debugger runs among the descendants of this process.
bool has_tool_below(pid_t top) {
  const Ended found = run({.argv = {"sh", "-c",
                                    "for s in /proc/[0-9]*/stat; do read -r l < $s && echo \"$l\"; "
                                    "done 2>/dev/null"}});
  std::istringstream lines(found.out);
  std::map<int, std::pair<int, std::string>> processes;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t open = line.find('(');
    const std::size_t close = line.rfind(')');
    if (open == line.npos || close == line.npos || close + 4 > line.size()) continue;
    processes[std::atoi(line.c_str())] = {std::atoi(line.c_str() + close + 4),
                                          line.substr(open + 1, close - open - 1)};
  }
  for (const auto& [pid, process] : processes) {
    if (process.second != "gdb" && process.second != "py-spy" && process.second != "eu-stack")
      continue;
    for (int at = pid; processes.contains(at); at = processes[at].first)
      if (processes[at].first == top) return true;
  }
  return false;
}

const std::string kBusy = "while :; do echo $RANK; sleep 0.2; done";

// Long enough for a loaded machine, where a busy worker may not run for seconds.
constexpr int kHangTimeout = 6;
const std::string kHangOption = "--hang-timeout=" + std::to_string(kHangTimeout);

// Returns the number after the last `text` in `said`, or 0.
double number_after(const std::string& text, const std::string& said) {
  const std::size_t at = said.rfind(text);
  return at == said.npos ? 0 : std::atof(said.c_str() + at + text.size());
}

}  // namespace

TEST_CASE("a worker that hangs on one of three nodes is detected, named and shown with its stack") {
  Nodes nodes(3, {"--nproc-per-node=2", kHangOption});
  for (int node = 0; node < 3; ++node)
    nodes.start(node, {}, "[ $RANK != 3 ] || exec sleep 100\n" + kBusy);
  const auto all = nodes.wait();
  for (int node = 0; node < 3; ++node) {
    const Ended& ended = all[static_cast<std::size_t>(node)];
    CAPTURE(node, ended.err);
    CHECK(ended.code == 123);
    CHECK_THAT(ended.err, ContainsSubstring("rank 3 on node 1"));
    CHECK_THAT(ended.err, ContainsSubstring("hung: no output and no CPU time for "));
    CHECK(number_after("hung: no output and no CPU time for ", ended.err) >= kHangTimeout);
    CHECK_THAT(ended.err, ContainsSubstring("process sleep"));
    const json report = nodes.report(node);
    CHECK(report["outcome"] == "failed");
    CHECK(report["root_cause"]["rank"] == 3);
    CHECK(report["root_cause"]["status"]["kind"] == "hung");
    CHECK(report["failures"].size() == 1);
    CHECK_THAT(report["root_cause"]["traceback"].get<std::string>(),
               ContainsSubstring("rank 3: no sign of life"));
    // The timeout, the settling time, the evidence, and the time that a loaded machine needs to
    // start and stop it all. It is less than --shutdown-timeout, which nothing waits for.
    const auto longest = test::scaled(std::chrono::seconds(kHangTimeout + 1 + 10 + 10));
    CHECK(report["duration_s"] < longest.count());
  }
}

TEST_CASE("a job with a hung worker continues after a restart") {
  const TemporaryDirectory directory;
  const std::string events = directory.file("events");
  const Ended ended = run(shell_job(
      {"--nproc-per-node=2", "--max-restarts=1", "--hang-timeout=1", "--events=" + events},
      "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0\n[ $RANK = 0 ] && exec sleep 100\n" + kBusy));
  CAPTURE(ended.err);
  CHECK(ended.code == 0);
  const std::string said = read_file(events);
  CHECK_THAT(said, ContainsSubstring("\"hang_suspected\""));
  CHECK_THAT(said, ContainsSubstring("\"hang_found\""));
}

TEST_CASE("workers that use CPU, print, or touch the heartbeat file are not hung") {
  const Ended ended =
      run(shell_job({"--nproc-per-node=3", kHangOption},
                    "case $RANK in\n"
                    "0) end=$(($(date +%s) + 9)); while [ $(date +%s) -lt $end ]; do :; done ;;\n"
                    "1) for i in $(seq 22); do echo .; sleep 0.4; done ;;\n"
                    "2) for i in $(seq 22); do touch \"$DRUN_HEARTBEAT_FILE\"; sleep 0.4; done ;;\n"
                    "esac"),
          60s);
  CAPTURE(ended.err);
  CHECK(ended.code == 0);
}

TEST_CASE("workers run without heartbeat files if there is no room for them, with one warning") {
  if (geteuid() != 0) {
    WARN("skipped: only root can cover /dev/shm");
    return;
  }
  const std::string script =
      "mount -t tmpfs -o size=64k none /dev/shm; head -c 65536 /dev/zero >/dev/shm/full\n"
      "TMPDIR=/dev/shm exec " +
      std::string(drun_program()) + " --nproc-per-node=2 --hang-timeout=60 " +
      built("examples/all_reduce");
  const Ended ended = run({.argv = {"unshare", "--mount", "sh", "-c", script}}, 60s);
  CAPTURE(ended.err);
  CHECK(ended.code == 0);
  const std::size_t warning = ended.err.find("without heartbeat files");
  REQUIRE(warning != ended.err.npos);
  CHECK(ended.err.find("without heartbeat files", warning + 1) == ended.err.npos);
}

TEST_CASE("a rank that is absent from a collective is named, with its position and the others'") {
  Nodes nodes(3, {"--nproc-per-node=2", kHangOption, "--max-restarts=1"});
  const TemporaryDirectory directory;
  for (int node = 0; node < 3; ++node)
    nodes.start(node, {"--events=" + directory.file(std::to_string(node))},
                "exec " + built("workers/absent_rank") + " 3 50");
  const auto all = nodes.wait();
  if (all[0].err.find("without Gloo") != std::string::npos) {
    WARN("skipped: this build has no Gloo");
    return;
  }
  for (int node = 0; node < 3; ++node) {
    const Ended& ended = all[static_cast<std::size_t>(node)];
    CAPTURE(node, ended.err);
    CHECK(ended.code == 0);
    CHECK(nodes.report(node)["restarts"] == 1);
    CHECK_THAT(ended.err, ContainsSubstring("rank 3 on node 1"));
    CHECK_THAT(ended.err, ContainsSubstring("last ended all_reduce #"));
    CHECK_THAT(ended.err, ContainsSubstring(": in all_reduce #"));
    CHECK_THAT(ended.err, ContainsSubstring("rank 3: last ended all_reduce #"));
  }
}

TEST_CASE("the dump that drun requests of a hung worker is not taken for a sign of life") {
  // With stderr in a file, drun does not know what the worker has printed there.
  const bool is_redirected = GENERATE(false, true);
  const TemporaryDirectory logs;
  const Words redirects =
      is_redirected ? Words{"--log-dir=" + logs.path(), "--redirects=2"} : Words{};
  CAPTURE(is_redirected);
  const Ended ended = run(job(Words{"--nproc-per-node=2", "--hang-timeout=4"} + redirects,
                              {"python3", source_file("tests/workers/dumping_rank.py"), "25"}),
                          60s);
  CAPTURE(ended.err);
  CHECK(ended.code == 123);
  CHECK_THAT(ended.err, ContainsSubstring("rank 1 on node 0"));
  CHECK(ended.err.find("not taken for a hang") == std::string::npos);
  CHECK_THAT(ended.err, ContainsSubstring("call 21 in 0 (default_pg): all_reduce, started"));
}

TEST_CASE("hangs are not detected by default") {
  const Ended ended = run(shell_job({}, "[ -z \"$DRUN_HEARTBEAT_FILE\" ] && sleep 1.5"));
  CHECK(ended.code == 0);
}

TEST_CASE("a suspended worker is reported as stopped") {
  Running running(shell_job({kHangOption}, "echo pid $$; exec sleep 100"));
  REQUIRE(running.prints("pid "));
  REQUIRE(eventually([&] { return running.out().find('\n') != std::string::npos; }));
  kill(std::atoi(running.out().c_str() + running.out().find("pid ") + 4), SIGSTOP);
  const Ended ended = running.wait();
  CHECK(ended.code == 123);
  CHECK_THAT(ended.err, ContainsSubstring("stopped, no output and no CPU time"));
}

TEST_CASE("a stop reports the timeouts that PyTorch's watchdog had reported before") {
  const TemporaryDirectory directory;
  Running running(shell_job(
      {"--nproc-per-node=3", "--report=" + directory.file("report.json")},
      "[ $RANK = 0 ] || echo \"[rank$RANK]:[E1127 07:16:23.172041623 ProcessGroupNCCL.cpp:689] "
      "[Rank $RANK] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=21, "
      "OpType=ALLREDUCE, NumelIn=1000, NumelOut=1000, Timeout(ms)=12000) ran for 12077 "
      "milliseconds before timing out.\" >&2; echo up $RANK >&2; exec sleep 100"));
  for (const char* rank : {"0", "1", "2"})
    REQUIRE(eventually(
        [&] { return running.err().find("up " + std::string(rank)) != std::string::npos; }));
  kill(running.pid(), SIGTERM);
  const Ended ended = running.wait();
  CAPTURE(ended.err);
  CHECK(ended.code == 143);
  CHECK_THAT(ended.err, ContainsSubstring("ranks 1, 2 had reported a timeout of all_reduce (number "
                                          "21), the first "));
  CHECK_THAT(ended.err,
             ContainsSubstring(" before the stop") &&
                 ContainsSubstring("\n  timeouts   ranks 1, 2 reported a timeout of all_reduce "
                                   "(number 21), the first at "));
  const auto timeouts = nlohmann::json::parse(read_file(directory.file("report.json")))["timeouts"];
  REQUIRE(timeouts.size() == 1);
  CHECK(timeouts[0]["ranks"] == nlohmann::json::parse("[[1, 2]]"));
}

TEST_CASE("a rank that failed in a collective is reported with the stacks of the others") {
  const int lines_after = GENERATE(0, 40);  // more than a report shows
  const TemporaryDirectory directory;
  const Ended ended = run(shell_job(
      {"--nproc-per-node=2", "--report=" + directory.file("report.json")},
      "[ $RANK = 1 ] || exec sleep 100\n"
      "echo \"terminate called after throwing an instance of 'c10::DistBackendError'\" >&2\n"
      "echo '  what():  [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=21, "
      "OpType=ALLREDUCE) ran for 12077 milliseconds before timing out.' >&2\n"
      "for i in $(seq " +
          std::to_string(lines_after) + "); do echo closing file $i >&2; done; exit 1"));
  CAPTURE(ended.err);
  const auto report = nlohmann::json::parse(read_file(directory.file("report.json")));
  CHECK_THAT(report["failures"][0]["traceback"].get<std::string>(),
             ContainsSubstring("the other ranks when it failed") && ContainsSubstring("rank 0:"));
}

TEST_CASE("stacks of all ranks can be read on any node, and the job continues") {
  const std::string id = "stacked-" + std::to_string(getpid());
  Nodes nodes(3, {"--nproc-per-node=2", "--rdzv-id=" + id});
  const std::string go = nodes.directory().file("go");
  const std::string script = "echo up $RANK; while [ ! -e " + go + " ]; do sleep 0.1; done";
  for (int node = 0; node < 3; ++node) nodes.start(node, {}, script);
  for (int node = 0; node < 3; ++node) {
    REQUIRE(nodes[node].prints("up " + std::to_string(2 * node)));
    REQUIRE(nodes[node].prints("up " + std::to_string(2 * node + 1)));
  }
  const Ended said = stacks({id, "--json"});
  CHECK(said.code == 0);
  CAPTURE(said.out, said.err);
  const json found = json::parse(said.out);
  CHECK(found["schema"] == "drun.stacks/1");
  CHECK(found["run_id"] == id);
  CHECK(ranks_of(found) == std::vector<int>{0, 1, 2, 3, 4, 5});
  const Ended text = stacks({id});
  CHECK_THAT(text.out, ContainsSubstring("process sh"));
  for (int node = 0; node < 3; ++node) {
    CHECK(eventually([&] { return !has_tool_below(nodes[node].pid()); }));
    const Ended own = stacks({std::to_string(nodes[node].pid()), "--json"});
    CHECK(ranks_of(json::parse(own.out)).size() == 6);
  }
  write_file(go, "");
  for (const Ended& ended : nodes.wait()) CHECK(ended.code == 0);
  CHECK(stacks({id}).code == 1);
}

TEST_CASE("a job that ends while its stacks are read returns its normal exit code") {
  const std::string id = "ending-" + std::to_string(getpid());
  Running running(shell_job({"--nproc-per-node=2", "--rdzv-id=" + id}, "echo up; sleep 1; exit 7"));
  REQUIRE(running.prints("up"));
  const Ended said = stacks({id});
  const Ended ended = running.wait();
  CAPTURE(said.out, ended.err);
  CHECK(ended.code == 7);
  CHECK(ended.err.find("left running") == std::string::npos);
}

}  // namespace drun::testing
