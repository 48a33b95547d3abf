// Tests NCCL's RAS service as a sign and as evidence of a hang, with a stand-in for the service
// (workers/ras_rank.cc).
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"
#include "tests/support/job.h"
#include "tests/support/places.h"

namespace drun::testing {
namespace {

using nlohmann::json;

struct Ran {
  Ended ended;
  json report;
};

// Three ranks on one node.
Ran run_ranks(const std::string& mode, const Words& options) {
  const TemporaryDirectory directory;
  const std::string report = directory.file("report");
  Ran ran;
  ran.ended = run(job(Words{"--nproc-per-node=3", "--report=" + report} + options,
                      {built("workers/ras_rank"), directory.path(), mode}));
  ran.report = json::parse(read_file(report));
  return ran;
}

}  // namespace

TEST_CASE("if all ranks sleep, the rank that is behind in NCCL is the root cause of the hang") {
  const Ran ran = run_ranks("lags", {"--hang-timeout=2", "--max-restarts=1"});
  CAPTURE(ran.ended.err);
  CHECK(ran.ended.code == 0);
  CHECK(ran.report["restarts"] == 1);
  CHECK_THAT(ran.ended.err, ContainsSubstring("rank 2 on node 0"));
  CHECK_THAT(ran.ended.err, ContainsSubstring("at all_reduce 811 in a communicator of 3"));
  CHECK_THAT(ran.ended.err, ContainsSubstring("note: NCCL: rank 2 is at all_reduce 811 in a "
                                              "communicator of 3, the others at 812"));
}

TEST_CASE("a rank that is behind in NCCL and uses CPU time is detected as hung") {
  const Ran ran = run_ranks("spins", {"--hang-timeout=2"});
  CAPTURE(ran.ended.err);
  CHECK(ran.ended.code == 123);
  CHECK(ran.report["root_cause"]["rank"] == 2);
  CHECK(ran.report["failures"].size() == 1);
  CHECK_THAT(ran.ended.err, ContainsSubstring("no output and others waiting for it in NCCL for "));
  CHECK_THAT(ran.report["root_cause"]["traceback"].get<std::string>(),
             ContainsSubstring("NCCL: rank 2 is at all_reduce 811"));
}

TEST_CASE("a rank that does not answer NCCL's service is the root cause") {
  const Ran ran = run_ranks("lost", {"--hang-timeout=2"});
  CAPTURE(ran.ended.err);
  CHECK(ran.ended.code == 123);
  CHECK(ran.report["root_cause"]["rank"] == 2);
  CHECK_THAT(ran.ended.err, ContainsSubstring("NCCL: rank 2 does not answer"));
}

TEST_CASE("a job without output is not hung while its ranks make progress in NCCL") {
  const Ran ran = run_ranks("moves", {"--hang-timeout=1"});
  CAPTURE(ran.ended.err);
  CHECK(ran.ended.code == 0);
  CHECK(ran.report["restarts"] == 0);
}

TEST_CASE("each node finds its ranks in NCCL's answer") {
  const TemporaryDirectory directory;
  Nodes nodes(2, {"--nproc-per-node=2", "--hang-timeout=2"});
  for (int node = 0; node < 2; ++node)
    nodes.start(node, {}, "exec " + built("workers/ras_rank") + " " + directory.path() + " spins");
  const auto all = nodes.wait();
  for (int node = 0; node < 2; ++node) {
    const Ended& ended = all[static_cast<std::size_t>(node)];
    CAPTURE(node, ended.err);
    CHECK(ended.code == 123);
    CHECK(nodes.report(node)["root_cause"]["rank"] == 3);
    CHECK(nodes.report(node)["failures"].size() == 1);
    CHECK_THAT(ended.err, ContainsSubstring("NCCL: rank 3 is at all_reduce 811 in a communicator "
                                            "of 4, the others at 812"));
  }
}

TEST_CASE("the stacks of a job show its ranks' positions in NCCL") {
  const TemporaryDirectory directory;
  const std::string id = "ras-" + directory.path().substr(directory.path().rfind('/') + 1);
  Running running(job({"--nproc-per-node=3", "--hang-timeout=100", "--rdzv-id=" + id},
                      {built("workers/ras_rank"), directory.path(), "lags"}));
  REQUIRE(eventually([&] { return !read_file(directory.file("2")).empty(); }));
  std::string said;
  CHECK(eventually([&] {
    said = run({.argv = {drun_program(), "stacks", id, "--json"}}).out;
    return said.find("NCCL: rank 2 is at all_reduce 811") != said.npos;
  }));
  CAPTURE(said);
  const json found = json::parse(said);
  bool is_told = false;
  for (const json& group : found["groups"])
    is_told = is_told || (group["ranks"] == json({{2, 2}}) && group["nccl"] == "behind");
  CHECK(is_told);
}

TEST_CASE("every job with hang detection has a separate address for NCCL's RAS service") {
  const std::string script = "echo \"<$NCCL_RAS_ADDR>\"";
  const std::string one = run(shell_job({"--hang-timeout=60"}, script)).out;
  const std::string other = run(shell_job({"--hang-timeout=60"}, script)).out;
  CHECK_THAT(one, StartsWith("<127.0.0.1:"));
  CHECK_THAT(other, StartsWith("<127.0.0.1:"));
  CHECK(run(shell_job({}, script)).out == "<>\n");
  CHECK(run({.argv =
                 Words{"env", "NCCL_RAS_ENABLE=0"} + shell_job({"--hang-timeout=60"}, script).argv})
            .out == "<>\n");
  Launch launch = shell_job({"--hang-timeout=60"}, script);
  launch.environment["NCCL_RAS_ENABLE"] = "0";
  CHECK(run(launch).out == "<>\n");
  launch.environment["NCCL_RAS_ENABLE"] = std::nullopt;
  launch.environment["NCCL_RAS_ADDR"] = "localhost:7";
  CHECK(run(launch).out == "<localhost:7>\n");
}

}  // namespace drun::testing
