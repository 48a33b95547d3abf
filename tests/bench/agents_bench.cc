// Measures how long it takes to form a world and to propagate a failure. The clients of N agents
// and one coordinator run in one process, over real sockets on loopback. There are no workers, so
// only the rendezvous is measured.
//
//   agents_bench [--secret] [N ...]     default: 1 3 1000 2000 4000; --secret: over TLS
//
// Prints one line per measurement. "known" is the time from the start of the last agent's join
// until every agent has received the world; "all" is the time from the start of the first join.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "rendezvous/member/client.h"
#include "rendezvous/server/server.h"

namespace drun {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

bool has_secret = false;

JoinSpec join_spec(int node_rank, int node_count, std::uint16_t port) {
  JoinSpec spec;
  spec.run_id = "bench";
  spec.node_rank = node_rank;
  spec.node_count = node_count;
  spec.local_world_size = 8;
  spec.endpoint = {"127.0.0.1", port};
  spec.is_coordinator = node_rank == 0;
  spec.master_addr = "127.0.0.1";
  spec.max_restarts = 1'000'000;
  if (has_secret) spec.secret = *Secret::make("0123456789abcdef", "bench");
  return spec;
}

struct Counts {
  int worlds = 0;
  int stops = 0;
  int outcomes = 0;
};

class Agent final : public rendezvous::Client::Listener {
 public:
  Agent(asio::io_context& io, const JoinSpec& spec, Counts& counts)
      : counts_(counts), client(io, spec, "bench-host", Log(), *this) {}
  void on_world(const World& told) override {
    world = told;
    ++counts_.worlds;
  }
  void on_stop(int round, const std::optional<rendezvous::StopNotice>& /*notice*/) override {
    ++counts_.stops;
    client.report_stopped(round, {});
  }
  void on_outcome(const Outcome&) override {
    ++counts_.outcomes;
    client.close();
  }

 private:
  Counts& counts_;

 public:
  World world;
  rendezvous::Client client;
};

class Cluster {
 public:
  explicit Cluster(int node_count) : node_count_(node_count) {
    Log log([this](LogLevel, std::string_view text) {
      joined_ += text.find(" joined from ") != std::string_view::npos ? 1 : 0;
    });
    auto opened = rendezvous::Server::open(io, join_spec(0, node_count, 0), log, [] {});
    if (!opened) {
      std::fprintf(stderr, "%s\n", opened.error().message.c_str());
      std::exit(1);
    }
    server_ = *std::move(opened);
    for (int node = 0; node < node_count; ++node)
      agents.push_back(
          std::make_unique<Agent>(io, join_spec(node, node_count, server_->port()), counts));
  }

  template <typename Condition>
  void until(Condition condition) {
    const auto limit = Clock::now() + std::chrono::seconds(60);
    while (!condition()) {
      if (io.run_one_until(limit) == 0) {
        std::fprintf(stderr, "gave up: %d of %d agents know the world\n", counts.worlds,
                     node_count_);
        std::exit(1);
      }
    }
  }
  void join_all_but_last() {
    for (int node = 0; node + 1 < node_count_; ++node)
      agents[static_cast<std::size_t>(node)]->client.start();
    until([this] { return joined_ == node_count_ - 1; });
  }

  asio::io_context io{1};
  Counts counts;
  std::vector<std::unique_ptr<Agent>> agents;

 private:
  int node_count_;
  int joined_ = 0;
  std::unique_ptr<rendezvous::Server> server_;
};

void measure_join(int node_count) {
  Cluster cluster(node_count);
  const auto first = Clock::now();
  cluster.join_all_but_last();
  const auto last = Clock::now();
  cluster.agents.back()->client.start();
  cluster.until([&] { return cluster.counts.worlds == node_count; });
  const auto known = Clock::now();
  std::printf("agents=%d known_ms=%.2f all_ms=%.2f\n", node_count, milliseconds(known - last),
              milliseconds(known - first));
}

// Measures the time from the report of a failure until the last of the other nodes has received
// Stop, and until every node has received the world of the next round.
void measure_failure(int node_count, int rounds) {
  Cluster cluster(node_count);
  cluster.join_all_but_last();
  cluster.agents.back()->client.start();
  std::vector<double> stops;
  std::vector<double> restarts;
  for (int round = 0; round < rounds; ++round) {
    cluster.until([&] { return cluster.counts.worlds == node_count * (round + 1); });
    Agent& failing = *cluster.agents[static_cast<std::size_t>(round % node_count)];
    Failure failure;
    failure.rank = failing.world.base_rank;
    failure.round = round;
    failure.status = Exited{1};
    failure.time =
        std::chrono::time_point_cast<WallTime::duration>(std::chrono::system_clock::now());
    const auto start = Clock::now();
    failing.client.report_failure({failure, start});
    cluster.until([&] { return cluster.counts.stops == (node_count - 1) * (round + 1); });
    stops.push_back(milliseconds(Clock::now() - start));
    failing.client.report_stopped(round, {{failure, start}});
    cluster.until([&] { return cluster.counts.worlds == node_count * (round + 2); });
    restarts.push_back(milliseconds(Clock::now() - start));
  }
  std::sort(stops.begin(), stops.end());
  std::sort(restarts.begin(), restarts.end());
  std::printf(
      "failure agents=%d rounds=%d last_stop_ms median=%.3f worst=%.3f "
      "next_world_ms median=%.3f worst=%.3f\n",
      node_count, rounds, stops[stops.size() / 2], stops.back(), restarts[restarts.size() / 2],
      restarts.back());
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace
}  // namespace drun

int main(int argc, char** argv) {
  drun::raise_descriptor_limit();
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--secret")
      drun::has_secret = true;
    else
      sizes.push_back(std::max(1, std::atoi(argv[i])));
  }
  if (sizes.empty()) sizes = {1, 3, 1000, 2000, 4000};
  for (const int size : sizes) drun::measure_join(size);
  drun::measure_failure(3, 500);
  drun::measure_failure(1000, 20);
}
