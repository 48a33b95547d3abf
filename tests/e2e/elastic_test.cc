// Tests jobs whose nodes join and leave, with real agents on this machine. The first agent to
// listen is the coordinator.

#include <signal.h>

#include "tests/support/catch.h"
#include "tests/support/held_job.h"
#include "tests/support/machine.h"

namespace drun::testing {
namespace {

// With short timeouts. The first agent that starts is the coordinator.
class Elastic : public HeldJob {
 public:
  explicit Elastic(const std::string& nodes, const Words& options = {},
                   std::string timeouts = "last_call_timeout=30")
      : HeldJob(Words{"--nnodes=" + nodes, "--rdzv-backend=c10d", "--rdzv-id=e2e",
                      "--rdzv-endpoint=localhost:" + std::to_string(free_port())} +
                options),
        timeouts_("--rdzv-conf=" + std::move(timeouts)) {}
  Running& start() {
    const std::string is_host = all().empty() ? ",is_host=1" : ",is_host=0";
    return HeldJob::start({timeouts_ + is_host});
  }
  // Any agent may become the coordinator: the first that listens.
  Running& start_any() { return HeldJob::start({timeouts_}); }

 private:
  const std::string timeouts_;
};

}  // namespace

TEST_CASE("c10d with a fixed number of nodes needs no node ranks and finds its coordinator") {
  Elastic job("3");
  for (int i = 0; i < 3; ++i) job.start_any();
  job.go(0, "exit 0");
  std::string all;
  for (std::size_t i = 0; i < 3; ++i) {
    const Ended ended = job[i].wait(40s);
    INFO(ended.err);
    CHECK(ended.code == 0);
    all += ended.out;
  }
  for (const char* line : {"ready 0 0/3 0", "ready 0 1/3 0", "ready 0 2/3 0"})
    CHECK_THAT(all, ContainsSubstring(line));
}

TEST_CASE("a spare replaces a killed node with the same node rank and without using a restart") {
  Elastic job("2:2");
  job.start();
  job.start();
  REQUIRE(job[0].prints("ready 0 0/2 0"));
  REQUIRE(job[1].prints("ready 0 1/2 0"));
  job.start();
  REQUIRE(job[2].prints("is a spare"));
  job[1].signal(SIGKILL);
  CHECK(job[0].prints("ready 1 0/2 0"));
  CHECK(job[2].prints("ready 1 1/2 0"));
  job.go(1, "exit 0");
  for (const std::size_t i : {0U, 2U}) {
    const Ended ended = job[i].wait(40s);
    INFO(ended.err);
    CHECK(ended.code == 0);
  }
}

TEST_CASE("a node that joins during a round starts a new round, and so does one that leaves") {
  Elastic job("1:3", {}, "last_call_timeout=0");
  job.start();
  REQUIRE(job[0].prints("ready 0 0/1 0"));
  job.start();
  REQUIRE(job[0].prints("ready 1 0/2 0"));
  REQUIRE(job[1].prints("ready 1 1/2 0"));
  job[1].signal(SIGTERM);
  const Ended left = job[1].wait(40s);
  INFO(left.err);
  CHECK(left.code == 128 + SIGTERM);
  REQUIRE(job[0].prints("ready 2 0/1 0"));
  job.go(2, "exit 0");
  CHECK(job[0].wait(40s).code == 0);
}

TEST_CASE("with too few nodes left the job waits for a replacement, then fails with the reason") {
  Elastic job("2:3", {}, "last_call_timeout=0.2,join_timeout=2");
  job.start();
  job.start();
  REQUIRE(job[0].prints("ready 0 0/2 0"));
  REQUIRE(job[1].prints("ready 0 1/2 0"));
  job[1].signal(SIGKILL);
  REQUIRE(job[0].prints("waiting for nodes: 1 of 2 to 3 nodes joined"));
  SECTION("a replacement joins") {
    job.start();
    CHECK(job[2].prints("ready 1 1/2 0"));
    job.go(1, "exit 0");
    CHECK(job[0].wait(40s).code == 0);
    CHECK(job[2].wait(40s).code == 0);
  }
  SECTION("no replacement joins") {
    const Ended ended = job[0].wait(40s);
    INFO(ended.err);
    CHECK(ended.code == 122);
    CHECK_THAT(ended.err,
               ContainsSubstring("node 1") && ContainsSubstring("replacement came: 1 of "));
  }
}

TEST_CASE("a failure in an elastic job restarts all nodes and counts as a restart") {
  Elastic job("2:2", {"--max-restarts=1"});
  job.start();
  job.start();
  REQUIRE(job[0].prints("ready 0 0/2 0"));
  job.go(0, "[ $RANK = 1 ] && exit 7; exec sleep 600");
  REQUIRE(job[0].prints("ready 1 0/2 1"));
  job.go(1, "[ $RANK = 1 ] && exit 8; exec sleep 600");
  for (const std::size_t i : {0U, 1U}) {
    const Ended ended = job[i].wait(40s);
    INFO(ended.err);
    CHECK(ended.code == 8);
    CHECK_THAT(ended.err, ContainsSubstring("1 of 1 restart used"));
  }
}

TEST_CASE("a node whose workers fail is replaced by a spare, and all nodes report the reason") {
  Elastic job("2:2", {"--max-restarts=3", "--exclude-after=1"});
  job.start();
  job.start();
  REQUIRE(job[0].prints("ready 0 0/2 0"));
  REQUIRE(job[1].prints("ready 0 1/2 0"));
  job.start();
  REQUIRE(job[2].prints("is a spare"));
  job.go(0, "[ $GROUP_RANK = 1 ] && exit 7; exec sleep 600");
  const Ended left_out = job[1].wait(40s);
  INFO(left_out.err);
  CHECK(left_out.code == 7);
  CHECK_THAT(left_out.err, ContainsSubstring("the job continues without node 1") &&
                               ContainsSubstring("\n  excluded   node 1"));
  REQUIRE(job[2].prints("ready 1 1/2 1"));
  job.go(1, "exit 0");
  for (const std::size_t i : {0U, 2U}) {
    const Ended ended = job[i].wait(40s);
    INFO(ended.err);
    CHECK(ended.code == 0);
    CHECK_THAT(ended.err, ContainsSubstring("its workers were the first to fail in a round "
                                            "(--exclude-after=1)"));
  }
}

TEST_CASE("when the coordinator's agent dies, the other nodes stop and report it at once") {
  Elastic job("1:2", {"--heartbeat-timeout=60"});
  job.start();
  job.start();
  REQUIRE(job[1].prints("ready 0 1/2 0"));
  job[0].signal(SIGKILL);
  const Ended ended = job[1].wait(20s);
  INFO(ended.err);
  CHECK(ended.code == 122);
  CHECK_THAT(ended.err, ContainsSubstring(", the coordinator"));
}

TEST_CASE("a suspended agent is lost within the heartbeat timeout, and can join again") {
  Elastic job("1:2", {"--heartbeat-timeout=2"});
  job.start();
  job.start();
  REQUIRE(job[0].prints("ready 0 0/2 0"));
  REQUIRE(job[1].prints("ready 0 1/2 0"));
  const auto frozen = std::chrono::steady_clock::now();
  const pid_t agent = job.agent(0, 1);
  REQUIRE(kill(agent, SIGSTOP) == 0);
  REQUIRE(job[0].prints("ready 1 0/1 0"));
  // 2 s plus 1 s, and the time that a busy machine needs to start a shell.
  CHECK(std::chrono::steady_clock::now() - frozen < test::scaled(6s));
  REQUIRE(kill(agent, SIGCONT) == 0);
  CHECK(job[1].prints("ready 2 1/2 0"));
  job.go(2, "exit 0");
  CHECK(job[0].wait(40s).code == 0);
  CHECK(job[1].wait(40s).code == 0);
}

TEST_CASE("exit codes in --no-restart-on end the job, and other restarts wait for the backoff") {
  Elastic job("1:1", {"--max-restarts=5/1h", "--no-restart-on=3", "--restart-backoff=0.1"});
  job.start();
  REQUIRE(job[0].prints("ready 0 0/1 0"));
  job.go(0, "exit 4");
  REQUIRE(job[0].prints("ready 1 0/1 1"));
  job.go(1, "exit 3");
  const Ended ended = job[0].wait(40s);
  INFO(ended.err);
  CHECK(ended.code == 3);
  CHECK_THAT(ended.err, ContainsSubstring("restart 1 of at most 5 within 1h, in 100ms") &&
                            ContainsSubstring("no restart: --no-restart-on names it"));
}

}  // namespace drun::testing
