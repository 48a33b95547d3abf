#include <set>

#include "rendezvous/protocol/control_wire.h"
#include "tests/support/catch.h"
#include "tests/support/member_driver.h"

namespace drun::rendezvous {
namespace {

using test::MemberDriver;
using Phase = MemberPhase;

constexpr std::initializer_list<Phase> kInTouch{Phase::Running, Phase::Done, Phase::Stopping,
                                                Phase::Stopped};

Failure hung(int rank) {
  Failure failure;
  failure.rank = rank;
  failure.status = Hung{"silent"};
  return failure;
}

}  // namespace

TEST_CASE(
    "a stack query goes to the coordinator if there is one, and is answered locally otherwise") {
  for (const Phase phase : kInTouch) {
    MemberDriver member = MemberDriver::in(phase);
    member.event(OwnQuestion{7});
    CHECK(member.sent<StacksRequest>().question == 7);
    member.receive(StacksReply{7, {.notes = {"x"}}});
    const StacksResult told = member.only<StacksResult>();
    CHECK(told.question == 7);
    CHECK(told.evidence.notes.size() == 1);
  }
  for (const Phase phase : {Phase::Resting, Phase::Dialing, Phase::Greeting, Phase::Joined}) {
    MemberDriver member = MemberDriver::in(phase);
    member.event(OwnQuestion{7});
    CHECK(member.only<StacksResult>().evidence.notes ==
          std::vector<std::string>{"no workers run yet"});
  }
}

TEST_CASE("a request for stacks goes to the agent, and the evidence is returned with its number") {
  MemberDriver member = MemberDriver::in(Phase::Running);
  member.receive(EvidenceRequest{3});
  CHECK(member.only<CollectEvidence>().look == 3);
  member.event(OwnEvidence{3, {.notes = {"x"}}});
  CHECK(member.sent<EvidenceReply>().look == 3);
  MemberDriver ended = MemberDriver::in(Phase::Ended);
  ended.event(OwnEvidence{3, {}});
  CHECK(ended.actions.empty());
}

TEST_CASE("a suspected hang is reported only for the running round") {
  MemberDriver member = MemberDriver::in(Phase::Running);
  member.event(OwnSuspicion{0, Milliseconds(100), {hung(4), hung(5)}});
  const HangSuspected told = member.sent<HangSuspected>();
  REQUIRE(told.groups.size() == 1);
  CHECK(told.groups[0].ranks == RankRanges{{4, 5}});
  CHECK(told.groups[0].pids.size() == 2);
  member.event(OwnSuspicion{1, Milliseconds(100), {hung(4)}});
  CHECK(member.actions.empty());
  MemberDriver stopping = MemberDriver::in(Phase::Stopping);
  stopping.event(OwnSuspicion{0, Milliseconds(100), {hung(4)}});
  CHECK(stopping.actions.empty());
}

TEST_CASE("suspects that do not fit into one message are reported in several, without omissions") {
  MemberDriver member = MemberDriver::in(Phase::Running);
  std::vector<Failure> many;
  for (int i = 0; i < 20'000; ++i) {
    many.push_back(hung(2 * i));  // every second rank, so that no ranks can be merged into ranges
    many.back().program = std::string(1000, i < 200 ? static_cast<char>('a' + i % 26) : 'x');
    std::get<Hung>(many.back().status).how += std::to_string(i < 200 ? i : 0);
  }
  member.event(OwnSuspicion{0, Milliseconds(100), many});
  std::set<int> ranks;
  std::size_t messages = 0;
  for (const MemberAction& action : member.actions) {
    const auto& told = std::get<HangSuspected>(std::get<SendToCoordinator>(action).message);
    const std::string frame = encode(MemberMessage(told));
    CHECK(frame.size() < kFrameLimitBytes);
    const auto heard = decode_member_message(std::string_view(frame).substr(4));
    REQUIRE(heard.has_value());
    CHECK(*heard == MemberMessage(told));
    for (const SuspectGroup& group : told.groups) {
      for (const RankRange& range : group.ranks)
        for (int rank = range.first; rank <= range.last; ++rank) ranks.insert(rank);
    }
    ++messages;
  }
  CHECK(ranks.size() == 20'000);
  CHECK(messages > 1);
  CHECK(messages < 20);
}

TEST_CASE("a hang is shown only in its own round") {
  MemberDriver member = MemberDriver::in(Phase::Running);
  member.receive(HangFound{0, "rank 3 hung", {}});
  CHECK(member.only<ShowHang>().found.cause == "rank 3 hung");
  member.receive(HangFound{1, "rank 3 hung", {}});
  CHECK(member.count<ShowHang>() == 0);
}

}  // namespace drun::rendezvous
