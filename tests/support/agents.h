// A coordinator and agents without workers, on loopback. They record what they receive and act as
// the test directs.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/member/client.h"
#include "rendezvous/server/server.h"
#include "tests/support/event_loop.h"

namespace drun::test {

struct LogLines {
  Log log() {
    return Log([this](LogLevel, std::string_view text) { lines.emplace_back(text); });
  }
  bool has(std::string_view text) const {
    return std::any_of(lines.begin(), lines.end(), [text](const std::string& line) {
      return line.find(text) != std::string::npos;
    });
  }
  std::vector<std::string> lines;
};

inline JoinSpec join_spec(int node_rank, int node_count, std::uint16_t port) {
  JoinSpec spec;
  spec.run_id = "edge";
  spec.node_rank = node_rank;
  spec.node_count = node_count;
  spec.local_world_size = 2;
  spec.endpoint = {"127.0.0.1", port};
  spec.is_coordinator = node_rank == 0;
  spec.master_addr = "127.0.0.1";
  return spec;
}

inline Secret test_secret(const std::string& bytes = "0123456789abcdef") {
  return *Secret::make(bytes, "test");
}

class TestAgent final : public rendezvous::Client::Listener {
 public:
  TestAgent(asio::io_context& io, const JoinSpec& join,
            rendezvous::Client::JoinLocally join_locally = {})
      : spec(join),
        client(io, join, "host" + std::to_string(join.node_rank), log.log(), *this, nullptr,
               std::move(join_locally)) {}

  void on_world(const World& told) override { world = told; }
  void on_stop(int round, const std::optional<rendezvous::StopNotice>& /*notice*/) override {
    stops.push_back(round);
    if (stops_at_once) client.report_stopped(round, {});
  }
  void on_outcome(const Outcome& told) override {
    ++outcome_count;
    outcome = told;
    client.close();
  }

  void fail() {
    const rendezvous::SeenFailure seen = failure(std::chrono::steady_clock::now());
    client.report_failure(seen);
    client.report_stopped(world->round, {seen});
  }
  // A failure of its first worker, seen at the given time.
  rendezvous::SeenFailure failure(std::chrono::steady_clock::time_point seen) const {
    Failure failure;
    failure.rank = world->base_rank;
    failure.round = world->round;
    failure.status = Exited{3};
    failure.time =
        std::chrono::time_point_cast<WallTime::duration>(std::chrono::system_clock::now());
    failure.stderr_tail = {"the last line"};
    return {failure, seen};
  }
  std::string error() const {
    const auto* not_run = outcome ? std::get_if<NotRun>(&outcome->ending) : nullptr;
    return not_run == nullptr ? "" : not_run->error.message;
  }

  JoinSpec spec;
  LogLines log;
  std::optional<World> world;
  std::vector<int> stops;
  std::optional<Outcome> outcome;
  int outcome_count = 0;
  bool stops_at_once = true;
  rendezvous::Client client;
};

// A coordinator on a free port, and agents that can be added.
struct TestCluster {
  explicit TestCluster(int count, JoinSpec coordinator = {});

  TestAgent& add(int node_rank) { return add(spec_of(node_rank)); }
  // A spec that matches the coordinator's, including its secret.
  JoinSpec spec_of(int node_rank) const;
  // The coordinator's own agent joins within the process.
  TestAgent& add(const JoinSpec& spec);
  void add_all();
  std::uint16_t port() const { return server->port(); }
  bool until(const std::function<bool()>& condition) { return run_until(io, condition); }
  bool until_round(int round);
  bool until_all_ended();

  asio::io_context io{1};
  int node_count;
  std::optional<Secret> secret;
  LogLines log;
  bool is_finished = false;
  std::unique_ptr<rendezvous::Server> server;
  std::vector<std::unique_ptr<TestAgent>> agents;
};

}  // namespace drun::test
