// The actions that an elected coordinator performs at once and those that it holds back.
#include "rendezvous/coordinator/takeover.h"

#include "tests/support/catch.h"

namespace drun::rendezvous {
namespace {

using namespace std::chrono_literals;

const Time kLedFrom = Time() + 1h;

RoundSpec spec_of_led() {
  RoundSpec spec;
  spec.run_id = "job-1";
  spec.node_count = 4;
  spec.elastic = ElasticSpec{.min_nodes = 2};
  return spec;
}

struct LedRounds {
  explicit LedRounds(int rounds_before) {
    state = tenure.begin(spec_of_led(), 7, {.rounds = rounds_before, .restarts = 1}, kLedFrom);
  }
  // As the state machine does when a world is complete.
  void begin_world() { state.round = state.next_round++; }
  RoundFence::Verdict clear() { return tenure.judge(state, ClearStore{}); }
  RoundFence::Verdict tell() { return tenure.judge(state, SendTo{1, WorldReady{}}); }

  RoundFence tenure;
  RoundState state;
};

}  // namespace

TEST_CASE("a lead starts with the recorded number of rounds and restarts") {
  const LedRounds led(5);
  CHECK(led.state.spec.term == 7);
  CHECK(led.state.next_round == 5);
  CHECK(led.state.restarts.size() == 1);
  CHECK_FALSE(led.state.spec.is_back);
}

TEST_CASE("a world is sent only after its round number is recorded, and then in order") {
  LedRounds led(0);
  CHECK(led.tell() == RoundFence::Verdict::Do);
  led.begin_world();
  CHECK(led.clear() == RoundFence::Verdict::Ask);
  CHECK(led.tell() == RoundFence::Verdict::Hold);
  CHECK(led.tenure.know(0).empty());
  const auto held = led.tenure.know(1);
  REQUIRE(held.size() == 2);
  CHECK(std::holds_alternative<ClearStore>(held.front()));
  CHECK(led.tell() == RoundFence::Verdict::Do);
}

TEST_CASE("held worlds are sent when the last requested number is recorded") {
  LedRounds led(0);
  led.begin_world();
  CHECK(led.clear() == RoundFence::Verdict::Ask);
  led.begin_world();
  CHECK(led.clear() == RoundFence::Verdict::Ask);
  CHECK(led.tenure.know(1).empty());
  CHECK(led.tenure.know(2).size() == 2);
}

TEST_CASE("a held world is sent even if a member reports later rounds meanwhile") {
  LedRounds led(0);
  led.begin_world();
  CHECK(led.clear() == RoundFence::Verdict::Ask);
  led.state.next_round = 9;  // as after a report from a member
  CHECK(led.tenure.know(1).size() == 1);
  led.begin_world();
  CHECK(led.clear() == RoundFence::Verdict::Ask);
  CHECK(led.tenure.know(10).size() == 1);
}

TEST_CASE("a lost lead discards held actions and is recognized if it is the next leader too") {
  LedRounds led(0);
  led.begin_world();
  CHECK(led.clear() == RoundFence::Verdict::Ask);
  CHECK(led.tenure.know(1).size() == 1);
  led.begin_world();
  CHECK(led.clear() == RoundFence::Verdict::Ask);
  CHECK(led.tenure.lose(led.state) == RoundFence::Loss::Lost);
  CHECK(led.tenure.begin(spec_of_led(), 8, {.rounds = 1}, kLedFrom).spec.is_back);
  CHECK_FALSE(led.tenure.begin(spec_of_led(), 9, {.rounds = 2}, kLedFrom).spec.is_back);
  CHECK(led.tenure.know(2).empty());
}

TEST_CASE("a coordinator that steps down does not wait for the number of a held world") {
  LedRounds led(0);
  led.begin_world();
  CHECK(led.clear() == RoundFence::Verdict::Ask);
  CHECK(led.tenure.judge(led.state, StepDown{}) == RoundFence::Verdict::Do);
  CHECK(led.tenure.know(1).empty());
}

TEST_CASE("the outcome is sent without a lead unless an earlier world is still held") {
  const auto phase = GENERATE(RoundPhase::Ending, RoundPhase::Over);
  LedRounds led(0);
  led.state.phase = phase;
  CHECK(tells_the_end(led.state));
  CHECK(led.tenure.lose(led.state) == RoundFence::Loss::Kept);
  led.begin_world();
  CHECK(led.clear() == RoundFence::Verdict::Ask);
  const bool is_over = phase == RoundPhase::Over;
  CHECK(led.tenure.lose(led.state) == (is_over ? RoundFence::Loss::Over : RoundFence::Loss::Lost));
  CHECK(led.tenure.lose(led.state) == RoundFence::Loss::Kept);
}

}  // namespace drun::rendezvous
