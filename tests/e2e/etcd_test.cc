// Tests jobs whose coordinator is elected by a real etcd. Each agent is a process on this machine.

#include <signal.h>
#include <sys/stat.h>

#include "tests/support/catch.h"
#include "tests/support/etcd_server.h"
#include "tests/support/held_job.h"
#include "tests/support/job_traces.h"
#include "tests/support/machine.h"

namespace drun::testing {
namespace {

using Clock = std::chrono::steady_clock;

// The lease is 2 s.
const char* const kHeartbeats = "--heartbeat-timeout=4";

const Words kEtcdOptions = {"--rdzv-backend=etcd-v3", "--rdzv-id=elected", kHeartbeats};

class Elected : public HeldJob {
 public:
  Elected(const std::string& endpoints, const std::string& nodes, const Words& options = {},
          const std::string& timeouts = "last_call_timeout=30")
      : HeldJob(
            kEtcdOptions +
            Words{"--nnodes=" + nodes, "--rdzv-endpoint=" + endpoints, "--rdzv-conf=" + timeouts} +
            options) {}
};

template <typename Etcd>
bool is_skipped(const Etcd& etcd) {
  if (etcd.why_not().empty()) return false;
  WARN("skipped: " + etcd.why_not());
  return true;
}

}  // namespace

TEST_CASE("etcd elects another coordinator when the first is killed, and the job succeeds") {
  const EtcdServer etcd;
  if (is_skipped(etcd)) return;
  Elected job("127.0.0.1:1," + etcd.endpoint(), "1:3");
  job.start(3);
  Running& first = job.that_prints("ready 0 0/3 0");
  job.that_prints("ready 0 1/3 0");
  job.that_prints("ready 0 2/3 0");
  const auto killed = Clock::now();
  REQUIRE(kill(job.agent(0, 0), SIGKILL) == 0);
  Running& leader = job.that_prints("ready 1 0/2 0");
  // One lease and a second; the rest is for a busy machine.
  CHECK(Clock::now() - killed < test::scaled(6s));
  Running& other = job.that_prints("ready 1 1/2 0");
  CHECK(&leader != &other);
  CHECK(&leader != &first);
  CHECK(leader.prints("this node coordinates the job from here on"));
  job.go(1, "exit 0");
  check_ends({&leader, &other}, 0);
  CHECK(first.wait(40s).code == 128 + SIGKILL);
}

TEST_CASE("a coordinator that gets SIGTERM hands the job over to the next one that etcd elects") {
  const EtcdServer etcd;
  if (is_skipped(etcd)) return;
  Elected job(etcd.endpoint(), "1:3");
  job.start(3);
  Running& first = job.that_prints("ready 0 0/3 0");
  job.that_prints("ready 0 2/3 0");
  const auto told = Clock::now();
  REQUIRE(kill(job.agent(0, 0), SIGTERM) == 0);
  Running& second = job.that_prints("ready 1 0/2 0");
  CHECK(Clock::now() - told < test::scaled(5s));  // for a busy machine
  CHECK(first.wait(40s).code == 128 + SIGTERM);
  REQUIRE(kill(job.agent(1, 0), SIGTERM) == 0);
  Running& last = job.that_prints("ready 2 0/1 0");
  CHECK(second.wait(40s).code == 128 + SIGTERM);
  job.go(2, "exit 0");
  check_ends({&last}, 0);
}

TEST_CASE("a suspended coordinator steps down on resume and joins the newly elected one") {
  const EtcdServer etcd;
  if (is_skipped(etcd)) return;
  Elected job(etcd.endpoint(), "1:3");
  job.start(3);
  Running& first = job.that_prints("ready 0 0/3 0");
  const pid_t agent = job.agent(0, 0);
  REQUIRE(kill(agent, SIGSTOP) == 0);
  job.that_prints("ready 1 1/2 0");
  REQUIRE(kill(agent, SIGCONT) == 0);
  CHECK(first.prints("this node does not coordinate the job any more"));
  job.that_prints("ready 2 2/3 0");
  CHECK(first.prints("ready 2 "));
  job.go(2, "exit 0");
  check_ends(job.all(), 0);
}

TEST_CASE("restart counts and excluded nodes are kept in etcd when the coordinator is lost") {
  const EtcdServer etcd;
  if (is_skipped(etcd)) return;
  Elected job(etcd.endpoint(), "2:4", {"--max-restarts=2", "--exclude-after=1"});
  job.start(4);
  job.that_prints("ready 0 3/4 0");
  Running& culprit = job.that_prints("ready 0 2/4 0");
  job.go(0, "[ $RANK = 2 ] && exit 7; exec sleep 600");
  const Ended left_out = culprit.wait(40s);
  CHECK(left_out.code == 7);
  CHECK_THAT(left_out.err, ContainsSubstring("\n  excluded   node 2"));
  job.that_prints("ready 1 0/3 1");
  REQUIRE(kill(job.agent(1, 0), SIGKILL) == 0);
  job.that_prints("ready 2 0/2 1");
  // Agents on one host are distinguished by their slots. Two slots are free now, so at least one
  // new agent gets the slot of the excluded node.
  job.start(2);
  job.that_prints("it was left out of this job");
}

TEST_CASE("a job continues while etcd is down for less than a lease, without a new round") {
  EtcdServer etcd;
  if (is_skipped(etcd)) return;
  Elected job(etcd.endpoint(), "1:2", {"--heartbeat-timeout=40"});  // a lease of 20 s
  job.start(2);
  job.that_prints("ready 0 0/2 0");
  job.that_prints("ready 0 1/2 0");
  etcd.kill();
  Running& leader = job.that_prints("no answer from etcd at");
  etcd.start();
  CHECK(leader.prints("answers again"));
  job.go(0, "exit 0");
  check_ends(job.all(), 0);
}

TEST_CASE(
    "if etcd is down for longer, the workers are stopped, and the job continues when it is back") {
  EtcdServer etcd;
  if (is_skipped(etcd)) return;
  Elected job(etcd.endpoint(), "2:2");
  job.start(2);
  Running& first = job.that_prints("ready 0 0/2 0");
  job.that_prints("ready 0 1/2 0");
  etcd.kill();
  CHECK(first.prints("this node does not coordinate the job any more: etcd at " + etcd.endpoint() +
                     " has not renewed its lease"));
  CHECK(job.that_prints("waiting for etcd at " + etcd.endpoint()).prints("refused"));
  etcd.start();
  job.that_prints("ready 1 0/2 0");
  job.that_prints("ready 1 1/2 0");
  job.go(1, "exit 0");
  check_ends(job.all(), 0);
}

TEST_CASE("with three etcd members a job survives the loss of any one member but not of two",
          "[slow]") {
  EtcdCluster etcd(3);
  if (is_skipped(etcd)) return;
  Elected job(etcd.endpoints(), "2:3", {"--heartbeat-timeout=10"});  // a lease of 5 s
  job.start(3);
  job.that_prints("ready 0 0/3 0");
  job.that_prints("ready 0 1/3 0");
  job.that_prints("ready 0 2/3 0");
  // Each member is down for longer than a lease, whichever is etcd's leader or drun's endpoint.
  for (int i = 0; i < 3; ++i) {
    etcd.member(i).kill();
    CHECK_FALSE(job.all().front()->prints("ready 1", 6s));
    etcd.member(i).start();
    REQUIRE(eventually([&] { return etcd.member(i).is_healthy(); }, 30s));
  }
  for (Running* agent : job.all()) CHECK_THAT(agent->out(), !ContainsSubstring("ready 1"));

  etcd.member(1).kill();
  REQUIRE(kill(job.agent(0, 0), SIGKILL) == 0);
  Running& leader = job.that_prints("ready 1 0/2 0");
  Running& other = job.that_prints("ready 1 1/2 0");

  etcd.member(2).kill();
  CHECK(leader.prints("this node does not coordinate the job any more"));
  etcd.member(1).start();
  job.that_prints("ready 2 0/2 0");
  job.that_prints("ready 2 1/2 0");
  job.go(2, "exit 0");
  check_ends({&leader, &other}, 0);
}

TEST_CASE("an unreachable etcd is named, and the job fails at the join timeout") {
  const int port = free_port();
  const std::string place = "127.0.0.1:" + std::to_string(port);
  Running agent(shell_job(kEtcdOptions + Words{"--nnodes=2:3", "--rdzv-endpoint=" + place,
                                               "--rdzv-conf=join_timeout=4"},
                          "exit 0"));
  CHECK(agent.prints("waiting for etcd at " + place + ": "));
  const Ended ended = agent.wait(20s);
  CHECK(ended.code != 0);
  CHECK_THAT(ended.err, ContainsSubstring("gave up waiting for etcd at " + place));
  CHECK_THAT(ended.err, ContainsSubstring("check --rdzv-endpoint"));
}

TEST_CASE("a finished job leaves nothing in etcd, and its run id can be reused at once") {
  const EtcdServer etcd;
  if (is_skipped(etcd)) return;
  for (int i = 0; i < 3; ++i) {
    Elected job(etcd.endpoint(), "2:2", i == 2 ? Words{"--rdzv-backend=etcd"} : Words{});
    job.start(2);
    const auto began = Clock::now();
    job.that_prints("ready 0 0/2 0");
    CHECK(Clock::now() - began < test::scaled(2s));
    job.go(0, i == 1 ? "exit 3" : "exit 0");
    check_ends(job.all(), i == 1 ? 3 : 0);
  }
}

}  // namespace drun::testing
