// What an elected coordinator does at once, and what it holds back.
#include "rendezvous/coordinator/round_fence.h"

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
  // As the machine does when a world is complete.
  void begin_world() { state.round = state.next_round++; }
  Tenure::Verdict clear() { return tenure.judge(state, ClearStore{}); }
  Tenure::Verdict tell() { return tenure.judge(state, SendTo{1, WorldReady{}}); }

  Tenure tenure;
  RoundState state;
};

}  // namespace

TEST_CASE("a lead begins with what is known of the rounds before it") {
  const LedRounds led(5);
  CHECK(led.state.spec.term == 7);
  CHECK(led.state.next_round == 5);
  CHECK(led.state.restarts.size() == 1);
  CHECK_FALSE(led.state.spec.is_back);
}

TEST_CASE("nothing of a world is told before later leaders know of it and then all in order") {
  LedRounds led(0);
  CHECK(led.tell() == Tenure::Verdict::Do);
  led.begin_world();
  CHECK(led.clear() == Tenure::Verdict::Ask);
  CHECK(led.tell() == Tenure::Verdict::Hold);
  CHECK(led.tenure.know(0).empty());
  const auto held = led.tenure.know(1);
  REQUIRE(held.size() == 2);
  CHECK(std::holds_alternative<ClearStore>(held.front()));
  CHECK(led.tell() == Tenure::Verdict::Do);
}

TEST_CASE("a world that is held is told once the last number asked for is known") {
  LedRounds led(0);
  led.begin_world();
  CHECK(led.clear() == Tenure::Verdict::Ask);
  led.begin_world();
  CHECK(led.clear() == Tenure::Verdict::Ask);
  CHECK(led.tenure.know(1).empty());
  CHECK(led.tenure.know(2).size() == 2);
}

TEST_CASE("a world that is held is told although a member tells of later rounds meanwhile") {
  LedRounds led(0);
  led.begin_world();
  CHECK(led.clear() == Tenure::Verdict::Ask);
  led.state.next_round = 9;  // as inherit does
  CHECK(led.tenure.know(1).size() == 1);
  led.begin_world();
  CHECK(led.clear() == Tenure::Verdict::Ask);
  CHECK(led.tenure.know(10).size() == 1);
}

TEST_CASE("a lead that is lost forgets what it held and comes back as the one that led last") {
  LedRounds led(0);
  led.begin_world();
  CHECK(led.clear() == Tenure::Verdict::Ask);
  CHECK(led.tenure.know(1).size() == 1);
  led.begin_world();
  CHECK(led.clear() == Tenure::Verdict::Ask);
  CHECK(led.tenure.lose(led.state) == Tenure::Loss::Lost);
  CHECK(led.tenure.begin(spec_of_led(), 8, {.rounds = 1}, kLedFrom).spec.is_back);
  CHECK_FALSE(led.tenure.begin(spec_of_led(), 9, {.rounds = 2}, kLedFrom).spec.is_back);
  CHECK(led.tenure.know(2).empty());
}

TEST_CASE("the end of a job is told without a lead unless a world before it is still held") {
  const auto phase = GENERATE(RoundPhase::Ending, RoundPhase::Over);
  LedRounds led(0);
  led.state.phase = phase;
  CHECK(tells_the_end(led.state));
  CHECK(led.tenure.lose(led.state) == Tenure::Loss::Kept);
  led.begin_world();
  CHECK(led.clear() == Tenure::Verdict::Ask);
  const bool is_over = phase == RoundPhase::Over;
  CHECK(led.tenure.lose(led.state) == (is_over ? Tenure::Loss::Over : Tenure::Loss::Lost));
  CHECK(led.tenure.lose(led.state) == Tenure::Loss::Kept);
}

}  // namespace drun::rendezvous
