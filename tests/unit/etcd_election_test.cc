// Tests one agent's campaign, call by call, against a model of etcd.
#include "rendezvous/leader/etcd_election.h"
#include "tests/support/catch.h"
#include "tests/support/machine.h"
#include "tests/support/model_etcd.h"

namespace drun::rendezvous::etcd {
namespace {

using namespace std::chrono_literals;
using test::ModelEtcd;
using Phase = CampaignPhase;

struct Candidate {
  explicit Candidate(std::uint64_t instance = 1, bool stands = true)
      : state(open_campaign({.endpoint = {"host" + std::to_string(instance), 4000},
                             .instance = instance,
                             .lease = 5s,
                             .stands = stands,
                             .place = "etcd:2379"},
                            now)) {
    tell(CampaignTick{});
  }

  void tell(const CampaignEvent& event) {
    actions = step(state, event, now);
    for (const CampaignAction& action : actions) {
      if (const auto* ask = std::get_if<AskEtcd>(&action)) asked = *ask;
    }
    all.insert(all.end(), actions.begin(), actions.end());
  }
  void wait(std::chrono::milliseconds time) {
    now += time;
    tell(CampaignTick{});
  }
  void take(const ModelEtcd::Result& result) {
    if (const auto* failed = std::get_if<Failed>(&result))
      return tell(EtcdFailed{asked->number, *failed});
    tell(EtcdAnswered{asked->number, std::get<Answer>(result)});
  }
  // Executes the pending call and delivers the answer.
  void call(ModelEtcd& etcd) { take(etcd.apply(asked->call, now)); }
  void lose_call() { tell(EtcdFailed{asked->number, {"no answer"}}); }
  // Answers up to `most` calls, and waits for the delay before a claim, but not for other
  // deadlines.
  void talk(ModelEtcd& etcd, int most = 20) {
    for (; most > 0 && (state.asked || is_delaying_a_claim()); --most) {
      if (state.asked)
        call(etcd);
      else
        wait_for_claim();
    }
  }
  template <typename T>
  void talk_until_it_asks(ModelEtcd& etcd) {
    for (int most = 20; most > 0 && !asks<T>(); --most) {
      if (state.asked)
        call(etcd);
      else
        wait_for_claim();
    }
    REQUIRE(asks<T>());
  }
  bool is_delaying_a_claim() const { return state.claim_at && *state.claim_at <= now + 10ms; }
  void wait_for_claim() {
    REQUIRE(state.claim_at);
    now = std::max(now, *state.claim_at);
    tell(CampaignTick{});
  }
  template <typename T>
  std::vector<T> done() const {
    std::vector<T> found;
    for (const CampaignAction& action : all) {
      if (const T* one = std::get_if<T>(&action)) found.push_back(*one);
    }
    return found;
  }
  template <typename T>
  bool asks() const {
    return state.asked && std::holds_alternative<T>(asked->call);
  }

  Time now{std::chrono::hours(1)};
  CampaignState state;
  std::optional<AskEtcd> asked;
  std::vector<CampaignAction> actions;
  std::vector<CampaignAction> all;
};

}  // namespace

TEST_CASE(
    "an agent that finds no leader in etcd claims at once and leads for four fifths of a lease") {
  ModelEtcd etcd;
  Candidate one;
  CHECK(one.asks<Look>());
  one.talk(etcd);
  REQUIRE(one.done<Leading>().size() == 1);
  CHECK(one.done<Leading>().front().term == 1);
  CHECK(is_leading(one.state, one.now));
  CHECK(is_leading(one.state, one.now + 3999ms));
  CHECK_FALSE(is_leading(one.state, one.now + 4s));
  CHECK(leader_of(etcd.sight().leader->value)->endpoint == Endpoint{"host1", 4000});
}

TEST_CASE("an agent that finds a leader follows it and leads after that leader leaves") {
  ModelEtcd etcd;
  Candidate one;
  one.talk(etcd);
  Candidate two(2);
  two.talk(etcd);
  REQUIRE(two.done<Following>().size() == 1);
  CHECK(two.done<Following>().front().leader == Endpoint{"host1", 4000});
  CHECK(two.done<Following>().front().term == 1);
  two.wait(320ms);
  two.talk(etcd);
  CHECK(*deadline(two.state) >= two.now + 1250ms);
  CHECK(*deadline(two.state) <= two.now + 1250ms * 5 / 4);
  two.tell(LeaderDoubted{});
  CHECK(deadline(two.state) == two.now + 250ms);
  one.tell(JobOver{});
  one.talk(etcd);
  CHECK(one.done<Closed>().size() == 1);
  CHECK_FALSE(etcd.sight().leader);
  two.wait(320ms);
  two.talk(etcd);
  CHECK(two.done<Vacant>().size() == 1);
  REQUIRE(two.done<Leading>().size() == 1);
  CHECK(two.done<Leading>().front().term == 2);
}

TEST_CASE("a leader that resigns deletes its key, but its record stays for the next leader") {
  ModelEtcd etcd;
  Candidate one;
  one.talk(etcd);
  one.tell(RecordWanted{{.rounds = 3}});
  one.talk(etcd);
  one.tell(Resign{});
  CHECK_FALSE(is_leading(one.state, one.now));
  const bool is_reached = GENERATE(true, false);
  is_reached ? one.call(etcd) : one.lose_call();
  CHECK(one.done<Closed>().size() == 1);
  CHECK_FALSE(deadline(one.state));
  CHECK(etcd.sight().leader.has_value() != is_reached);
  if (!is_reached) return;
  Candidate other(2);
  other.talk(etcd);
  REQUIRE(other.done<Leading>().size() == 1);
  CHECK(other.done<Leading>().front().term == 2);
  CHECK(other.done<Leading>().front().before.rounds == 3);
}

TEST_CASE("an agent that may not coordinate does not claim") {
  ModelEtcd etcd;
  Candidate one(1, false);
  one.call(etcd);
  for (int i = 0; i < 50; ++i) {
    one.wait(250ms);
    one.talk(etcd);
  }
  CHECK(one.state.phase == Phase::Vacant);
  CHECK_FALSE(etcd.sight().leader);
}

TEST_CASE("a successful claim whose answer was lost still leads") {
  ModelEtcd etcd;
  Candidate one;
  one.talk_until_it_asks<Claim>(etcd);
  static_cast<void>(etcd.apply(one.asked->call, one.now));
  one.now += 1s;
  one.lose_call();
  one.wait(1s);
  REQUIRE(one.asks<Claim>());
  one.call(etcd);
  CHECK(one.done<Leading>().size() == 1);
  // The lead counts from the lease request.
  CHECK(is_leading(one.state, one.now + 1999ms));
  CHECK_FALSE(is_leading(one.state, one.now + 2s));
}

TEST_CASE("a claim that is answered too late does not lead and its key is removed") {
  ModelEtcd etcd;
  Candidate one;
  one.talk_until_it_asks<Claim>(etcd);
  const auto result = etcd.apply(one.asked->call, one.now);
  one.now += 4s;
  one.take(result);
  CHECK(one.done<Leading>().empty());
  CHECK(one.asks<Revoke>());
  one.call(etcd);
  CHECK_FALSE(etcd.sight().leader);
}

TEST_CASE("a renewed lead counts from the renewal request and is lost without an answer") {
  ModelEtcd etcd;
  Candidate one;
  one.talk(etcd);
  const Time began = one.now;
  one.wait(834ms);
  REQUIRE(one.asks<Renew>());
  one.now += 1s;
  one.call(etcd);
  CHECK(is_leading(one.state, began + 834ms + 3999ms));
  CHECK_FALSE(is_leading(one.state, began + 834ms + 4s));
  while (is_leading(one.state, one.now)) {
    if (one.state.asked)
      one.lose_call();
    else
      one.wait(100ms);
  }
  one.tell(CampaignTick{});
  REQUIRE(one.done<LeadLost>().size() == 1);
  CHECK_THAT(one.done<LeadLost>().front().reason, ContainsSubstring("has not renewed its lease"));
}

TEST_CASE("a lease that etcd no longer knows ends the lead at once") {
  ModelEtcd etcd;
  Candidate one;
  one.talk(etcd);
  etcd.expire(one.now + 5s);
  one.wait(900ms);
  one.call(etcd);
  CHECK(one.done<LeadLost>().size() == 1);
  CHECK_FALSE(is_leading(one.state, one.now));
}

TEST_CASE("a leader whose key was deleted in etcd stops leading") {
  ModelEtcd etcd;
  Candidate one;
  one.talk(etcd);
  static_cast<void>(etcd.apply(Clear{etcd.sight().leader->created}, one.now));
  for (int i = 0; i < 30 && one.done<LeadLost>().empty(); ++i) {
    one.wait(100ms);
    if (one.state.asked) one.call(etcd);
  }
  REQUIRE(one.done<LeadLost>().size() == 1);
  CHECK_THAT(one.done<LeadLost>().front().reason, ContainsSubstring("key in etcd is gone"));
}

TEST_CASE("a round record is stored before it is reported as kept exactly once") {
  ModelEtcd etcd;
  Candidate one;
  one.talk(etcd);
  const RoundRecord record{.rounds = 3, .restarts = 1, .exclusions = {}};
  one.tell(RecordWanted{record});
  REQUIRE(one.asks<Store>());
  CHECK(one.done<RoundKnown>().empty());
  const bool was_carried_out = GENERATE(false, true);
  if (was_carried_out) static_cast<void>(etcd.apply(one.asked->call, one.now));
  one.lose_call();
  one.wait(200ms);
  one.talk(etcd);
  REQUIRE(one.done<RoundKnown>().size() == 1);
  CHECK(one.done<RoundKnown>().front().rounds == 3);
  CHECK(state_of(etcd.sight().state->value)->rounds == record);
}

TEST_CASE("a late store request of a replaced leader has no effect") {
  ModelEtcd etcd;
  Candidate one;
  one.talk(etcd);
  one.tell(RecordWanted{{.rounds = 1}});
  const Call late = one.asked->call;
  etcd.expire(one.now + 5s);
  Candidate two(2);
  two.talk(etcd);
  REQUIRE(two.done<Leading>().size() == 1);
  const auto before = etcd.sight();
  static_cast<void>(etcd.apply(late, one.now));
  CHECK(etcd.sight() == before);
  one.call(etcd);
  CHECK(one.done<LeadLost>().size() == 1);
  CHECK(one.done<RoundKnown>().empty());
}

TEST_CASE("a state that etcd dropped is stored again") {
  ModelEtcd etcd;
  Candidate one;
  one.talk(etcd);
  one.tell(RecordWanted{{.rounds = 1}});
  one.talk(etcd);
  static_cast<void>(etcd.apply(Revoke{one.state.keep_lease->lease}, one.now));
  REQUIRE_FALSE(etcd.sight().state);
  one.tell(RecordWanted{{.rounds = 2}});
  for (int i = 0; i < 10; ++i) {
    one.talk(etcd);
    one.wait(150ms);
  }
  CHECK(one.done<LeadLost>().empty());
  REQUIRE(etcd.sight().state);
  CHECK(state_of(etcd.sight().state->value)->rounds.rounds == 2);
}

TEST_CASE("after etcd loses its data an agent waits for longer than a lease before it claims") {
  ModelEtcd etcd;
  Candidate one;
  one.talk(etcd);
  one.tell(RecordWanted{{.rounds = 1}});
  one.talk(etcd);
  Candidate two(2);
  two.talk(etcd);
  etcd.forget();
  const Time forgot = two.now;
  two.wait(1250ms);
  two.talk(etcd);
  while (two.done<Leading>().empty() && two.now < forgot + 60s) {
    two.wait(100ms);
    two.talk(etcd);
  }
  CHECK(two.now - forgot >= 6s);
  CHECK(two.now - forgot < 8s);
  CHECK(two.done<Leading>().front().term == 2);
}

// Reports the current leader's key to the agent, as its watch would.
void report(Candidate& agent, const ModelEtcd& etcd) {
  agent.tell(
      WatchReported{agent.state.last_watch, {etcd.sight().revision, true, etcd.sight().leader}});
}

TEST_CASE("an agent that watches the leader's key rarely queries etcd while the leader stays") {
  ModelEtcd etcd;
  Candidate one;
  one.talk(etcd);
  Candidate two(2);
  two.talk(etcd);
  REQUIRE(two.done<WatchLeader>().size() == 1);
  CHECK(two.done<WatchLeader>().front().from == etcd.sight().revision + 1);
  two.tell(WatchReported{two.state.last_watch, {etcd.sight().revision}});
  two.wait(1600ms);  // the look that was due before etcd confirmed the watch
  two.talk(etcd);
  const auto next = *deadline(two.state);
  CHECK(next >= two.now + 60s);
  CHECK(next <= two.now + 75s);
}

TEST_CASE("a watch report of the next leader is enough to follow it") {
  ModelEtcd etcd;
  Candidate one;
  one.talk(etcd);
  Candidate two(2, false);
  two.talk(etcd);
  one.tell(Resign{});
  one.talk(etcd);
  report(two, etcd);
  CHECK(two.done<Vacant>().size() == 1);
  Candidate three(3);
  three.talk(etcd);
  REQUIRE(three.done<Leading>().size() == 1);
  report(two, etcd);
  CHECK_FALSE(two.state.asked);
  REQUIRE(two.done<Following>().size() == 2);
  CHECK(two.done<Following>().back().leader == Endpoint{"host3", 4000});
  CHECK(two.done<Following>().back().term == 2);
}

TEST_CASE("a watch report that is older than the last look is ignored") {
  ModelEtcd etcd;
  Candidate one;
  one.talk(etcd);
  const WatchMessage late{etcd.sight().revision, true, etcd.sight().leader};
  one.tell(Resign{});
  one.talk(etcd);
  Candidate two(2, false);
  two.talk(etcd);
  two.tell(WatchReported{two.state.last_watch, late});
  CHECK(two.done<Following>().empty());
  CHECK(two.state.phase == Phase::Vacant);
}

TEST_CASE("a look that a watch report overtook is not treated as data loss in etcd") {
  ModelEtcd etcd;
  Candidate one;
  one.talk(etcd);
  Candidate two(2, false);
  two.talk(etcd);
  two.wait(1600ms);
  REQUIRE(two.asks<Look>());
  const auto late = etcd.apply(two.asked->call, two.now);
  one.tell(Resign{});
  one.talk(etcd);
  report(two, etcd);
  two.take(late);
  CHECK(two.done<LogLine>().empty());
  CHECK(two.state.phase == Phase::Vacant);
  CHECK(two.asks<Look>());
}

TEST_CASE("without a watch an agent polls as before and retries the watch after a look") {
  ModelEtcd etcd;
  Candidate one;
  one.talk(etcd);
  Candidate two(2);
  two.talk(etcd);
  for (std::size_t times = 1; times < 6; ++times) {
    REQUIRE(two.done<WatchLeader>().size() == times);
    two.tell(WatchEnded{two.state.last_watch, "connection closed"});
    CHECK(*deadline(two.state) <= two.now + 1250ms);
    for (int i = 0; i < 400 && two.done<WatchLeader>().size() == times; ++i) {
      two.wait(100ms);
      two.talk(etcd);
    }
  }
}

TEST_CASE("an agent that loses the race for the lead revokes both its leases") {
  ModelEtcd etcd;
  Candidate two(2);
  two.talk_until_it_asks<Claim>(etcd);
  CHECK(etcd.lease_count() == 2);
  Candidate one;
  one.talk(etcd);
  REQUIRE(one.done<Leading>().size() == 1);
  CHECK(etcd.lease_count() == 4);
  two.talk(etcd);
  CHECK(two.done<Following>().size() == 1);
  CHECK(etcd.lease_count() == 2);
  CHECK(etcd.sight().leader);
  CHECK(etcd.sight().state);
}

TEST_CASE("a lease that is granted after another agent leads is revoked") {
  ModelEtcd etcd;
  Candidate two(2);
  two.talk_until_it_asks<Grant>(etcd);
  const auto granted = etcd.apply(two.asked->call, two.now);
  Candidate one;
  one.talk(etcd);
  report(two, etcd);
  CHECK(two.state.phase == Phase::Following);
  two.take(granted);
  two.talk(etcd);
  CHECK(etcd.lease_count() == 2);
}

TEST_CASE("neither a finished job nor a pending claim leaves a lease in etcd") {
  ModelEtcd etcd;
  Candidate claiming(2);
  claiming.talk_until_it_asks<Claim>(etcd);
  Candidate one;
  one.talk(etcd);
  one.tell(JobOver{});
  one.talk(etcd);
  CHECK(one.done<Closed>().size() == 1);
  claiming.tell(JobOver{});
  claiming.talk(etcd);
  CHECK(claiming.done<Closed>().size() == 1);
  CHECK(etcd.lease_count() == 0);
}

TEST_CASE(
    "a former leader revokes its lease on the state once another leader has stored the state") {
  ModelEtcd etcd;
  Candidate one;
  one.talk(etcd);
  one.tell(RecordWanted{{.rounds = 4}});
  one.talk(etcd);
  etcd.expire(one.now + 5s);
  one.wait(900ms);
  one.call(etcd);
  REQUIRE(one.done<LeadLost>().size() == 1);
  CHECK(etcd.lease_count() == 1);
  CHECK(etcd.sight().state);
  Candidate two(2);
  two.talk(etcd);
  REQUIRE(two.done<Leading>().size() == 1);
  CHECK(two.done<Leading>().front().before.rounds == 4);
  one.talk(etcd);
  one.wait(2s);
  one.talk(etcd);
  CHECK(one.done<Following>().size() == 1);
  CHECK(etcd.lease_count() == 2);
  CHECK(etcd.sight().state);
}

TEST_CASE("a key that another program wrote is left alone and reported") {
  ModelEtcd etcd;
  static_cast<void>(etcd.apply(Grant{5s}, Time()));
  static_cast<void>(etcd.apply(Claim{"mine", 1, "mine", 1, 0}, Time()));
  Candidate one;
  for (int i = 0; i < 20; ++i) {
    if (one.state.asked) one.call(etcd);
    one.wait(250ms);
  }
  CHECK(etcd.sight().leader->value == "mine");
  REQUIRE(one.done<LeaderTrouble>().size() == 1);
  CHECK_THAT(one.done<LeaderTrouble>().front().reason,
             ContainsSubstring("no drun of this version"));
}

TEST_CASE("an unreachable etcd is reported once, and once more when it answers again") {
  ModelEtcd etcd;
  Candidate one;
  for (int i = 0; i < 20; ++i) {
    one.lose_call();
    one.wait(1s);
  }
  REQUIRE(one.done<LeaderTrouble>().size() == 1);
  CHECK(one.done<LeaderTrouble>().front().reason == "no answer");
  one.talk(etcd);
  REQUIRE(one.done<LeaderTrouble>().size() == 2);
  CHECK(one.done<LeaderTrouble>().back().reason.empty());
}

// Runs two candidates through every order of outcomes of their calls: answered, request lost,
// answer lost, or executed late. Time passes when the chosen candidate has no call in flight.
TEST_CASE("two candidates never both lead in any order of answered and lost calls") {
  constexpr int kSteps = test::kSlowdown > 1 ? 4 : 5;  // a step more takes eight times as long
  constexpr int kChoices = 8;
  int orders = 1;
  for (int i = 0; i < kSteps; ++i) orders *= kChoices;
  int led = 0;
  for (int order = 0; order < orders; ++order) {
    ModelEtcd etcd;
    Candidate agents[2] = {Candidate(1), Candidate(2)};
    std::vector<Call> late;
    Time now{std::chrono::hours(1)};
    int rest = order;
    for (int at = 0; at < kSteps; ++at, rest /= kChoices) {
      Candidate& one = agents[rest % 2];
      const int fate = rest / 2 % 4;
      if (!one.state.asked) {
        now += 900ms;
        for (Candidate& each : agents) each.now = now;
        for (Candidate& each : agents) each.tell(CampaignTick{});
        etcd.expire(now);
      }
      if (!one.state.asked) continue;
      const Call call = one.asked->call;
      if (fate == 0 || fate == 2) {
        const auto result = etcd.apply(call, now);
        if (fate == 0)
          one.take(result);
        else
          one.lose_call();
      } else {
        if (fate == 3) late.push_back(call);
        one.lose_call();
      }
      if (fate == 3 && late.size() == 2) static_cast<void>(etcd.apply(late.front(), now));
      const bool both = is_leading(agents[0].state, now) && is_leading(agents[1].state, now);
      if (both) FAIL("both lead in order " << order);
    }
    for (const Call& call : late) static_cast<void>(etcd.apply(call, now));
    for (Candidate& one : agents) {
      one.talk(etcd);
      led += is_leading(one.state, now) ? 1 : 0;
    }
    if (is_leading(agents[0].state, now) && is_leading(agents[1].state, now))
      FAIL("both lead at the end of order " << order);
  }
  CHECK(led > orders / 2);
}

}  // namespace drun::rendezvous::etcd
