#include "tests/support/round_driver.h"

#include "tests/support/catch.h"

namespace drun::test {

using namespace rendezvous;

RoundSpec fixed_spec(int node_count, int max_restarts) {
  RoundSpec spec;
  spec.run_id = "job-1";
  spec.node_count = node_count;
  spec.max_restarts = max_restarts;
  spec.endpoint = "10.0.0.1:29500";
  spec.master_addr = "10.0.0.1";
  spec.master_port = 29500;
  spec.make_stack_answers = agent::make_merged_stacks;
  return spec;
}

RoundDriver running_round(int node_count, int max_restarts) {
  RoundDriver round(fixed_spec(node_count, max_restarts));
  round.join_all();
  REQUIRE(round.state.phase == RoundPhase::Running);
  return round;
}

void RoundDriver::event(const RoundEvent& event) { actions = step(state, event, now); }

void RoundDriver::receive(Peer peer, const MemberMessage& message) {
  event(PeerSaid{peer, message});
}

std::uint64_t RoundDriver::number_asked(int node_rank) const {
  const auto queries = sent<NodeQuery>(peer(node_rank));
  REQUIRE(queries.size() == 1);
  return queries[0].number;
}

QueryResult RoundDriver::result(int node_rank, std::uint64_t number) const {
  const auto results = sent<QueryResult>(peer(node_rank));
  REQUIRE(results.size() == 1);
  CHECK(results[0].number == number);
  return results[0];
}

void RoundDriver::leave(Peer peer) { event(PeerLeft{peer, "its connection closed"}); }

void RoundDriver::wait(Milliseconds time) {
  now += time;
  event(RoundTick{});
}

void RoundDriver::join(Peer peer, const Hello& hello) {
  event(PeerArrived{peer, "10.0.0.9:" + std::to_string(peer), hello});
}

}  // namespace drun::test
