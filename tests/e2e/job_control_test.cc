// Tests drun list, drun stop and drun logs on jobs of this machine.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "tests/support/catch.h"
#include "tests/support/job.h"

namespace drun::testing {
namespace {

using nlohmann::json;

Ended drun(const Words& words) { return run({.argv = Words{drun_program()} + words}); }

std::string own_id(const std::string& name) { return name + "-" + std::to_string(getpid()); }

// The line of a table of drun list that begins with this word. Other tests may have jobs, too.
std::string line_in(const std::string& table, const std::string& job) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(job + " ")) return line;
  return "";
}

std::string list_line(const std::string& job) { return line_in(drun({"list"}).out, job); }

// The columns between the job and the time.
Words columns_of(const std::string& line) {
  std::istringstream text(line);
  Words words;
  for (std::string word; words.size() < 5 && text >> word;) words.push_back(word);
  return words;
}

pid_t agent_of(const std::string& job) {
  return json::parse(drun({"status", job, "--node", "--json"}).out)["agent_pid"].get<pid_t>();
}

}  // namespace

TEST_CASE("drun list shows a line for each job on this machine and nothing else") {
  const std::string first = own_id("list-first");
  const std::string second = own_id("list-second");
  CHECK(list_line(first).empty());
  Running one(shell_job({"--nproc-per-node=2", "--rdzv-id=" + first, "--max-restarts=3"},
                        "echo up; exec sleep 60"));
  REQUIRE(one.prints("up"));
  Nodes two(2, {"--rdzv-id=" + second});
  two.start(0, {}, "exit 0");
  const Words joining{second, "joining", "1/2", "-", "0"};
  CHECK(eventually([&] { return columns_of(list_line(second)) == joining; }));
  const std::string table = drun({"list"}).out;
  const std::string line = line_in(table, first);
  CHECK(columns_of(line) == Words{first, "running", "1", "2", "0/3"});
  CHECK_THAT(line, EndsWith("  sh -c echo up; exec sleep 60"));
  CHECK_THAT(table, StartsWith("JOB "));
  // All commands begin in the column of their heading.
  const std::size_t column = table.find("COMMAND");
  CHECK(line.find("sh -c") == column);

  const Ended objects = drun({"list", "--json"});
  CHECK(objects.code == 0);
  std::istringstream lines(objects.out);
  std::vector<std::string> ids;
  for (std::string each; std::getline(lines, each);) {
    const json job = json::parse(each);
    CHECK(job["schema"] == "drun.job/1");
    ids.push_back(job["run_id"]);
  }
  CHECK(std::count(ids.begin(), ids.end(), first) == 1);
  CHECK(std::count(ids.begin(), ids.end(), second) == 1);
  two[0].signal(SIGTERM);
  two.wait();
  one.signal(SIGTERM);
  one.wait();
  CHECK(list_line(first).empty());
}

TEST_CASE("drun list prints only its header where no job runs") {
  // A new network namespace has no agents.
  if (geteuid() != 0) {
    WARN("skipped: only root can make a network namespace");
    return;
  }
  const Ended none = run({.argv = {"unshare", "--net", drun_program(), "list"}});
  CHECK(none.code == 0);
  CHECK(none.out == "JOB  STATE  NODES  WORKERS  RESTARTS  UP  COMMAND\n");
  CHECK(none.err.empty());
  CHECK(run({.argv = {"unshare", "--net", drun_program(), "list", "--json"}}).out.empty());
}

TEST_CASE("drun list shows a job whose agent does not answer") {
  const std::string id = own_id("list-silent");
  Running job(shell_job({"--rdzv-id=" + id}, "echo up; exec sleep 60"));
  REQUIRE(job.prints("up"));
  const pid_t agent = agent_of(id);
  REQUIRE(kill(agent, SIGSTOP) == 0);
  const std::string line = list_line(id);
  kill(agent, SIGCONT);
  CHECK_THAT(line, ContainsSubstring("  silent ") &&
                       ContainsSubstring("agent " + std::to_string(agent) + " does not answer"));
  job.signal(SIGTERM);
  job.wait();
}

TEST_CASE("drun stop ends a job and returns when its process is gone") {
  const std::string id = own_id("stop");
  Running job(shell_job({"--nproc-per-node=2", "--rdzv-id=" + id}, "echo up; exec sleep 60"));
  REQUIRE(job.prints("up"));
  const std::string pid = std::to_string(job.pid());
  // The three names mean the same job, which is stopped once.
  const Ended stopped = drun({"stop", id, pid, std::to_string(agent_of(id))});
  CHECK(stopped.code == 0);
  CHECK(stopped.out == "stopped " + id + "\n");
  CHECK(stopped.err.empty());
  CHECK_THAT(read_file("/proc/" + pid + "/stat"), ContainsSubstring(") Z "));  // not reaped yet
  CHECK(job.wait().code == 128 + SIGTERM);
}

TEST_CASE("drun stop ends all nodes of a job on this machine and prints one line") {
  const std::string id = own_id("stop-nodes");
  Nodes nodes(3, {"--rdzv-id=" + id});
  for (int node = 0; node < 3; ++node) nodes.start(node, {}, "echo up; exec sleep 60");
  for (int node = 0; node < 3; ++node) REQUIRE(nodes[node].prints("up"));
  const Ended stopped = drun({"stop", id});
  CHECK(stopped.code == 0);
  CHECK(stopped.out == "stopped " + id + "\n");
  for (const Ended& ended : nodes.wait()) CHECK(ended.code == 128 + SIGTERM);
}

TEST_CASE("drun stop of an unknown job lists the jobs of this machine and stops the others") {
  const std::string id = own_id("stop-known");
  Running job(shell_job({"--rdzv-id=" + id}, "echo up; exec sleep 60"));
  REQUIRE(job.prints("up"));
  const Ended failed = drun({"stop", "no-such-job"});
  CHECK(failed.code == 1);
  CHECK(failed.out.empty());
  CHECK_THAT(failed.err, StartsWith("drun stop: no job \"no-such-job\" of yours runs on this "
                                    "machine; jobs on this machine:\nJOB "));
  CHECK_THAT(failed.err, ContainsSubstring("\n" + id + " "));
  CHECK_FALSE(list_line(id).empty());
  const Ended both = drun({"stop", "no-such-job", id});
  CHECK(both.code == 1);
  CHECK(both.out == "stopped " + id + "\n");
  CHECK(job.wait().code == 128 + SIGTERM);
}

TEST_CASE("drun stop does not choose among jobs with the same run id") {
  const std::string id = own_id("stop-twins");
  const Words options{"--nnodes=1", "--rdzv-id=" + id};
  Running first(shell_job(options + Words{"--master-port=0"}, "echo up; exec sleep 60"));
  Running second(shell_job(options + Words{"--master-port=0"}, "echo up; exec sleep 60"));
  REQUIRE(first.prints("up"));
  REQUIRE(second.prints("up"));
  const Ended failed = drun({"stop", id});
  CHECK(failed.code == 1);
  CHECK_THAT(failed.err, ContainsSubstring("2 jobs have the run id \"" + id + "\"") &&
                             ContainsSubstring(" " + std::to_string(first.pid())) &&
                             ContainsSubstring(" " + std::to_string(second.pid())));
  CHECK(drun({"stop", std::to_string(first.pid()), std::to_string(second.pid())}).code == 0);
  CHECK(first.wait(1s).code == 128 + SIGTERM);
  CHECK(second.wait(1s).code == 128 + SIGTERM);
}

TEST_CASE("drun stop --timeout fails with the command that kills a job that still runs") {
  const std::string id = own_id("stop-stubborn");
  Running job(shell_job({"--rdzv-id=" + id, "--shutdown-timeout=600"},
                        "trap '' TERM; echo up; while :; do sleep 0.1; done"));
  REQUIRE(job.prints("up"));
  const std::string pid = std::to_string(job.pid());
  const Ended unwaited = drun({"stop", id, "--timeout=0"});
  CHECK(unwaited.code == 0);
  CHECK(unwaited.out == "stopping " + id + "\n");
  const Ended failed = drun({"stop", "--timeout=0.3", pid});
  CHECK(failed.code == 1);
  CHECK(failed.out.empty());
  CHECK_THAT(failed.err, ContainsSubstring(id + " still runs after 0.300 s: process " + pid) &&
                             EndsWith("kill -KILL " + pid + "\n"));
  REQUIRE(kill(job.pid(), SIGKILL) == 0);
  CHECK(job.wait().code == 128 + SIGKILL);
}

TEST_CASE("drun stop ends a job whose agent is suspended, and reports it") {
  const std::string id = own_id("stop-suspended");
  Running job(shell_job({"--rdzv-id=" + id}, "echo up; exec sleep 60"));
  REQUIRE(job.prints("up"));
  const pid_t agent = agent_of(id);
  REQUIRE(kill(agent, SIGSTOP) == 0);
  // The run id of an agent that does not answer is in its workers' environment.
  const Ended stopped = drun({"stop", id});
  CHECK(stopped.code == 0);
  CHECK(stopped.out == "stopped " + id + "\n");
  CHECK_THAT(stopped.err, ContainsSubstring("agent " + std::to_string(agent) + " of " + id +
                                            " does not answer: it was suspended"));
  CHECK(job.wait().code == 128 + SIGTERM);
}

TEST_CASE("drun stop says that an elastic job continues on its other nodes") {
  const std::string id = own_id("stop-elastic");
  const std::string endpoint = "127.0.0.1:" + std::to_string(free_port());
  const Words options{"--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=" + endpoint,
                      "--rdzv-id=" + id};
  Running first(shell_job(options + Words{"--rdzv-conf=is_host=1,last_call_timeout=30"},
                          "echo up $WORLD_SIZE; exec sleep 60"));
  Running second(shell_job(options + Words{"--rdzv-conf=is_host=0"}, "echo up; exec sleep 60"));
  REQUIRE(first.prints("up 2"));
  const Ended stopped = drun({"stop", std::to_string(second.pid())});
  CHECK(stopped.code == 0);
  CHECK(stopped.out ==
        "stopped " + id + " on this machine; it is elastic and continues on 1 other node\n");
  REQUIRE(first.prints("up 1"));
  const Ended rest = drun({"stop", id});
  CHECK(rest.code == 0);
  CHECK(rest.out == "stopped " + id + "\n");
}

TEST_CASE("drun logs prints the lines of the ranks of the only job that is named") {
  const TemporaryDirectory directory;
  const std::string id = own_id("logs");
  Running job(shell_job(
      {"--nproc-per-node=3", "--rdzv-id=" + id, "--tee=3", "--log-dir=" + directory.path()},
      "echo out $RANK; echo err $RANK >&2; echo last $RANK; echo up; exec sleep 60"));
  REQUIRE(eventually([&] {  // files are written a little later than the console
    return drun({"logs", id, "--grep=^(up|err)"}).out ==
           "[default0]:up\n[default0]:err 0\n[default1]:up\n[default1]:err 1\n"
           "[default2]:up\n[default2]:err 2\n";
  }));
  // One rank: its lines as they are.
  CHECK(drun({"logs", id, "1"}).out == "out 1\nlast 1\nup\nerr 1\n");
  CHECK(drun({"logs", id, "1", "--stderr"}).out == "err 1\n");
  CHECK(drun({"logs", "--stdout", "--tail=2", id, "1"}).out == "last 1\nup\n");
  // Several: behind the labels of the console.
  CHECK(drun({"logs", id, "0,2", "-g", "out"}).out == "[default0]:out 0\n[default2]:out 2\n");
  CHECK(drun({"logs", id, "--grep=^(err|last)", "--tail=1"}).out ==
        "[default0]:last 0\n[default0]:err 0\n[default1]:last 1\n[default1]:err 1\n"
        "[default2]:last 2\n[default2]:err 2\n");
  CHECK(drun({"logs", std::to_string(job.pid()), "2", "--grep=nothing"}).code == 0);

  const Ended absent = drun({"logs", id, "2-4"});
  CHECK(absent.code == 1);
  CHECK(absent.out.empty());
  CHECK_THAT(absent.err, ContainsSubstring("has no ranks 3, 4, but ranks 0-2"));
  const Ended unknown = drun({"logs", "no-such-job"});
  CHECK(unknown.code == 1);
  CHECK_THAT(unknown.err,
             ContainsSubstring("no job \"no-such-job\"") && ContainsSubstring("\n" + id + " "));
  // A second job makes the choice ambiguous.
  Running other(shell_job({"--rdzv-id=" + id + "-other"}, "echo up; exec sleep 60"));
  REQUIRE(other.prints("up"));
  const Ended ambiguous = drun({"logs"});
  CHECK(ambiguous.code == 1);
  CHECK_THAT(ambiguous.err, ContainsSubstring("name one; jobs on this machine:\n") &&
                                ContainsSubstring("\n" + id + " ") &&
                                ContainsSubstring("\n" + id + "-other "));
  const Ended fileless = drun({"logs", id + "-other"});
  CHECK(fileless.code == 1);
  CHECK_THAT(fileless.err, ContainsSubstring("no log files") && ContainsSubstring("--tee=3"));
  // Its reader may stop reading.
  const Ended piped =
      run({.argv = {"sh", "-c", drun_program() + " logs " + id + " -f | head -n 1"}});
  CHECK(piped.code == 0);
  CHECK(piped.out == "[default0]:out 0\n");
  CHECK(piped.err.empty());
  drun({"stop", id, id + "-other"});
}

TEST_CASE("drun logs without a job uses the only job of the machine") {
  if (geteuid() != 0) {
    WARN("skipped: only root can make a network namespace");
    return;
  }
  // In a new network namespace.
  const TemporaryDirectory directory;
  const std::string drun_word = drun_program();
  const std::string script = "ip link set lo up\n" + drun_word + " logs && exit 1\n" + drun_word +
                             " --tee=3 --nproc-per-node=2 --log-dir=" + directory.path() +
                             " sh -c 'echo rank $RANK; exec sleep 60' >/dev/null 2>&1 &\n"
                             "until [ $(" +
                             drun_word + " logs 2>/dev/null | wc -l) = 2 ]; do sleep 0.05; done\n" +
                             drun_word + " logs 1\n" + drun_word + " logs\nkill $!\nwait $!";
  const Ended ended = run({.argv = {"unshare", "--net", "sh", "-c", script}});
  INFO(ended.err);
  CHECK(ended.out == "rank 1\n[default0]:rank 0\n[default1]:rank 1\n");
}

TEST_CASE("drun logs --follow prints lines as they are written, across restarts, until the end") {
  const TemporaryDirectory directory;
  const std::string id = own_id("logs-follow");
  const std::string go = directory.file("go");
  Running job(shell_job(
      {"--rdzv-id=" + id, "--redirects=3", "--max-restarts=2", "--log-dir=" + directory.path()},
      "echo round $TORCHELASTIC_RESTART_COUNT\n"
      "[ $TORCHELASTIC_RESTART_COUNT = 0 ] || { printf 'the last'; exit 0; }\n"
      "while [ ! -e " +
          go +
          " ]; do sleep 0.02; done\n"
          "echo failing >&2; printf unfinished; exit 3"));
  REQUIRE(eventually([&] { return drun({"logs", id}).out == "round 0\n"; }));
  Running following({.argv = {drun_program(), "logs", id, "--follow"}});
  REQUIRE(following.prints("round 0\n"));
  write_file(go, "");
  CHECK(job.wait().code == 0);
  const Ended ended = following.wait();
  CHECK(ended.code == 0);
  CHECK(ended.err.empty());
  // stdout and stderr are different files: their order is not known.
  for (const char* const line : {"round 0\n", "failing\n", "unfinished\n"})
    CHECK_THAT(ended.out, ContainsSubstring(line));
  CHECK_THAT(ended.out, EndsWith("\nround 1\nthe last\n"));
}

TEST_CASE("drun logs --follow waits for the workers of a job and ends quietly on Ctrl-C") {
  const TemporaryDirectory directory;
  const std::string id = own_id("logs-wait");
  Nodes nodes(2, {"--rdzv-id=" + id, "--tee=1", "--log-dir=" + directory.path()});
  nodes.start(0, {}, "echo hello from $RANK; exec sleep 60");
  REQUIRE(eventually([&] { return !list_line(id).empty(); }));
  const Ended early = drun({"logs", id});
  CHECK(early.code == 1);
  CHECK_THAT(early.err, ContainsSubstring("have not started yet; wait for them with --follow"));
  Running following({.argv = {drun_program(), "logs", id, "--follow"}});
  nodes.start(1, {}, "echo hello from $RANK; exec sleep 60");
  CHECK(following.prints("hello from 0"));
  following.signal(SIGINT);
  const Ended ended = following.wait();
  CHECK(ended.code == 128 + SIGINT);
  CHECK(ended.err.empty());
  // Ranks of all nodes of this machine.
  CHECK(eventually([&] { return drun({"logs", id, "1"}).out == "hello from 1\n"; }));
  drun({"stop", id});
  nodes.wait();
}

TEST_CASE("drun logs --follow prints the rounds that end before it sees the first one") {
  const TemporaryDirectory directory;
  const std::string id = own_id("logs-early");
  Nodes nodes(2, {"--rdzv-id=" + id, "--redirects=1", "--max-restarts=2", "--restart-backoff=0",
                  "--log-dir=" + directory.path()});
  const std::string script =
      "echo round $TORCHELASTIC_RESTART_COUNT\n"
      "[ $TORCHELASTIC_RESTART_COUNT = 2 ] || [ $RANK = 1 ] || exit 3\n"
      "exec sleep 60";
  nodes.start(0, {}, script);
  REQUIRE(eventually([&] { return !list_line(id).empty(); }));
  Running following({.argv = {drun_program(), "logs", id, "0", "--follow"}});
  REQUIRE(eventually([&] {  // it has seen that no round has begun
    const std::string descriptors = "/proc/" + std::to_string(following.pid()) + "/fd";
    return std::any_of(std::filesystem::directory_iterator(descriptors), {}, [](const auto& fd) {
      std::error_code ec;
      return std::filesystem::read_symlink(fd, ec).string().find("pidfd") != std::string::npos;
    });
  }));
  nodes.start(1, {}, script);
  CHECK(following.prints("round 0\nround 1\nround 2\n"));
  drun({"stop", id});
  nodes.wait();
  following.wait();
}

TEST_CASE("drun logs on one node prints and follows the lines of ranks of other nodes") {
  const TemporaryDirectory directory;
  const std::string id = own_id("logs-remote");
  Nodes nodes(3, {"--rdzv-id=" + id, "--nproc-per-node=2", "--redirects=3", "--max-restarts=1",
                  "--log-dir=" + directory.path()});
  const std::string go = nodes.directory().file("go");
  const std::string up = nodes.directory().file("up");
  const std::string script =
      "echo rank $RANK round $TORCHELASTIC_RESTART_COUNT; echo error $RANK >&2; touch " + up +
      "$RANK; [ $TORCHELASTIC_RESTART_COUNT = 0 ] || exec sleep 60\n"
      "while [ ! -e " +
      go + " ]; do sleep 0.02; done; [ $RANK != 5 ] || exit 3; exec sleep 60";
  for (int node = 0; node < 3; ++node) {
    Words options;
    // A long file of rank 4.
    nodes.start(node, options, "[ $RANK != 4 ] || seq 1 40000\n" + script);
  }
  for (int rank = 0; rank < 6; ++rank)
    REQUIRE(eventually([&] { return access((up + std::to_string(rank)).c_str(), F_OK) == 0; }));
  // All agents are on this machine: ask one that has only two of the ranks, by its pid.
  const std::string asked = std::to_string(nodes[1].pid());
  CHECK(drun({"logs", asked, "5", "--stdout"}).out == "rank 5 round 0\n");
  CHECK(drun({"logs", asked, "0,2,5", "-g", "error"}).out ==
        "[default0]:error 0\n[default0]:error 2\n[default1]:error 5\n");
  CHECK(drun({"logs", asked, "4", "--stdout", "--tail=2"}).out == "40000\nrank 4 round 0\n");
  const std::string all = drun({"logs", asked, "4", "--stdout"}).out;
  CHECK(std::count(all.begin(), all.end(), '\n') == 40001);
  CHECK_THAT(all, StartsWith("1\n2\n3\n") && EndsWith("\n39999\n40000\nrank 4 round 0\n"));
  const Ended beyond = drun({"logs", asked, "6"});
  CHECK(beyond.code == 1);
  CHECK_THAT(beyond.err, ContainsSubstring("has no rank 6, but ranks 0-5"));

  Running following({.argv = {drun_program(), "logs", asked, "0", "--stdout", "--follow"}});
  CHECK(following.prints("rank 0 round 0\n"));
  write_file(go, "");
  CHECK(following.prints("rank 0 round 1\n"));  // after the restart
  // A suspended node is named; the others still answer.
  const pid_t agent = agent_of(std::to_string(nodes[2].pid()));
  REQUIRE(kill(agent, SIGSTOP) == 0);
  const Ended silent = drun({"logs", asked, "1,5", "--stdout"});
  kill(agent, SIGCONT);
  CHECK(silent.code == 1);
  CHECK_THAT(silent.out, ContainsSubstring("rank 1 round 1\n"));
  CHECK_THAT(silent.err, ContainsSubstring("rank 5 stdout: node 2 (") &&
                             ContainsSubstring(": no answer in 5 s"));
  CHECK(drun({"stop", id}).code == 0);
  const Ended ended = following.wait();
  CHECK(ended.code == 0);
  CHECK(ended.out == "rank 0 round 0\nrank 0 round 1\n");
  nodes.wait();
}

TEST_CASE("drun logs --follow stays with a rank that moves to another node") {
  const TemporaryDirectory directory;
  const std::string id = own_id("logs-moves");
  const Words options{"--nnodes=2:3",
                      "--rdzv-backend=c10d",
                      "--rdzv-endpoint=127.0.0.1:" + std::to_string(free_port()),
                      "--rdzv-id=" + id,
                      "--tee=1",
                      "--log-dir=" + directory.path(),
                      "--min-uptime=0"};
  const std::string script =
      "[ $RANK != 2 ] || echo first; echo rank $RANK round $DRUN_ROUND; exec sleep 60";
  const auto start = [&](bool is_host) {
    const std::string conf = std::string("--rdzv-conf=last_call_timeout=30,is_host=");
    return std::make_unique<Running>(
        shell_job(options + Words{conf + (is_host ? "1" : "0")}, script));
  };
  const std::unique_ptr<Running> first = start(true);
  std::unique_ptr<Running> leaving = start(false);
  std::unique_ptr<Running> moving = start(false);
  REQUIRE(first->prints("rank 0 round 0\n"));
  REQUIRE(eventually(
      [&] { return (leaving->out() + moving->out()).find("rank 2") != std::string::npos; }));
  if (leaving->out().find("rank 2") != std::string::npos) std::swap(leaving, moving);
  const auto follow = [](const Running& agent, const std::string& rank) {
    return std::make_unique<Running>(
        Launch{.argv = {drun_program(), "logs", std::to_string(agent.pid()), rank, "--stdout",
                        "--follow"}});
  };
  const auto from_afar = follow(*first, "1");
  const auto at_its_next_node = follow(*moving, "1");
  const auto at_its_last_node = follow(*moving, "2");
  CHECK(from_afar->prints("rank 1 round 0\n"));
  CHECK(at_its_next_node->prints("rank 1 round 0\n"));
  CHECK(at_its_last_node->prints("rank 2 round 0\n"));
  leaving->signal(SIGTERM);
  REQUIRE(moving->prints("rank 1 round 1\n"));
  CHECK(from_afar->prints("rank 1 round 1\n"));
  CHECK(at_its_next_node->prints("rank 1 round 1\n"));
  const std::unique_ptr<Running> fresh = start(false);
  REQUIRE(fresh->prints("rank 2 round 2\n"));
  CHECK(from_afar->prints("rank 1 round 2\n"));
  CHECK(at_its_next_node->prints("rank 1 round 2\n"));
  CHECK(at_its_last_node->prints("rank 2 round 2\n"));
  CHECK(drun({"stop", id}).code == 0);
  const std::string lines = "rank 1 round 0\nrank 1 round 1\nrank 1 round 2\n";
  CHECK(from_afar->wait().out == lines);
  CHECK(at_its_next_node->wait().out == lines);
  CHECK(at_its_last_node->wait().out == "first\nrank 2 round 0\nfirst\nrank 2 round 2\n");
}

TEST_CASE("drun logs finds the lines that --gather-logs has brought to node 0") {
  const TemporaryDirectory directory;
  const std::string id = own_id("logs-gathered");
  Nodes nodes(2, {"--rdzv-id=" + id, "--gather-logs", "--tee=1", "--log-dir=" + directory.path()});
  for (int node = 0; node < 2; ++node) nodes.start(node, {}, "echo from $RANK; exec sleep 60");
  REQUIRE(nodes[0].prints("from 1"));
  REQUIRE(nodes[0].prints("from 0"));
  for (const int node : {0, 1}) {
    const std::string asked = std::to_string(nodes[node].pid());
    CHECK(eventually([&] { return drun({"logs", asked, "0", "--stdout"}).out == "from 0\n"; }));
    CHECK(eventually([&] { return drun({"logs", asked, "1", "--stdout"}).out == "from 1\n"; }));
  }
  CHECK(drun({"stop", id}).code == 0);
  nodes.wait();
}

}  // namespace drun::testing
