// The job status query between a member, its agent and the coordinator.
#include "rendezvous/member/member.h"

#include "tests/support/catch.h"
#include "tests/support/member_driver.h"

namespace drun::rendezvous {
namespace {

using test::MemberDriver;
using Phase = MemberPhase;

}  // namespace

TEST_CASE("a member forwards a status query to the coordinator and returns the answer") {
  const Phase phase =
      GENERATE(Phase::Joined, Phase::Running, Phase::Done, Phase::Stopping, Phase::Stopped);
  MemberDriver member = MemberDriver::in(phase);
  member.event(OwnCensusQuestion{3});
  CHECK(member.sent<CensusRequest>().question == 3);
  Census census;
  census.job.world_size = 6;
  member.receive(CensusReply{3, census});
  CHECK(member.only<CensusResult>().question == 3);
  CHECK(member.only<CensusResult>().census == census);
}

TEST_CASE("a member without a coordinator answers a status query at once with a note") {
  const Phase phase =
      GENERATE(Phase::Resting, Phase::Dialing, Phase::Greeting, Phase::Leaving, Phase::Ending);
  MemberDriver member = MemberDriver::in(phase);
  member.event(OwnCensusQuestion{3});
  CHECK_FALSE(member.only<CensusResult>().census.note.empty());
}

TEST_CASE("a member asks its agent for the node's summary and sends it to the coordinator") {
  MemberDriver member = MemberDriver::in(Phase::Running);
  member.receive(SummaryRequest{8});
  CHECK(member.only<SummarizeNode>().census == 8);
  const NodeSummary summary{.phase = NodePhase::Running, .workers_running = 2};
  member.event(OwnSummary{8, summary});
  CHECK(member.sent<SummaryReply>() == SummaryReply{8, summary});
}

}  // namespace drun::rendezvous
