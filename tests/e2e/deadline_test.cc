// Tests --time-limit and --signal-before: jobs that stop before their time limit.
#include <chrono>

#include "tests/support/catch.h"
#include "tests/support/job.h"

namespace drun::testing {

TEST_CASE(
    "before the time limit each worker gets a signal and can save its state without a failure") {
  Nodes nodes(2, {"--nproc-per-node=2", "--time-limit=5", "--signal-before=4:SIGUSR1",
                  "--shutdown-timeout=1"});
  // The signal must not end the helper process, which does not handle it.
  const std::string script =
      "sleep 100 & trap 'echo saved $RANK; kill $!; wait; exit 1' USR1; echo ready $RANK; "
      "while :; do wait; done";
  for (const int node : {1, 0}) nodes.start(node, {}, script);
  const auto ended = nodes.wait();
  for (const int node : {0, 1}) {
    const Ended& one = ended[static_cast<std::size_t>(node)];
    INFO(one.out << one.err);
    CHECK(one.code == 124);
    for (const int rank : {2 * node, 2 * node + 1})
      CHECK_THAT(one.out, ContainsSubstring("saved " + std::to_string(rank)));
    CHECK_THAT(one.err, ContainsSubstring("job preempted after") &&
                            ContainsSubstring("the time limit of 5s ends"));
    const nlohmann::json report = nodes.report(node);
    CHECK(report["outcome"] == "preempted");
    CHECK(report["exit_code"] == 124);
    CHECK(report["failures"].empty());
  }
}

TEST_CASE("workers that ignore the signal are stopped before the time limit") {
  const auto began = std::chrono::steady_clock::now();
  const Ended ended = run(shell_job({"--standalone", "--nproc-per-node=2", "--time-limit=6",
                                     "--signal-before=5:SIGUSR1", "--shutdown-timeout=1"},
                                    "trap '' TERM; while :; do sleep 0.1; done"),
                          60s);
  INFO(ended.err);
  CHECK(ended.code == 124);
  // The stop starts early enough to leave one second for the report and one for --shutdown-timeout.
  CHECK(std::chrono::steady_clock::now() - began >= 3s);
  CHECK(std::chrono::steady_clock::now() - began < 6s + test::scaled(2s));
}

TEST_CASE("a signal before a missing time limit is an error before anything starts") {
  const Ended ended = run(shell_job({"--standalone", "--signal-before=60"}, "echo started"), 60s);
  CHECK(ended.code == 2);
  CHECK(ended.out.empty());
  CHECK_THAT(ended.err, ContainsSubstring("--time-limit"));
}

}  // namespace drun::testing
