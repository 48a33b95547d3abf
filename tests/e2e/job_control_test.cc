// Tests drun list, drun stop and drun logs on jobs of this machine.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/job.h"

namespace drun::testing {
namespace {

using nlohmann::json;

Ended drun(const Words& words) { return run({.argv = Words{drun_program()} + words}); }

std::string own_id(const std::string& name) { return name + "-" + std::to_string(getpid()); }

// The line of drun list that begins with this word.
std::string list_line(const std::string& job) {
  std::istringstream lines(drun({"list"}).out);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(job + " ")) return line;
  return "";
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
  REQUIRE(eventually([&] { return !list_line(second).empty(); }));
  CHECK_THAT(list_line(second), ContainsSubstring("  joining  1/2    -        0         "));
  const std::string line = list_line(first);
  CHECK_THAT(line, ContainsSubstring("  running  1      2        0/3       "));
  CHECK_THAT(line, EndsWith("  sh -c echo up; exec sleep 60"));
  const std::string table = drun({"list"}).out;
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
  // In a network namespace of its own there are no agents.
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

}  // namespace drun::testing
