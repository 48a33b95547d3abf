#include "rendezvous/round/inheritance.h"

#include <algorithm>
#include <utility>

namespace drun::rendezvous {
namespace {

constexpr int kMostRestarts = 1 << 16;
// Leaves room to count on.
constexpr int kMostRounds = 1 << 29;

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
  // Who was there sooner knows better when it was.
  if (restarts.size() != state.restarts.size()) return;
  for (std::size_t i = 0; i < restarts.size(); ++i)
    state.restarts[i] = std::min(state.restarts[i], restarts[i]);
}

}  // namespace

void inherit(RoundState& state, const Past& past, Time now) {
  state.next_round = std::max(state.next_round, std::min(past.rounds, kMostRounds));
  inherit_restarts(state, restarts_of(past, now));
  if (state.has_begun) return;
  const Time began = now - past.age;
  state.first_world = std::min(state.first_world.value_or(began), began);
  const int survivors = std::max(past.node_count - (state.spec.is_back ? 0 : 1), 1);
  state.survivors = std::max(state.survivors.value_or(0), survivors);
  if (!state.last_loss)
    state.last_loss = NodeLost{0, past.coordinator, true, "its agent was lost, or cut off"};
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
  const Milliseconds usual = state.spec.elastic->last_call_timeout;
  return state.survivors ? std::min(usual, state.spec.heartbeat_timeout) : usual;
}

}  // namespace drun::rendezvous
