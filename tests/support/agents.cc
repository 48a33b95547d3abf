#include "tests/support/agents.h"

namespace drun::test {

using namespace rendezvous;

namespace {

bool is_in_round(const TestAgent& agent, int round) {
  return agent.world && agent.world->round == round;
}

}  // namespace

TestCluster::TestCluster(int count, JoinSpec coordinator)
    : node_count(count), secret(coordinator.secret) {
  JoinSpec spec = join_spec(0, count, coordinator.endpoint.port);
  spec.max_restarts = coordinator.max_restarts;
  spec.store_host = coordinator.store_host;
  spec.heartbeat_timeout = coordinator.heartbeat_timeout;
  spec.join_timeout = coordinator.join_timeout;
  spec.secret = coordinator.secret;
  if (!coordinator.master_addr.empty()) spec.master_addr = coordinator.master_addr;
  auto opened = Server::open(io, spec, log.log(), [this] { is_finished = true; });
  if (opened)
    server = *std::move(opened);
  else
    log.lines.push_back(opened.error().message);
}

JoinSpec TestCluster::spec_of(int node_rank) const {
  JoinSpec spec = join_spec(node_rank, node_count, port());
  spec.secret = secret;
  return spec;
}

TestAgent& TestCluster::add(const JoinSpec& spec) {
  Client::JoinLocally join_locally;
  if (spec.is_coordinator)
    join_locally = [this](ControlLink::Listener& member) {
      return server ? server->join_locally(member) : nullptr;
    };
  agents.push_back(std::make_unique<TestAgent>(io, spec, std::move(join_locally)));
  agents.back()->client.start();
  return *agents.back();
}

void TestCluster::add_all() {
  for (int node = 0; node < node_count; ++node) add(node);
}

bool TestCluster::until_round(int round) {
  return until([this, round] {
    return std::all_of(agents.begin(), agents.end(),
                       [round](const auto& agent) { return is_in_round(*agent, round); });
  });
}

bool TestCluster::until_all_ended() {
  return until([this] {
    return std::all_of(agents.begin(), agents.end(),
                       [](const auto& agent) { return agent->outcome.has_value(); });
  });
}

}  // namespace drun::test
