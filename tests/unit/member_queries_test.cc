#include <set>
#include <utility>

#include "rendezvous/protocol/control_wire.h"
#include "tests/support/catch.h"
#include "tests/support/member_driver.h"

namespace drun::rendezvous {
namespace {

using test::MemberDriver;
using Phase = MemberPhase;

Failure hung(int rank) {
  Failure failure;
  failure.rank = rank;
  failure.status = Hung{"silent"};
  return failure;
}

}  // namespace

TEST_CASE("a member sends a query to the coordinator if it has one, and answers it itself if not") {
  const auto [kind, in_touch] =
      GENERATE(std::pair(QueryKind::Status, std::set{Phase::Joined, Phase::Running, Phase::Done,
                                                     Phase::Stopping, Phase::Stopped}),
               std::pair(QueryKind::Stacks,
                         std::set{Phase::Running, Phase::Done, Phase::Stopping, Phase::Stopped}),
               std::pair(QueryKind::Log,
                         std::set{Phase::Running, Phase::Done, Phase::Stopping, Phase::Stopped}));
  const Phase phase =
      GENERATE(Phase::Resting, Phase::Dialing, Phase::Greeting, Phase::Joined, Phase::Running,
               Phase::Done, Phase::Stopping, Phase::Stopped, Phase::Leaving, Phase::Ending);
  const Query query{7, kind, 3, "x"};
  MemberDriver member = MemberDriver::in(phase);
  member.event(query);
  if (in_touch.contains(phase)) {
    CHECK(member.sent<Query>() == query);
    member.receive(QueryResult{7, "", "y"});
    CHECK(member.only<QueryResult>() == QueryResult{7, "", "y"});
    return;
  }
  CHECK(member.only<QueryResult>().number == 7);
  const std::string note = member.only<QueryResult>().note;
  if (kind != QueryKind::Status && !member.state.world)
    CHECK(note == "no workers run yet");
  else if (phase == Phase::Leaving || phase == Phase::Ending)
    CHECK(note == "this node leaves the job");
  else
    CHECK(note == "this node is not in touch with its job");
}

TEST_CASE("a query of this node goes to its agent, and the answer to the coordinator") {
  for (const Phase phase : {Phase::Joined, Phase::Running, Phase::Stopped, Phase::Leaving}) {
    MemberDriver member = MemberDriver::in(phase);
    const NodeQuery query{3, QueryKind::Log, "x"};
    member.receive(query);
    CHECK(member.only<NodeQuery>() == query);
    member.event(NodeAnswer{3, "y"});
    CHECK(member.sent<NodeAnswer>() == NodeAnswer{3, "y"});
  }
  MemberDriver ended = MemberDriver::in(Phase::Ended);
  ended.event(NodeAnswer{3, "y"});
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
  member.receive(HangFound{0, "rank 3 hung", ""});
  CHECK(member.only<ShowHang>().found.cause == "rank 3 hung");
  member.receive(HangFound{1, "rank 3 hung", ""});
  CHECK(member.count<ShowHang>() == 0);
}

}  // namespace drun::rendezvous
