// Tests jobs with three endpoints, each an agent on this machine: another agent takes over if the
// coordinator's agent is lost.

#include <signal.h>

#include "tests/support/catch.h"
#include "tests/support/held_job.h"
#include "tests/support/job_traces.h"
#include "tests/support/machine.h"

namespace drun::testing {
namespace {

using Clock = std::chrono::steady_clock;

// Three agents. Each takes a free endpoint, in the order in which they start.
class Failover : public HeldJob {
 public:
  explicit Failover(const std::string& nodes, const Words& options = {},
                    const std::string& timeouts = "last_call_timeout=30")
      : HeldJob(Words{"--nnodes=" + nodes, "--rdzv-backend=c10d", "--rdzv-id=failover",
                      "--rdzv-endpoint=" + three_endpoints(), "--rdzv-conf=" + timeouts,
                      "--heartbeat-timeout=3"} +
                options) {
    start(3);
  }

 private:
  static std::string three_endpoints() {
    std::string endpoints;
    for (int i = 0; i < 3; ++i)
      endpoints += (i == 0 ? "127.0.0.1:" : ",127.0.0.1:") + std::to_string(free_port());
    return endpoints;
  }
};

}  // namespace

TEST_CASE("when the coordinator's agent is killed, another takes over, and the job succeeds") {
  Failover job("1:3");
  Running& first = job.that_prints("ready 0 0/3 0");
  Running& second = job.that_prints("ready 0 1/3 0");
  Running& third = job.that_prints("ready 0 2/3 0");
  const auto killed = Clock::now();
  REQUIRE(kill(job.agent(0, 0), SIGKILL) == 0);
  Running& leader = job.that_prints("ready 1 0/2 0");
  Running& other = job.that_prints("ready 1 1/2 0");
  // The lease is 1 s; the rest is for a busy machine.
  CHECK(Clock::now() - killed < test::scaled(6s));
  CHECK(&leader != &other);
  CHECK((&leader == &second || &leader == &third));
  CHECK(leader.prints("this node coordinates the job from here on"));
  job.go(1, "exit 0");
  check_ends({&leader, &other}, 0);
  CHECK(first.wait(40s).code == 128 + SIGKILL);
}

TEST_CASE("a coordinator's agent that gets SIGTERM hands the job over at once") {
  Failover job("1:3");
  Running& first = job.that_prints("ready 0 0/3 0");
  job.that_prints("ready 0 1/3 0");
  job.that_prints("ready 0 2/3 0");
  const auto told = Clock::now();
  REQUIRE(kill(job.agent(0, 0), SIGTERM) == 0);
  Running& leader = job.that_prints("ready 1 0/2 0");
  Running& other = job.that_prints("ready 1 1/2 0");
  CHECK(Clock::now() - told < test::scaled(5s));  // for a busy machine
  CHECK(leader.prints("this node coordinates the job from here on"));
  const auto left = first.wait(40s);
  CHECK(left.code == 128 + SIGTERM);
  CHECK_THAT(left.err, ContainsSubstring("another node is to coordinate the job"));
  CHECK_THAT(left.err, ContainsSubstring("leaving the job"));
  CHECK_THAT(left.err,
             ContainsSubstring("this node does not coordinate the job any more: it leaves"));
  // Two of three seats are left. Without this agent there would be no majority, so its signal ends
  // the job.
  REQUIRE(kill(job.agent(1, 0), SIGTERM) == 0);
  check_ends({&leader, &other}, 128 + SIGTERM);
}

TEST_CASE("a suspended coordinator's agent steps down on resume and joins its successor") {
  Failover job("1:3");
  Running& first = job.that_prints("ready 0 0/3 0");
  const pid_t agent = job.agent(0, 0);
  REQUIRE(kill(agent, SIGSTOP) == 0);
  job.that_prints("ready 1 1/2 0");
  REQUIRE(kill(agent, SIGCONT) == 0);
  CHECK(first.prints("this node does not coordinate the job any more"));
  // It was also lost as a node, and is admitted again once it has been present for a while.
  job.that_prints("ready 2 2/3 0");
  CHECK(first.prints("ready 2 "));
  job.go(2, "exit 0");
  check_ends(job.all(), 0);
}

TEST_CASE("the loss of a coordinator keeps the count of used restarts and uses none") {
  Failover job("2:3", {"--max-restarts=1"});
  job.that_prints("ready 0 0/3 0");
  job.go(0, "[ $RANK = 1 ] && exit 7; exec sleep 600");
  Running& first = job.that_prints("ready 1 0/3 1");
  REQUIRE(kill(job.agent(1, 0), SIGKILL) == 0);
  Running& leader = job.that_prints("ready 2 0/2 1");
  Running& other = job.that_prints("ready 2 1/2 1");
  job.go(2, "[ $RANK = 1 ] && exit 8; exec sleep 600");
  check_ends({&leader, &other}, 8, "1 of 1 restart used");
  CHECK(first.wait(40s).code == 128 + SIGKILL);
}

TEST_CASE("without a majority of the endpoints the job ends and reports the missing coordinator") {
  Failover job("1:3", {}, "last_call_timeout=30,join_timeout=4");
  Running& first = job.that_prints("ready 0 0/3 0");
  Running& second = job.that_prints("ready 0 1/3 0");
  Running& third = job.that_prints("ready 0 2/3 0");
  const pid_t other = job.agent(0, 1);
  REQUIRE(kill(job.agent(0, 0), SIGKILL) == 0);
  REQUIRE(kill(other, SIGKILL) == 0);
  check_ends({&third}, 122, "has a coordinator");
  CHECK(first.wait(40s).code == 128 + SIGKILL);
  CHECK(second.wait(40s).code == 128 + SIGKILL);
}

}  // namespace drun::testing
