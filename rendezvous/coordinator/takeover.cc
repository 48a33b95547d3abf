#include "rendezvous/coordinator/takeover.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "rendezvous/base/bytes.h"

namespace drun::rendezvous {
namespace {

constexpr int kMostRestarts = 1 << 16;
// Leaves room for further rounds.
constexpr int kMostRounds = 1 << 29;
constexpr int kMostLosses = 64;

std::vector<Time> restarts_of(const Past& past, Time now) {
  const auto count = static_cast<std::size_t>(std::clamp(past.restarts, 0, kMostRestarts));
  const std::size_t told = std::min(past.restart_ages.size(), count);
  const auto first = past.restart_ages.end() - static_cast<std::ptrdiff_t>(told);
  std::vector<Time> restarts(count - told, now - (told > 0 ? *first : past.age));
  for (auto age = first; age != past.restart_ages.end(); ++age) restarts.push_back(now - *age);
  std::sort(restarts.begin(), restarts.end());
  return restarts;
}

void inherit_restarts(RoundState& state, std::vector<Time> restarts) {
  if (restarts.size() > state.restarts.size()) std::swap(restarts, state.restarts);
  // Members that joined earlier know the times better.
  if (restarts.size() != state.restarts.size()) return;
  for (std::size_t i = 0; i < restarts.size(); ++i)
    state.restarts[i] = std::min(state.restarts[i], restarts[i]);
}

LeftOut left_out_of(const NodeRecord& record) {
  return {record.node_rank, record.name.substr(0, record.name.find(" at ")), record.round,
          record.reason};
}

// Records an agent that is not connected, without making it a member.
std::vector<AgentId> inherit_records(RoundState& state, const std::vector<NodeRecord>& records) {
  std::vector<AgentId> news;
  for (const NodeRecord& record : records) {
    const AgentId id{record.name, record.slot};
    KnownAgent& self = state.known[id];
    self.losses = std::max(self.losses, std::min(record.losses, kMostLosses));
    if (record.is_left_out && inherit_left_out(state.exclusions, id, left_out_of(record)))
      news.push_back(id);
    if (state.spec.term != 0) note_record(state.records, record_of(state, id));
  }
  return news;
}

// Of the failures that members report, those of the latest round count, and of these the earliest:
// the root cause of the round that the former coordinator did not complete.
void inherit_failure(RoundState& state, const AgedFailure& told, Time now) {
  const Time moment = now - told.age;
  if (state.last_failure && state.inherited_failure) {
    const Failure& known = *state.last_failure;
    const bool is_better = std::tuple(-told.failure.round, moment, told.failure.rank) <
                           std::tuple(-known.round, *state.inherited_failure, known.rank);
    if (!is_better) return;
  }
  state.last_failure = short_failure(told.failure);
  state.inherited_failure = moment;
}

}  // namespace

NodeRecord record_of(const RoundState& state, const AgentId& id) {
  NodeRecord record{.name = id.first, .slot = id.second};
  const auto known = state.known.find(id);
  if (known != state.known.end()) record.losses = known->second.losses;
  for (const Exclusions::Entry& entry : state.exclusions.nodes) {
    if (entry.id != id) continue;
    record.is_left_out = true;
    record.node_rank = entry.told.node_rank;
    record.round = entry.told.round;
    record.reason = cut_text(entry.told.reason, kRecordTextBytes);
  }
  return record;
}

std::vector<AgentId> inherit(RoundState& state, const Past& past, Time now) {
  state.next_round = std::max(state.next_round, std::min(past.rounds, kMostRounds));
  inherit_restarts(state, restarts_of(past, now));
  std::vector<AgentId> left_out = inherit_records(state, past.records);
  if (state.has_begun) return left_out;
  if (past.failure) inherit_failure(state, *past.failure, now);
  const Time began = now - past.age;
  state.first_world = std::min(state.first_world.value_or(began), began);
  const int survivors = std::max(past.node_count - (state.spec.is_back ? 0 : 1), 1);
  state.survivors = std::max(state.survivors.value_or(0), survivors);
  if (!state.last_loss)
    state.last_loss = NodeLost{0, past.coordinator, true, "its agent was lost, or cut off"};
  return left_out;
}

void inherit(RoundState& state, const RoundRecord& record, Time now) {
  state.next_round = std::max(state.next_round, std::min(record.rounds, kMostRounds));
  const auto count = static_cast<std::size_t>(std::clamp(record.restarts, 0, kMostRestarts));
  inherit_restarts(state, std::vector<Time>(count, now));
  state.exclusions = record.exclusions;
}

RoundRecord record_of(const RoundState& state) {
  return {.rounds = state.next_round,
          .restarts = static_cast<int>(state.restarts.size()),
          .exclusions = state.exclusions};
}

bool has_survivors(const RoundState& state) {
  return !state.has_begun && state.survivors &&
         static_cast<int>(state.line.size()) >= *state.survivors;
}

Time::duration last_call_of(const RoundState& state) {
  const Milliseconds usual = state.rules.last_call_timeout;
  return state.survivors ? std::min(usual, state.spec.heartbeat_timeout) : usual;
}

// --- Records for a later coordinator

namespace {

// A Remember is sent to all members. When many nodes are lost together, their connections end one
// by one: the first loss is sent at once, and all others within this interval in one message.
constexpr Milliseconds kRecordInterval{100};

}  // namespace

void record(RoundState& state, const AgentId& id) {
  if (state.spec.term == 0) return;
  const NodeRecord changed = record_of(state, id);
  note_record(state.records, changed);
  note_record(state.untold, changed);
}

void send_records(RoundStep& step) {
  RoundState& state = step.state;
  if (state.untold.empty()) return;
  step.actions.emplace_back(SendAll{all_peers(state), Remember{std::exchange(state.untold, {})}});
  state.tell_from = step.now + kRecordInterval;
}

void send_due_records(RoundStep& step) {
  if (step.now >= step.state.tell_from && !tells_the_end(step.state)) send_records(step);
}

void tell_restarts(RoundStep& step) {
  if (step.state.spec.term == 0) return;
  step.send_all(Remember{{}, static_cast<int>(step.state.restarts.size())});
}

void tell_records(RoundStep& step, Peer peer) {
  const RoundState& state = step.state;
  if (state.spec.term != 0 && !state.records.empty()) step.send(peer, Remember{state.records});
}

// --- The fence

RoundState RoundFence::begin(RoundSpec spec, std::uint64_t term, const RoundRecord& before,
                             Time now) {
  spec.term = term;
  spec.rounds = known_rounds_ = before.rounds;
  spec.is_back = led_rounds_ == before.rounds;
  held_.clear();
  RoundState state = open_round(std::move(spec), now);
  inherit(state, before, now);
  return state;
}

// Sends nothing of a new world before its number is recorded (election.h).
RoundFence::Verdict RoundFence::judge(const RoundState& state, const RoundAction& action) {
  const bool is_unknown =
      std::holds_alternative<ClearStore>(action) && known_rounds_ < state.next_round;
  // A LivenessCheck has its own time limit, and does not depend on a world.
  const auto* const message = std::get_if<SendTo>(&action);
  const bool is_check =
      message != nullptr && std::holds_alternative<LivenessCheck>(message->message);
  // Nothing of a held world was sent, and nothing will be: its members look for the next leader.
  if (std::holds_alternative<StepDown>(action)) held_.clear();
  if (is_check || (!is_unknown && held_.empty())) return Verdict::Do;
  if (is_unknown) asked_rounds_ = state.next_round;
  held_.push_back(action);
  return is_unknown ? Verdict::Ask : Verdict::Hold;
}

std::vector<RoundAction> RoundFence::know(int rounds) {
  known_rounds_ = rounds;
  if (rounds < asked_rounds_) return {};
  return std::exchange(held_, {});
}

RoundFence::Loss RoundFence::lose(const RoundState& state) {
  if (tells_the_end(state) && held_.empty()) return Loss::Kept;
  held_.clear();
  if (state.phase == RoundPhase::Over) return Loss::Over;
  led_rounds_ = known_rounds_;
  return Loss::Lost;
}

bool tells_the_end(const RoundState& state) {
  return state.phase == RoundPhase::Ending || state.phase == RoundPhase::Over;
}

}  // namespace drun::rendezvous
