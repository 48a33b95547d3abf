#include "rendezvous/control_wire.h"
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

TEST_CASE("a question goes to the coordinator when there is one, and is answered here otherwise") {
  for (const Phase phase : kInTouch) {
    MemberDriver member = MemberDriver::in(phase);
    member.event(OwnQuestion{7});
    CHECK(member.said<StacksAsked>().question == 7);
    member.hear(StacksTold{7, {.notes = {"x"}}});
    const Told told = member.only<Told>();
    CHECK(told.question == 7);
    CHECK(told.evidence.notes.size() == 1);
  }
  for (const Phase phase : {Phase::Resting, Phase::Dialing, Phase::Greeting, Phase::Joined}) {
    MemberDriver member = MemberDriver::in(phase);
    member.event(OwnQuestion{7});
    CHECK(member.only<Told>().evidence.notes == std::vector<std::string>{"no workers run yet"});
  }
}

TEST_CASE("a look is passed on, and what was found is sent back with its number") {
  MemberDriver member = MemberDriver::in(Phase::Running);
  member.hear(TellStacks{3});
  CHECK(member.only<LookAtWorkers>().look == 3);
  member.event(OwnEvidence{3, {.notes = {"x"}}});
  CHECK(member.said<EvidenceGiven>().look == 3);
  MemberDriver ended = MemberDriver::in(Phase::Ended);
  ended.event(OwnEvidence{3, {}});
  CHECK(ended.actions.empty());
}

TEST_CASE("a suspicion is told of the round that runs, and of no other") {
  MemberDriver member = MemberDriver::in(Phase::Running);
  member.event(OwnSuspicion{0, Milliseconds(100), {hung(4), hung(5)}});
  CHECK(member.said<HangSuspected>().suspects.size() == 2);
  member.event(OwnSuspicion{1, Milliseconds(100), {hung(4)}});
  CHECK(member.actions.empty());
  MemberDriver stopping = MemberDriver::in(Phase::Stopping);
  stopping.event(OwnSuspicion{0, Milliseconds(100), {hung(4)}});
  CHECK(stopping.actions.empty());
}

TEST_CASE("more suspects than a message carries are told as far as they fit") {
  MemberDriver member = MemberDriver::in(Phase::Running);
  std::vector<Failure> many(2000, hung(4));
  for (Failure& failure : many) failure.program = std::string(1000, 'x');
  member.event(OwnSuspicion{0, Milliseconds(100), many});
  const HangSuspected told = member.said<HangSuspected>();
  CHECK(told.suspects.size() > 10);
  CHECK(encode(MemberMessage(told)).size() < kFrameLimitBytes);
}

TEST_CASE("a hang is shown in its own round only") {
  MemberDriver member = MemberDriver::in(Phase::Running);
  member.hear(HangFound{0, "rank 3 hung", {}});
  CHECK(member.only<ShowHang>().found.cause == "rank 3 hung");
  member.hear(HangFound{1, "rank 3 hung", {}});
  CHECK(member.count<ShowHang>() == 0);
}

}  // namespace drun::rendezvous
