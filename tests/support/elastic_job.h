// The coordinator of an elastic job with a simulated clock. The test makes the nodes' moves.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "tests/support/round_driver.h"

namespace drun::test {

inline rendezvous::RoundSpec elastic_spec(int least, int most) {
  rendezvous::RoundSpec spec;
  spec.run_id = "job-1";
  spec.node_count = most;
  spec.elastic = ElasticSpec{.min_nodes = least};
  spec.endpoint = "host0:29400";
  spec.master_addr = "host0";
  spec.master_port = 29400;
  spec.join_timeout = std::chrono::minutes(10);
  spec.heartbeat_timeout = std::chrono::seconds(10);
  spec.make_stack_answers = agent::make_merged_stacks;
  return spec;
}

// The same spec for a fixed number of nodes.
inline rendezvous::RoundSpec inelastic_spec(int node_count) {
  rendezvous::RoundSpec spec = elastic_spec(1, node_count);
  spec.elastic.reset();
  return spec;
}

// Node n's host is "host<n>". Node 0's agent runs on the coordinator's host.
struct ElasticJob : RoundDriver {
  ElasticJob(int least, int most) : RoundDriver(elastic_spec(least, most)) {}
  explicit ElasticJob(const rendezvous::RoundSpec& spec) : RoundDriver(spec) {}

  rendezvous::Hello hello_of(int node) const {
    rendezvous::Hello own = hello(node);
    own.node_rank.reset();
    own.min_node_count = state.spec.elastic->min_nodes;
    own.is_coordinator = node == 0;
    return own;
  }
  void come(int node) { join(peer(node), hello_of(node)); }
  void come_as(rendezvous::Peer peer, int node, std::uint64_t instance) {
    rendezvous::Hello hello = hello_of(node);
    hello.instance = instance;
    join(peer, hello);
  }
  std::optional<World> world(rendezvous::Peer to) const {
    const auto ready = sent<rendezvous::WorldReady>(to);
    return ready.empty() ? std::nullopt : std::optional(ready.back().world);
  }
  std::optional<World> world_of(int node) const { return world(peer(node)); }
  void stopped(int node, std::vector<rendezvous::AgedFailure> failures = {}) {
    receive(peer(node), rendezvous::Stopped{state.round, std::move(failures), 0});
  }
  // Lets time pass while all connected peers send heartbeats.
  void live(rendezvous::Milliseconds time) {
    constexpr rendezvous::Milliseconds kStep{500};
    std::vector<rendezvous::RoundAction> all;
    for (; time.count() > 0; time -= kStep) {
      std::vector<rendezvous::Peer> peers;
      for (const auto& [each, node] : state.node_of) peers.push_back(each);
      for (const auto& [each, candidate] : state.line) peers.push_back(each);
      for (const rendezvous::Peer each : peers)
        event(rendezvous::PeerSaid{each, rendezvous::Ping{}});
      wait(kStep);
      all.insert(all.end(), actions.begin(), actions.end());
    }
    actions = all;
  }
};

}  // namespace drun::test
