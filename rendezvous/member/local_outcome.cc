#include "rendezvous/member/local_outcome.h"

#include <chrono>
#include <utility>
#include <vector>

#include "rendezvous/base/text.h"
#include "rendezvous/protocol/membership_text.h"

namespace drun::rendezvous {

std::string place_text(const MemberState& state) {
  const std::vector<Endpoint>& seats = state.spec.join.seats;
  return seats.empty() ? state.endpoint : to_string(seats);
}

std::string waiting_for_text(const MemberState& state) {
  const std::string trouble =
      state.last_trouble.empty() ? "has not answered yet" : state.last_trouble;
  const std::optional<EtcdSpec>& etcd = state.spec.join.etcd;
  if (!etcd) return "waiting for the coordinator at " + place_text(state) + ": it " + trouble;
  const std::string place = "etcd at " + to_string(etcd->endpoints);
  if (!state.etcd_trouble.empty()) return "waiting for " + place + ": " + state.etcd_trouble;
  return "waiting for a coordinator that is elected by " + place + ": " + state.endpoint + " " +
         trouble;
}

std::optional<int> own_rank(const MemberState& state) {
  if (!state.spec.join.elastic) return state.spec.join.node_rank;
  return state.world ? std::optional(state.world->node_rank) : std::nullopt;
}

Ending lost_ending(const MemberState& state, std::string_view reason) {
  if (state.signal) return Interrupted{*state.signal, own_rank(state), state.spec.host};
  const bool has_known = !state.spec.join.seats.empty() && !state.memory.coordinator.empty();
  NodeLost lost{0, has_known ? state.memory.coordinator : state.spec.join.endpoint.host, true,
                std::string(reason)};
  if (!state.spec.join.seats.empty() && state.rejoin_by)
    lost.reason += state.spec.join.etcd
                       ? "; then without success: " + waiting_for_text(state)
                       : "; no majority of " + place_text(state) + " has a coordinator";
  if (!state.own_failures.empty()) {
    const Failure& failure = state.own_failures.first();
    lost.reason += "; before that, rank " + std::to_string(failure.rank) +
                   " failed on this node: " + to_string(failure.status);
  }
  return lost;
}

Outcome local_outcome(const MemberState& state, Ending ending, Time now) {
  Outcome outcome{.ending = std::move(ending),
                  .run_id = state.spec.join.run_id,
                  .node_count = state.world ? state.world->node_count : state.spec.join.node_count,
                  .world_size = state.world ? state.world->world_size : 0,
                  .restarts = state.world ? state.world->restarts : 0,
                  .max_restarts = state.spec.join.max_restarts};
  if (state.first_world)
    outcome.duration = std::chrono::duration_cast<Milliseconds>(now - *state.first_world);
  return outcome;
}

namespace {

// The options that say where the coordinator is.
const char* place_options(const JoinSpec& join) {
  return join.elastic ? "--rdzv-endpoint" : "--master_addr, --master_port";
}

}  // namespace

Error join_timeout_error(const MemberState& state) {
  const Milliseconds limit = state.spec.join.join_timeout;
  const bool has_joined = state.phase == MemberPhase::Joined;
  if (has_joined && state.waiting)
    return {ErrorCode::Timeout, timeout_text(*state.waiting, state.endpoint, limit)};
  if (!has_joined && state.spec.join.etcd)
    return {ErrorCode::Timeout,
            "gave up " + waiting_for_text(state) + ", after " + duration_text(limit) +
                "; is etcd there? check --rdzv-endpoint and firewalls, or raise --rdzv-conf "
                "join_timeout=SECONDS"};
  std::string trouble = "has not answered";
  if (has_joined) trouble = "has not completed the world";
  if (!has_joined && !state.last_trouble.empty()) trouble = state.last_trouble;
  return {ErrorCode::Timeout,
          "the coordinator at " + place_text(state) + " " + trouble + "; gave up after " +
              duration_text(limit) +
              (state.spec.join.elastic ? "; is a node of the job running there? check "
                                       : "; is node 0 running there? check ") +
              place_options(state.spec.join) +
              " and firewalls, or raise --rdzv-conf join_timeout=SECONDS"};
}

Error reach_timeout_error(const MemberState& state) {
  const JoinSpec& join = state.spec.join;
  std::string trouble = state.last_trouble.empty() ? "no answer" : state.last_trouble;
  if (trouble.starts_with(kNotReached)) trouble = trouble.substr(kNotReached.size());
  std::string places;
  if (join.seats.empty()) places = addresses_text(join.book, join.endpoint);
  for (const Endpoint& seat : join.seats)
    places += (places.empty() ? "" : ", ") + addresses_text(join.book, seat);
  return {ErrorCode::Unreachable,
          "cannot reach any of " + places + " from " + state.spec.host + ": " + trouble +
              "; check the networks and firewalls between the hosts, or set --master-addr to an "
              "address that all hosts can reach"};
}

Error wrong_peer_error(const MemberState& state, std::string_view reason) {
  return {ErrorCode::Refused, state.endpoint + " " + std::string(reason) +
                                  (reason.ends_with('?') ? " check " : "; check ") +
                                  place_options(state.spec.join)};
}

}  // namespace drun::rendezvous
