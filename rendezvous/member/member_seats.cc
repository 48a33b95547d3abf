// Who leads, of several that may.
#include "rendezvous/member/member_seats.h"

#include <algorithm>
#include <utility>

#include "rendezvous/member/member_turn.h"

namespace drun::rendezvous {
namespace {

using Phase = MemberPhase;

constexpr std::size_t kMostRestartsKept = std::size_t{1} << 16;

void remember_restarts(Memory& memory, int restarts, Time now) {
  const std::size_t known =
      std::min(static_cast<std::size_t>(std::max(restarts, 0)), kMostRestartsKept);
  while (memory.restarts.size() < known) memory.restarts.push_back(now);
}

}  // namespace

void remember(Memory& memory, const World& world, std::string coordinator, Time now) {
  memory.rounds = std::max(memory.rounds, world.round + 1);
  memory.coordinator = std::move(coordinator);
  remember_restarts(memory, world.restarts, now);
}

Past past_of(const Memory& memory, const World& world, Time first_world, Time now) {
  const auto age = [now](Time then) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(now - then);
  };
  Past past{.rounds = memory.rounds,
            .node_count = world.node_count,
            .age = age(first_world),
            .coordinator = memory.coordinator,
            .restarts = static_cast<int>(memory.restarts.size()),
            .records = memory.records};
  const std::size_t told = std::min(memory.restarts.size(), kMostRestartsTold);
  for (std::size_t i = memory.restarts.size() - told; i < memory.restarts.size(); ++i)
    past.restart_ages.push_back(age(memory.restarts[i]));
  return past;
}

void MemberTurn::aim(const Endpoint& endpoint) {
  JoinSpec& join = state_.spec.join;
  join.endpoint = endpoint;
  join.is_coordinator = join.seat && join.seats[*join.seat] == endpoint;
  state_.endpoint = to_string(endpoint);
}

// An agent's own seat knows best: it answers once it knows.
void MemberTurn::aim_at_next() {
  const JoinSpec& join = state_.spec.join;
  state_.seeking.was_sent_on = false;
  if (join.seat) return aim(join.seats[*join.seat]);
  aim(join.seats[state_.seeking.next++ % join.seats.size()]);
}

void MemberTurn::dial() {
  state_.phase = Phase::Dialing;
  state_.answer_by = now_ + patience();
  actions_.emplace_back(Connect{});
}

// Nobody there, or nobody who knows who leads.
void MemberTurn::ask_elsewhere(std::string trouble) {
  Seeking& seeking = state_.seeking;
  // Whoever was named leads no more, or cannot be reached from here; the next seat is believed.
  seeking.lost_term = seeking.was_sent_on ? seeking.term : 0;
  actions_.emplace_back(Disconnect{});
  rest(std::move(trouble));
}

void MemberTurn::hear(const Follow& follow) {
  if (state_.phase != Phase::Greeting || !has_seats()) return broken("a word of who leads");
  Seeking& seeking = state_.seeking;
  // Of several endpoints this one at least is right. With etcd it is this agent itself that says
  // so.
  if (!state_.spec.join.etcd) seeking.wrong_answers = 0;
  const Endpoint leader{follow.host, follow.port};
  if (seeking.was_sent_on || leader.port == 0)
    return ask_elsewhere("does not lead, and names " + to_string(leader));
  actions_.emplace_back(Disconnect{});
  log(LogLevel::Debug, state_.endpoint + " says that " + to_string(leader) + " coordinates");
  aim(leader);
  seeking.was_sent_on = true;
  seeking.term = follow.term;
  dial();
}

void MemberTurn::hear(const Remember& told) {
  if (!is_elastic() || state_.phase == Phase::Greeting)
    return broken("what to remember, before the welcome");
  for (const NodeRecord& record : told.records) note_record(state_.memory.records, record);
  remember_restarts(state_.memory, told.restarts, now_);
}

void MemberTurn::handle(const LeaderNamed& named) {
  const bool has_coordinator =
      is_in({Phase::Joined, Phase::Running, Phase::Done, Phase::Stopping, Phase::Stopped});
  if (!has_seats() || !has_coordinator || named.term <= state_.seeking.term) return;
  actions_.emplace_back(Disconnect{});
  connection_lost(to_string(named.endpoint) + " coordinates now");
}

void MemberTurn::handle(const LeaderUnknown& unknown) {
  state_.etcd_trouble = unknown.reason;
  if (!unknown.reason.empty())
    state_.next_report = std::min(state_.next_report, now_ + std::chrono::seconds(1));
}

}  // namespace drun::rendezvous
