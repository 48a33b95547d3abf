// Tests one of several seats with a manual clock. tests/sim/election_test.cc tests seats together.
#include "rendezvous/leader/election.h"

#include <algorithm>
#include <random>

#include "rendezvous/server/coordination.h"
#include "tests/support/catch.h"

namespace drun::rendezvous {
namespace {

using namespace std::chrono_literals;

constexpr auto kLease = 3000ms;

// Seat 1 of 3. The other seats, 0 and 2, have instances 100 and 102.
struct Driver {
  Driver() : state(open_election({"job", "a,b,c", 1, 3, 101, kLease})) { event(ElectionStart{}); }
  // A seat that was started more than a lease ago and has not reached any other seat.
  static Driver old() {
    Driver driver;
    driver.event(SeatFailed{0});
    driver.event(SeatFailed{2});
    driver.wait(kLease);
    return driver;
  }

  void event(const ElectionEvent& event) { actions = step(state, event, now); }
  void wait(Time::duration time) {
    now += time;
    event(ElectionTick{});
  }
  Ballot ballot(int seat, BallotKind kind, std::uint64_t term = 5) const {
    return {"job", "a,b,c", seat, 100U + static_cast<unsigned>(seat), 1, kind, term, 0};
  }
  Vote hears(const Ballot& ballot) {
    event(BallotCame{9, ballot});
    REQUIRE(count<AnswerBallot>() == 1);
    return only<AnswerBallot>().vote;
  }
  bool grants(int seat, BallotKind kind, std::uint64_t term = 5) {
    return hears(ballot(seat, kind, term)).is_granted;
  }
  // The last ballot that it sent to that seat.
  std::optional<Ballot> asked(int seat) const {
    std::optional<Ballot> last;
    for (const auto& action : actions) {
      const auto* ask = std::get_if<AskSeat>(&action);
      if (ask != nullptr && ask->seat == seat) last = ask->ballot;
    }
    return last;
  }
  void votes(int seat, bool is_granted, bool is_fresh = false, unsigned instance = 100U) {
    const auto number = state.seats[static_cast<std::size_t>(seat)].asked;
    REQUIRE(number);
    Vote vote{.number = *number,
              .instance = instance + static_cast<unsigned>(seat),
              .is_granted = is_granted,
              .is_fresh = is_fresh};
    event(VoteCame{seat, vote});
  }
  // Claims with the vote of seat 2; seat 0 is unreachable.
  void claim() {
    wait(kLease);
    event(SeatFailed{0});
    votes(2, true);
    REQUIRE(state.phase == ElectionPhase::Claiming);
  }
  void win() {
    claim();
    votes(2, true);
    REQUIRE(state.phase == ElectionPhase::Leading);
  }
  template <typename Action>
  int count() const {
    return static_cast<int>(std::count_if(actions.begin(), actions.end(), [](const auto& action) {
      return std::holds_alternative<Action>(action);
    }));
  }
  template <typename Action>
  Action only() const {
    for (const auto& action : actions) {
      if (const auto* wanted = std::get_if<Action>(&action)) return *wanted;
    }
    return {};
  }

  Time now{1h};
  ElectionState state;
  std::vector<ElectionAction> actions;
};

}  // namespace

TEST_CASE("a vote is bound to one seat until its lease expires or it is released") {
  Driver seat = Driver::old();
  REQUIRE(seat.grants(0, BallotKind::Claim, 5));
  CHECK_FALSE(seat.grants(2, BallotKind::Claim, 6));
  CHECK_FALSE(seat.grants(2, BallotKind::Look, 6));
  CHECK(seat.grants(0, BallotKind::Lead, 5));
  SECTION("the lease expires") {
    seat.wait(kLease - 1ms);
    CHECK_FALSE(seat.grants(2, BallotKind::Claim, 6));
    CHECK(seat.hears(seat.ballot(2, BallotKind::Claim, 6)).free_in == 1ms);
    seat.wait(1ms);
    CHECK(seat.grants(2, BallotKind::Claim, 6));
  }
  SECTION("the vote is released") {
    seat.hears(seat.ballot(2, BallotKind::Release, 6));
    CHECK_FALSE(seat.grants(2, BallotKind::Claim, 6));
    seat.hears(seat.ballot(0, BallotKind::Release, 5));
    CHECK(seat.grants(2, BallotKind::Claim, 6));
  }
  SECTION("a ballot of an old term arrives late") {
    seat.wait(kLease);
    REQUIRE(seat.grants(2, BallotKind::Claim, 6));
    seat.wait(kLease);
    CHECK_FALSE(seat.grants(0, BallotKind::Claim, 5));
  }
}

TEST_CASE("no two seats hold the same vote at the same time in any order of ballots") {
  struct Event {
    int seat;
    BallotKind kind;
    std::uint64_t term;
    int after_ms;
  };
  std::vector<Event> events{{0, BallotKind::Claim, 5, 0},      {2, BallotKind::Claim, 6, 700},
                            {0, BallotKind::Lead, 5, 1200},    {2, BallotKind::Lead, 6, 0},
                            {0, BallotKind::Release, 5, 1500}, {2, BallotKind::Look, 6, 2999},
                            {2, BallotKind::Claim, 7, 3000}};
  std::vector<std::size_t> order{0, 1, 2, 3, 4, 5, 6};
  do {
    Driver seat = Driver::old();
    int holder = -1;
    Time until;
    for (const std::size_t index : order) {
      const Event& event = events[index];
      seat.wait(std::chrono::milliseconds(event.after_ms));
      const Vote vote = seat.hears(seat.ballot(event.seat, event.kind, event.term));
      const bool is_held = holder >= 0 && holder != event.seat && seat.now < until;
      if (vote.is_granted && is_held) FAIL("two have it");
      if (vote.is_granted && event.kind != BallotKind::Look) {
        holder = event.seat;
        until = seat.now + kLease;
      }
      if (event.kind == BallotKind::Release && holder == event.seat) holder = -1;
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("a seat marks its votes as fresh until one lease after its start") {
  Driver seat;
  CHECK(seat.hears(seat.ballot(0, BallotKind::Look)).is_fresh);
  seat.wait(kLease - 1ms);
  CHECK(seat.hears(seat.ballot(0, BallotKind::Look)).is_fresh);
  seat.wait(1ms);
  CHECK_FALSE(seat.hears(seat.ballot(0, BallotKind::Look)).is_fresh);
}

TEST_CASE("fresh votes elect a leader only if all seats grant theirs") {
  Driver seat;
  seat.votes(2, true, true);
  CHECK(seat.state.phase == ElectionPhase::Vacant);
  SECTION("all seats vote") {
    seat.votes(0, true, true);
    // Seats that are earlier in the list claim earlier.
    CHECK(seat.state.phase == ElectionPhase::Vacant);
    seat.wait(kLease / 10);
    REQUIRE(seat.state.phase == ElectionPhase::Claiming);
    seat.votes(0, true, true);
    CHECK(seat.state.phase == ElectionPhase::Claiming);
    seat.votes(2, true, true);
    CHECK(seat.state.phase == ElectionPhase::Leading);
    const Time led = seat.now;
    SECTION("votes of the same voters continue to count") {
      seat.wait(kLease / 6);
      seat.votes(0, true, true);
      const Time asked = seat.now;
      seat.wait(kLease / 6);
      seat.votes(0, true, true);
      CHECK(is_leading(seat.state, asked + kLease * 4 / 5 - 1ms));
    }
    SECTION("new votes of a restarted voter do not count, but its earlier vote does") {
      for (int i = 0; i < 2; ++i) {
        seat.wait(kLease / 6);
        seat.votes(0, true, true, 7);
      }
      CHECK(is_leading(seat.state, led + kLease * 4 / 5 - 1ms));
      CHECK_FALSE(is_leading(seat.state, led + kLease * 4 / 5));
    }
  }
  SECTION("one of the seats is unreachable") {
    seat.event(SeatFailed{0});
    seat.wait(kLease / 10);
    CHECK(seat.state.phase == ElectionPhase::Vacant);
  }
}

TEST_CASE("a lead counts from the vote request and ends before the votes expire") {
  Driver seat;
  seat.claim();
  const Time asked = seat.now;
  seat.now += 100ms;
  seat.votes(2, true);
  CHECK(seat.only<Leading>().term == 1);
  CHECK(is_leading(seat.state, asked + kLease * 4 / 5 - 1ms));
  CHECK_FALSE(is_leading(seat.state, asked + kLease * 4 / 5));
  SECTION("no seat answers any more") {
    seat.now = asked + kLease * 4 / 5;
    seat.event(ElectionTick{});
    CHECK(seat.count<LeadLost>() == 1);
    CHECK(seat.state.phase == ElectionPhase::Vacant);
    CHECK(seat.asked(2)->kind == BallotKind::Release);
  }
  SECTION("the votes are renewed") {
    seat.wait(kLease / 6);
    seat.votes(2, true);
    REQUIRE(seat.asked(2));
    CHECK(seat.asked(2)->kind == BallotKind::Lead);
    const Time again = seat.now;
    seat.wait(kLease / 6);
    seat.votes(2, true);
    CHECK(is_leading(seat.state, again + kLease * 4 / 5 - 1ms));
    CHECK_FALSE(is_leading(seat.state, again + kLease * 4 / 5));
  }
}

TEST_CASE("a leader that resigns releases its votes, still votes, and requests no more votes") {
  Driver seat = Driver::old();
  seat.win();
  seat.votes(2, true);
  CHECK_FALSE(has_successor(seat.state));  // seat 0 is unreachable, and one of three is no majority
  Driver joined = seat;
  joined.hears(joined.ballot(0, BallotKind::Look));  // it is alive, though it has not voted yet
  CHECK(has_successor(joined.state));
  seat.event(Resign{});
  CHECK_FALSE(is_leading(seat.state, seat.now));
  CHECK(seat.count<Vacant>() == 1);
  CHECK(seat.count<Resigned>() == 0);
  REQUIRE(seat.asked(2));
  CHECK(seat.asked(2)->kind == BallotKind::Release);
  seat.votes(2, false);
  CHECK(seat.count<Resigned>() == 0);
  seat.event(SeatFailed{0});
  CHECK(seat.count<Resigned>() == 1);
  CHECK(seat.grants(2, BallotKind::Claim, 9));
  for (int i = 0; i < 20; ++i) {
    seat.wait(kLease / 4);
    CHECK(seat.count<AskSeat>() == 0);
    CHECK(seat.count<Resigned>() == 0);
  }
}

// When a leader resigns, a seat may learn it before another seat does and refuses.
TEST_CASE("a seat that has refused its vote and then looks itself is asked again at once") {
  const bool looks_first = GENERATE(false, true);
  Driver seat = Driver::old();
  REQUIRE(seat.asked(2));
  const auto look = [&] { seat.hears(seat.ballot(2, BallotKind::Look)); };
  const auto refuse = [&] {
    seat.event(
        VoteCame{2, {.number = *seat.state.seats[2].asked, .instance = 102, .free_in = kLease}});
  };
  seat.wait(1ms);
  if (looks_first) look();
  refuse();
  if (!looks_first) look();
  CHECK_FALSE(seat.asked(2));  // not as fast as the network permits
  seat.wait(kLease / 64);
  REQUIRE(seat.asked(2));
  seat.votes(2, true);
  seat.wait(kLease / 64);
  look();
  CHECK_FALSE(seat.asked(2));  // its answer is known
}

TEST_CASE("a seat can be elected over links that take longer than a lease to open") {
  Driver seat;  // name lookups are slow, so neither other seat is linked
  const auto first = seat.asked(0);
  REQUIRE(first);
  for (int i = 0; i < 20; ++i) {
    seat.wait(kLease / 6);
    CHECK(seat.count<HangUp>() == 0);
    CHECK_FALSE(seat.asked(0));  // the ballot that waits for the link is not replaced
  }
  for (const int other : {0, 2}) seat.event(SeatLinked{other});
  seat.wait(kLease / 3 - 1ms);
  CHECK(seat.count<HangUp>() == 0);  // the answer timeout starts when the link opens
  for (const int other : {0, 2}) seat.votes(other, true);
  for (int i = 0; i < 20 && seat.state.phase == ElectionPhase::Vacant; ++i) {
    seat.wait(kLease / 20);
    for (const int other : {0, 2}) {
      const bool is_asked = seat.state.seats[static_cast<std::size_t>(other)].asked.has_value();
      if (seat.state.phase == ElectionPhase::Vacant && is_asked) seat.votes(other, true);
    }
  }
  REQUIRE(seat.state.phase == ElectionPhase::Claiming);
  for (const int other : {0, 2}) seat.votes(other, true);
  CHECK(seat.state.phase == ElectionPhase::Leading);
  CHECK(is_leading(seat.state, seat.now));
}

TEST_CASE("an open link to a seat that does not answer is closed after a third of a lease") {
  Driver seat;
  seat.event(SeatLinked{0});
  seat.wait(kLease / 3 - 1ms);
  CHECK(seat.count<HangUp>() == 0);
  seat.wait(1ms);
  REQUIRE(seat.count<HangUp>() == 1);
  CHECK(seat.only<HangUp>().seat == 0);
  CHECK(seat.asked(0));  // and dialed again
}

TEST_CASE("a vote that was requested before its link opened counts from when the link opened") {
  Driver seat = Driver::old();
  seat.claim();
  seat.event(SeatFailed{2});
  Driver other = Driver::old();
  other.win();
  other.event(SeatFailed{2});
  other.wait(kLease / 6);  // sends Lead, on a link that must be reopened
  const auto asked_at = other.state.seats[2].asked_at;
  other.wait(kLease / 6);
  other.event(SeatLinked{2});
  other.votes(2, true);
  CHECK(other.state.seats[2].granted_at == asked_at + kLease / 6);
}

TEST_CASE("a seat that resigns waits no longer than the normal answer timeout") {
  Driver seat = Driver::old();
  seat.win();
  seat.event(Resign{});
  REQUIRE(deadline(seat.state));
  seat.wait(kLease / 3);
  CHECK(seat.count<Resigned>() == 1);
  Driver follower = Driver::old();
  follower.event(Resign{});
  CHECK(follower.count<Resigned>() == 1);
}

TEST_CASE("neither a leader nor a candidate votes for another seat") {
  Driver seat;
  seat.claim();
  CHECK_FALSE(seat.grants(0, BallotKind::Claim, 9));
  seat.votes(2, true);
  REQUIRE(seat.state.phase == ElectionPhase::Leading);
  CHECK_FALSE(seat.grants(0, BallotKind::Claim, 9));
  CHECK_FALSE(seat.grants(0, BallotKind::Lead, 9));
  CHECK(seat.state.phase == ElectionPhase::Leading);
}

TEST_CASE("a claim that fails is abandoned and its votes are released") {
  Driver seat;
  seat.claim();
  SECTION("a vote is refused") { seat.votes(2, false); }
  SECTION("a vote does not arrive") {
    seat.wait(kLease / 4);
    REQUIRE(seat.asked(2));
    CHECK(seat.asked(2)->kind == BallotKind::Release);
  }
  SECTION("another seat leads") {
    CHECK(seat.grants(0, BallotKind::Lead, 9));
    CHECK(seat.only<SeatFollowed>().seat == 0);
    CHECK(seat.state.phase == ElectionPhase::Following);
    return;
  }
  CHECK(seat.state.phase == ElectionPhase::Vacant);
  CHECK(seat.grants(0, BallotKind::Claim, 9));
}

TEST_CASE("a follower reports its leader once and the vacancy once") {
  Driver seat = Driver::old();
  seat.hears(seat.ballot(0, BallotKind::Lead));
  CHECK(seat.only<SeatFollowed>().term == 5);
  seat.event(SeatFailed{0});  // the earlier look is not answered
  seat.wait(kLease / 2);
  seat.hears(seat.ballot(0, BallotKind::Lead));
  CHECK(seat.count<SeatFollowed>() == 0);
  seat.wait(kLease - 1ms);
  CHECK(seat.count<Vacant>() == 0);
  CHECK(deadline(seat.state) == seat.now + 1ms);
  seat.wait(1ms);
  CHECK(seat.count<Vacant>() == 1);
  REQUIRE(seat.asked(0));
  CHECK(seat.asked(0)->kind == BallotKind::Look);
}

TEST_CASE("the number of rounds is confirmed once a majority has received it") {
  Driver seat;
  seat.win();
  seat.votes(2, true);
  seat.event(RoundWanted{4});
  CHECK(seat.count<RoundKnown>() == 0);
  REQUIRE(seat.asked(2));
  CHECK(seat.asked(2)->rounds == 4);
  seat.votes(2, true);
  CHECK(seat.only<RoundKnown>().rounds == 4);
  Driver other = Driver::old();
  Ballot told = other.ballot(0, BallotKind::Lead);
  told.rounds = 4;
  CHECK(other.hears(told).rounds == 4);
}

TEST_CASE("ballots that do not belong to this election are rejected with the reason") {
  Driver seat;
  const auto refusal = [&seat](const Ballot& ballot) {
    seat.event(BallotCame{9, ballot});
    REQUIRE(seat.count<RefuseBallot>() == 1);
    return seat.only<RefuseBallot>().error.message;
  };
  Ballot ballot = seat.ballot(0, BallotKind::Claim);
  ballot.run_id = "other";
  CHECK_THAT(refusal(ballot), ContainsSubstring("run id \"other\""));
  ballot = seat.ballot(0, BallotKind::Claim);
  ballot.seats = "a,b";
  CHECK_THAT(refusal(ballot), ContainsSubstring("--rdzv-endpoint=a,b, but this agent with a,b,c"));
  ballot = seat.ballot(1, BallotKind::Claim);
  ballot.instance = 7;
  CHECK_THAT(refusal(ballot), ContainsSubstring("another agent holds that endpoint"));
  ballot.instance = 101;
  CHECK_THAT(refusal(ballot), ContainsSubstring("two of the endpoints"));
  for (const int number : {-1, 3, 1 << 30}) {
    ballot = seat.ballot(0, BallotKind::Claim);
    ballot.seat = number;
    CHECK_FALSE(refusal(ballot).empty());
  }
}

TEST_CASE("random ballots, votes and failures never leave a seat without a next event") {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    Driver seat;
    INFO("seed " << seed);
    for (int i = 0; i < 200; ++i) {
      const int other = random() % 2 == 0 ? 0 : 2;
      switch (random() % 5) {
        case 0:
          seat.wait(std::chrono::milliseconds(random() % 4000));
          break;
        case 1:
          if (random() % 2 == 0)
            seat.event(SeatLinked{other});
          else
            seat.event(SeatFailed{other});
          break;
        case 2:
          seat.event(RoundWanted{static_cast<int>(random() % 9)});
          break;
        case 3:
          seat.event(BallotCame{
              1, seat.ballot(other, static_cast<BallotKind>(random() % 4), random() % 9)});
          break;
        default:
          seat.event(VoteCame{other,
                              {.number = seat.state.last_number - random() % 3,
                               .instance = random() % 3,
                               .is_granted = random() % 2 == 0,
                               .is_fresh = random() % 2 == 0,
                               .free_in = std::chrono::milliseconds(random() % 3000),
                               .term = random() % 9,
                               .rounds = static_cast<int>(random() % 9)}});
      }
      // A seat without a deadline waits for a link, which always reports its result.
      const auto wanted = deadline(seat.state);
      const bool waits_for_link = std::any_of(
          seat.state.seats.begin(), seat.state.seats.end(),
          [](const SeatView& view) { return view.asked.has_value() && !view.is_linked; });
      REQUIRE((wanted || waits_for_link));
      if (wanted) REQUIRE(*wanted > seat.now);
    }
  }
}

TEST_CASE("a seat that does not lead redirects callers to the leader at once or when it is known") {
  LeaderLookups seekers;
  const auto asking = [](std::uint64_t peer, std::uint64_t lost_term) {
    Hello hello;
    hello.lost_term = lost_term;
    return Newcomer{peer, hello, "10.0.0.1:1"};
  };
  CHECK_FALSE(seekers.ask(asking(1, 0)));
  CHECK_FALSE(seekers.ask(asking(2, 3)));
  CHECK(seekers.know({"a", 1, 3}) == std::vector<std::uint64_t>{1});
  CHECK(seekers.ask(asking(3, 2)) == Follow{"a", 1, 3});
  CHECK_FALSE(seekers.ask(asking(4, 3)));
  seekers.leave(4);
  CHECK_FALSE(seekers.has(4));
  seekers.forget_leader();
  CHECK_FALSE(seekers.ask(asking(5, 0)));
  const auto all = seekers.take_all();
  REQUIRE(all.size() == 2);
  CHECK(all[0].peer == 2);
  CHECK(all[1].peer == 5);
}

}  // namespace drun::rendezvous
