// Tests a coordinator whose own agent ends before the job.
#include "tests/support/catch.h"
#include "tests/support/elastic_job.h"

namespace drun::rendezvous {
namespace {

using test::inelastic_spec;
using test::RoundDriver;

}  // namespace

TEST_CASE("a coordinator is over at once if its agent ends before any node has joined") {
  const RoundSpec spec = GENERATE(inelastic_spec(3), test::elastic_spec(1, 3));
  RoundDriver round(spec);
  round.event(CoordinatorEnded{});
  CHECK(round.count<RoundOver>() == 1);
  CHECK_FALSE(deadline(round.state));
}

TEST_CASE("waiting members receive the reason when the coordinator's agent ends") {
  RoundDriver round(inelastic_spec(3));
  round.join(1);
  round.event(CoordinatorEnded{});
  const auto finish = round.sent<Finish>(RoundDriver::peer(1));
  REQUIRE(finish.size() == 1);
  const auto* lost = std::get_if<NodeLost>(&finish[0].outcome.ending);
  REQUIRE(lost != nullptr);
  CHECK(lost->is_coordinator);
  CHECK(lost->reason == "the coordinator's agent has ended");
  round.leave(RoundDriver::peer(1));
  CHECK(round.count<RoundOver>() == 1);
}

TEST_CASE("a coordinator that waits for nodes releases its members when its own agent ends") {
  RoundDriver round(inelastic_spec(3));
  round.join(0);
  round.join(1);
  round.event(CoordinatorEnded{});
  CHECK(round.dropped(RoundDriver::peer(0)));
  CHECK(round.sent<Finish>(RoundDriver::peer(1)).size() == 1);
  test::ElasticJob job(2, 3);
  job.come(0);
  job.event(CoordinatorEnded{});
  CHECK(job.count<RoundOver>() == 1);
}

TEST_CASE("a job whose coordinator's agent has ended stops its workers first") {
  RoundDriver round(inelastic_spec(3));
  round.join_all();
  round.event(CoordinatorEnded{});
  CHECK(round.sent<Stop>(RoundDriver::peer(1)).size() == 1);
  for (const int node : {1, 2}) round.receive(RoundDriver::peer(node), Stopped{0, {}, 0});
  CHECK(round.sent<Finish>(RoundDriver::peer(1)).size() == 1);
}

TEST_CASE("the end of the coordinator's agent does not change an outcome that was already sent") {
  RoundDriver round(inelastic_spec(3));
  round.join_all();
  for (const int node : {0, 1, 2}) round.receive(RoundDriver::peer(node), AllReturned{0});
  REQUIRE(round.state.phase == RoundPhase::Ending);
  round.event(CoordinatorEnded{});
  CHECK(round.actions.empty());
}

}  // namespace drun::rendezvous
