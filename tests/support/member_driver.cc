#include "tests/support/member_driver.h"

#include <functional>

namespace drun::test {

using namespace rendezvous;
using Phase = MemberPhase;

namespace {

MemberSpec spec() {
  MemberSpec spec;
  spec.join.node_rank = 1;
  spec.join.node_count = 3;
  spec.join.local_world_size = 2;
  spec.join.endpoint = {"10.0.0.1", 29500};
  spec.join.is_coordinator = false;
  spec.join.master_addr = "10.0.0.1";
  spec.join.master_port = 29500;
  spec.host = "host1";
  spec.pid = 4711;
  spec.instance = 1;
  return spec;
}

AgedFailure own_failure(int round) {
  AgedFailure aged;
  aged.failure.rank = 4;
  aged.failure.round = round;
  aged.failure.status = Exited{3};
  return aged;
}

}  // namespace

MemberDriver::MemberDriver() : state(new_member(spec())) {}

World MemberDriver::world(int round) {
  return World{.run_id = "none",
               .round = round,
               .max_restarts = 3,
               .node_rank = 1,
               .node_count = 3,
               .base_rank = 4,
               .local_world_size = 2,
               .world_size = 6,
               .role = "default",
               .role_base_rank = 4,
               .role_world_size = 6,
               .master_addr = "10.0.0.1",
               .master_port = 29500};
}

Outcome MemberDriver::outcome_of(Ending ending) {
  Outcome outcome;
  outcome.ending = std::move(ending);
  return outcome;
}

MemberDriver MemberDriver::in(Phase phase) {
  MemberDriver member;
  member.event(MemberStart{});
  if (phase == Phase::Dialing) return member;
  if (phase == Phase::Resting) return member.event(ConnectFailed{"connection refused"}), member;
  member.event(Connected{});
  if (phase == Phase::Greeting) return member;
  if (phase == Phase::Ended) return member.receive(Refused{{ErrorCode::Refused, "no"}}), member;
  member.receive(Welcome{Milliseconds(15000)});
  if (phase == Phase::Joined) return member;
  if (phase == Phase::Leaving) return member.event(OwnSignal{15}), member;
  member.receive(WorldReady{world(0)});
  if (phase == Phase::Running) return member;
  if (phase == Phase::Done) return member.event(OwnSuccess{0}), member;
  if (phase == Phase::Ending) return member.event(ConnectionLost{"gone"}), member;
  member.receive(Stop{0, "rank 0 failed"});
  if (phase == Phase::Stopped) member.event(OwnStopped{0, {}});
  return member;
}

void MemberDriver::be_silent(Time::duration time) {
  const Time end = now + time;
  const Phase before = state.phase;
  while (state.phase == before && deadline(state) && *deadline(state) <= end) {
    now = *deadline(state);
    event(MemberTick{});
  }
}

std::string MemberDriver::log(std::optional<LogLevel> level) const {
  std::string text;
  for (const auto& action : actions) {
    const auto* line = std::get_if<LogLine>(&action);
    if (line != nullptr && line->level == level.value_or(line->level)) text += line->text + "\n";
  }
  return text;
}

void MemberDriver::provoke(int kind) {
  const std::vector<std::function<void()>> events = {
      [this] { event(Connected{}); },
      [this] { event(ConnectFailed{"refused"}); },
      [this] { event(WrongPeer{"is not a drun"}); },
      [this] { event(ConnectionLost{"its connection closed"}); },
      [this] { receive(Welcome{Milliseconds(1000)}); },
      [this] {
        receive(Waiting{3, 1, {}, {}});
      },
      [this] {
        receive(Refused{{ErrorCode::Closed, "over"}});
      },
      [this] { receive(WorldReady{world(0)}); },
      [this] { receive(WorldReady{world(1)}); },
      [this] {
        receive(Stop{0, "x"});
      },
      [this] {
        receive(Stop{1, "x"});
      },
      [this] { receive(Finish{outcome_of(Succeeded{})}); },
      [this] { receive(Pong{}); },
      [this] { event(OwnFailure{own_failure(0)}); },
      [this] { event(OwnFailure{own_failure(1)}); },
      [this] { event(OwnSuccess{0}); },
      [this] {
        event(OwnStopped{0, {own_failure(0)}});
      },
      [this] {
        event(OwnStopped{0, {}});
      },
      [this] { event(OwnSignal{15}); },
      [this] { event(MemberTick{}); },
      [this] {
        event(OtherCoordinator{{ErrorCode::Refused, "no"}});
      },
      [this] {
        event(Query{1, QueryKind::Status});
      },
      [this] {
        event(Query{1, QueryKind::Stacks});
      },
      [this] {
        event(NodeAnswer{1, "x"});
      },
      [this] {
        event(OwnSuspicion{0, Milliseconds(100), {own_failure(0).failure}});
      },
      [this] {
        receive(NodeQuery{1, QueryKind::Stacks});
      },
      [this] {
        receive(QueryResult{1, "x"});
      },
      [this] {
        receive(HangFound{0, "x", {}});
      },
      [this] { receive(NodeLeftOut{}); },
      [this] { receive(FaultInjected{}); },
      [this] { event(OwnFault{}); },
      [this] { event(OwnTimes{}); },
      [this] { event(OwnSpeed{}); },
      [this] { receive(SlowFound{}); },
      [this] { receive(Vote{}); },
      [this] {
        receive(Follow{"b", 29400, 1});
      },
      [this] {
        event(LeaderNamed{{"b", 29400}, 1});
      },
      [this] {
        receive(Remember{{{"b", 0, 1}}});
      },
      [this] { receive(LivenessCheck{1}); },
  };
  REQUIRE(events.size() == kEventKinds);
  events[static_cast<std::size_t>(kind)]();
}

}  // namespace drun::test
