// A coordinator's state machine with a simulated clock, and its last actions.
#pragma once

#include <string>
#include <vector>

#include "agent/hang/hang_verdict.h"
#include "rendezvous/coordinator/round.h"

namespace drun::test {

// A job with a fixed set of nodes.
rendezvous::RoundSpec fixed_spec(int node_count, int max_restarts = 0);

inline rendezvous::QueryResult result_for(const rendezvous::Requester& requester,
                                          const rendezvous::SendResult& send) {
  rendezvous::QueryResult result = *send.result;
  result.number = requester.number;
  return result;
}

struct RoundDriver {
  explicit RoundDriver(rendezvous::RoundSpec spec) : state(rendezvous::open_round(spec, now)) {}

  void event(const rendezvous::RoundEvent& event);
  void receive(rendezvous::Peer peer, const rendezvous::MemberMessage& message);
  void leave(rendezvous::Peer peer);
  // Advances to the time that the machine requested, or further, then sends a tick.
  void wait(rendezvous::Milliseconds time);
  // The member with node rank r is peer 100 + r and has the same number as its instance.
  rendezvous::Hello hello(int node_rank) const {
    return {.run_id = state.spec.run_id,
            .node_rank = node_rank,
            .node_count = state.spec.node_count,
            .local_world_size = 2,
            .role = "default",
            .host = "host" + std::to_string(node_rank),
            .pid = 1000 + node_rank,
            .instance = 100U + static_cast<unsigned>(node_rank)};
  }
  static rendezvous::Peer peer(int node_rank) {
    return 100U + static_cast<rendezvous::Peer>(node_rank);
  }
  void join(int node_rank) { join(peer(node_rank), hello(node_rank)); }
  void join(rendezvous::Peer peer, const rendezvous::Hello& hello);
  void join_all() {
    for (int node = 0; node < state.spec.node_count; ++node) join(node);
  }

  // Messages of one kind to one peer, among the last actions.
  template <typename Message>
  std::vector<Message> sent(rendezvous::Peer to) const {
    std::vector<Message> messages;
    const auto keep = [&messages](const rendezvous::CoordinatorMessage& message) {
      if (const auto* wanted = std::get_if<Message>(&message)) messages.push_back(*wanted);
    };
    for (const auto& action : actions) {
      if (const auto* one = std::get_if<rendezvous::SendTo>(&action); one && one->peer == to)
        keep(one->message);
      if (const auto* send = std::get_if<rendezvous::SendResult>(&action)) {
        for (const auto& each : send->requesters) {
          if (each.peer == to) keep(result_for(each, *send));
        }
      }
      if (const auto* all = std::get_if<rendezvous::SendAll>(&action)) {
        for (const auto peer : all->peers) {
          if (peer == to) keep(all->message);
        }
      }
    }
    return messages;
  }
  // Messages of any kind to any peer, among the last actions.
  std::size_t message_count() const {
    std::size_t messages = 0;
    for (const auto& action : actions) {
      if (std::holds_alternative<rendezvous::SendTo>(action)) ++messages;
      if (const auto* all = std::get_if<rendezvous::SendAll>(&action))
        messages += all->peers.size();
      if (const auto* send = std::get_if<rendezvous::SendResult>(&action))
        messages += send->requesters.size();
    }
    return messages;
  }
  template <typename Action>
  std::size_t count() const {
    std::size_t found = 0;
    for (const auto& action : actions) found += std::holds_alternative<Action>(action) ? 1 : 0;
    return found;
  }
  bool dropped(rendezvous::Peer peer) const {
    for (const auto& action : actions) {
      const auto* drop = std::get_if<rendezvous::Drop>(&action);
      if (drop != nullptr && drop->peer == peer) return true;
    }
    return false;
  }
  // Queries: a member's request, the number with which a node was asked just now, the node's
  // answer, and the result of a member's request.
  void ask(int node_rank, std::uint64_t number, rendezvous::QueryKind kind) {
    receive(peer(node_rank), rendezvous::Query{.number = number, .kind = kind});
  }
  std::uint64_t number_asked(int node_rank) const;
  void answer(int node_rank, std::uint64_t number, const std::string& answer) {
    receive(peer(node_rank), rendezvous::NodeAnswer{number, answer});
  }
  rendezvous::QueryResult result(int node_rank, std::uint64_t number) const;
  bool has_result(int node_rank) const {
    return !sent<rendezvous::QueryResult>(peer(node_rank)).empty();
  }

  std::string log() const {
    std::string text;
    for (const auto& action : actions) {
      if (const auto* line = std::get_if<LogLine>(&action)) text += line->text + "\n";
    }
    return text;
  }

  rendezvous::Time now{std::chrono::hours(1)};
  rendezvous::RoundState state;
  std::vector<rendezvous::RoundAction> actions;
};

// A driver with fixed_spec of these, and all nodes joined.
RoundDriver running_round(int node_count, int max_restarts = 0);

// A minimal failure of a node's first worker (two workers a node).
inline rendezvous::AgedFailure aged_failure(int node_rank, std::chrono::microseconds age = {}) {
  Failure failure;
  failure.rank = 2 * node_rank;
  failure.node_rank = node_rank;
  failure.status = Exited{3};
  return {failure, age};
}

}  // namespace drun::test
