#include "worker_lib/node/node_backend.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/collective_model.h"
#include "tests/support/memory_mesh.h"
#include "worker_lib/core/join.h"
#include "worker_lib/node/node_layout.h"

namespace drun::test {
namespace {

constexpr std::chrono::seconds kLimit{10};

// Backends of one group share a mesh, whose index is in their store.
class Meshes {
 public:
  BackendFactory factory() {
    return [this](const BackendContext& context) {
      if (context.rank == 0) {
        const std::lock_guard lock(mutex_);
        meshes_.push_back(std::make_shared<MemoryMesh>(context.size));
        context.store->set("mesh", std::to_string(meshes_.size() - 1), kLimit);
      }
      const std::size_t at = std::stoul(context.store->get("mesh", kLimit));
      const std::lock_guard lock(mutex_);
      return make_memory_backend(meshes_.at(at), context.rank);
    };
  }
  std::size_t sent_count() const {
    std::size_t count = 0;
    for (const auto& mesh : meshes_) count += mesh->sent_count();
    return count;
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<MemoryMesh>> meshes_;
};

struct Cluster {
  std::vector<int> node_of;
  bool is_debug = false;
  bool overlaps = false;
  Meshes local = {};
  Meshes across = {};
  std::shared_ptr<KeyStore> store = make_memory_key_store();

  int size() const { return static_cast<int>(node_of.size()); }
  std::unique_ptr<Backend> connect(int rank) {
    return worker::connect_by_node(
        {.rank = rank, .size = size(), .node_of = node_of, .store = store, .is_debug = is_debug},
        local.factory(), across.factory(), overlaps);
  }
};

std::string run_all(Cluster& cluster, const std::vector<Scenario>& program) {
  std::mutex mutex;
  std::string wrong;
  run_threads(cluster.size(), [&](int rank) {
    const auto backend = cluster.connect(rank);
    std::uint32_t sequence = 0;
    for (const Scenario& scenario : program) {
      ++sequence;
      const std::string text = run_and_check(scenario, rank, [&](const Call& call) {
        backend->run(call, {sequence, std::chrono::steady_clock::now() + kLimit});
      });
      const std::lock_guard lock(mutex);
      if (!text.empty()) wrong += text + "\n";
    }
  });
  return wrong;
}

// Does what the test says.
class PlayedBackend final : public Backend {
 public:
  using Run = std::function<void(const Call& call)>;
  PlayedBackend(Run run, Run abort) : run_(std::move(run)), abort_(std::move(abort)) {}
  std::string name() const override { return "played"; }
  std::string refusal(const Call&) const override { return ""; }
  void run(const Call& call, const Turn&) override { run_(call); }
  void abort() noexcept override { abort_({}); }

 private:
  Run run_;
  Run abort_;
};

// Two nodes of two ranks, as rank 0 sees them.
struct PlayedNodes {
  PlayedBackend::Run in_node = [](const Call&) {};
  PlayedBackend::Run along_rail = [](const Call&) {};
  PlayedBackend::Run at_abort = [](const Call&) {};

  std::unique_ptr<Backend> connect() const {
    const auto nothing = [](const Call&) {};
    return worker::connect_by_node(
        {.rank = 0, .size = 4, .node_of = {0, 0, 1, 1}},
        [&](const BackendContext&) { return std::make_unique<PlayedBackend>(in_node, nothing); },
        [&](const BackendContext&) {
          return std::make_unique<PlayedBackend>(along_rail, at_abort);
        },
        true);
  }
};

class Signal {
 public:
  void give() {
    const std::lock_guard lock(mutex_);
    is_given_ = true;
    changed_.notify_all();
  }
  // False after kLimit.
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLimit, [this] { return is_given_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_given_ = false;
};

// A float all_reduce of as many chunks.
Call all_reduce_of(std::vector<float>& data, std::size_t chunks) {
  data.assign((chunks << 22) / sizeof(float), 1.0f);
  return {.operation = Operation::AllReduce,
          .type = DataType::F32,
          .input = data.data(),
          .output = data.data(),
          .count = data.size()};
}

std::vector<int> some_nodes(std::size_t which) {
  static const std::vector<std::vector<int>> all{
      {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1, 2, 2, 2}, {0, 0, 0, 1}, {0, 1, 2, 0, 1, 0, 3}};
  return all[which];
}

}  // namespace

TEST_CASE("every collective over several nodes is exact, for any leaders and any root") {
  Cluster cluster{.node_of = some_nodes(GENERATE(range(std::size_t{0}, std::size_t{5}))),
                  .is_debug = GENERATE(false, true)};
  std::mt19937 random(3);
  std::vector<Scenario> program;
  for (const Operation operation : all_operations()) {
    for (int root = 0; root < cluster.size(); ++root) {
      for (const bool is_uneven : {false, true}) {
        if (is_uneven && !has_parts(operation)) continue;
        Scenario scenario;
        scenario.operation = operation;
        scenario.size = cluster.size();
        scenario.root = root;
        scenario.op = operation == Operation::AllGather ? ReduceOp::Sum : ReduceOp::Avg;
        scenario.count = root % 3 == 2 ? 0 : 37;
        scenario.is_uneven = is_uneven;
        scenario.is_in_place = root % 2 == 0;
        if (is_uneven) scenario.counts = random_counts(random, cluster.size(), 40);
        program.push_back(scenario);
      }
    }
  }
  CHECK(run_all(cluster, program) == "");
  CHECK(cluster.local.sent_count() > 0);
}

TEST_CASE("random programs over several nodes match a sequential model") {
  const unsigned seed = GENERATE(range(0u, 6u));
  CAPTURE(seed);
  std::mt19937 random(seed);
  Cluster cluster{.node_of = some_nodes(random() % 5)};
  std::vector<Scenario> program;
  for (int i = 0; i < 60; ++i) {
    const std::size_t most = random() % 8 == 0 ? 90'000 : 1000;
    program.push_back(random_scenario(random, cluster.size(), most));
  }
  CHECK(run_all(cluster, program) == "");
}

TEST_CASE("an all_reduce sends one message per direction between two nodes") {
  Cluster cluster{.node_of = {0, 0, 0, 1, 1, 1}};
  Scenario scenario;
  scenario.operation = Operation::AllReduce;
  scenario.size = cluster.size();
  scenario.count = 10;
  CHECK(run_all(cluster, {scenario}) == "");
  CHECK(cluster.across.sent_count() == 2);  // one in each direction
}

TEST_CASE("each rank exchanges its share of large data with its rail on the other node") {
  struct Expected {
    Operation operation;
    std::size_t count;
    std::size_t messages;  // between the nodes
  };
  // Rails of two ranks. Four ranks send their share of 64 KiB to their rail at once, and one rank
  // the parts of its node to the root's node.
  const Expected expected = GENERATE(
      Expected{Operation::AllReduce, 1 << 14, 4}, Expected{Operation::Broadcast, 1 << 14, 2},
      Expected{Operation::Reduce, 1 << 14, 2}, Expected{Operation::ReduceScatter, 10, 4},
      Expected{Operation::AllGather, 1 << 14, 4}, Expected{Operation::Gather, 10, 1},
      Expected{Operation::Scatter, 10, 1}, Expected{Operation::AllToAll, 10, 4});
  CAPTURE(to_string(expected.operation));
  Cluster cluster{.node_of = {0, 0, 1, 1}};
  Scenario scenario;
  scenario.operation = expected.operation;
  scenario.size = cluster.size();
  scenario.count = expected.count;
  CHECK(run_all(cluster, {scenario}) == "");
  CHECK(cluster.across.sent_count() == expected.messages);
}

TEST_CASE("large all_reduces are exact in every number of chunks") {
  const std::size_t count = GENERATE(std::size_t{1} << 21, (std::size_t{5} << 19) + 1,
                                     (std::size_t{3} << 20) - 1, std::size_t{5} << 20);
  Cluster cluster{.node_of = GENERATE(std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 1, 0, 1}),
                  .overlaps = GENERATE(false, true)};
  Scenario scenario;
  scenario.operation = Operation::AllReduce;
  scenario.size = cluster.size();
  scenario.op = ReduceOp::Avg;  // a sum, and its division
  scenario.count = count;
  CHECK(run_all(cluster, {scenario}) == "");
}

TEST_CASE("the ranks of a node reduce the next chunk while one is exchanged between the nodes") {
  std::atomic<int> reduced = 0;
  std::atomic<int> gathered = 0;
  std::atomic<int> exchanged = 0;
  std::atomic<int> missed = 0;
  Signal second_reduced;
  PlayedNodes nodes;
  nodes.in_node = [&](const Call& call) {
    if (call.operation == Operation::AllGather) ++gathered;
    if (call.operation == Operation::ReduceScatter && ++reduced == 2) second_reduced.give();
  };
  nodes.along_rail = [&](const Call&) {
    if (++exchanged == 1 && !second_reduced.wait()) ++missed;
  };
  std::vector<float> data;
  nodes.connect()->run(all_reduce_of(data, 4), {1, std::chrono::steady_clock::now() + kLimit});
  CHECK(missed == 0);
  CHECK(reduced == 4);
  CHECK(exchanged == 4);
  CHECK(gathered == 4);
}

TEST_CASE("a failure within a node is reported while another chunk is exchanged") {
  std::atomic<int> reduced = 0;
  Signal aborted;
  Signal stopped;
  PlayedNodes nodes;
  nodes.in_node = [&](const Call&) {
    if (++reduced == 2) throw BackendFailure(WorkerError::Kind::PeerLost, 1, "gone");
  };
  nodes.along_rail = [&](const Call&) {
    if (aborted.wait()) stopped.give();
    throw BackendFailure(WorkerError::Kind::Broken, "aborted");
  };
  nodes.at_abort = [&](const Call&) { aborted.give(); };
  std::vector<float> data;
  const std::unique_ptr<Backend> backend = nodes.connect();
  const auto failure = [&]() -> std::optional<BackendFailure> {
    try {
      backend->run(all_reduce_of(data, 4), {1, std::chrono::steady_clock::now() + kLimit});
    } catch (const BackendFailure& thrown) {
      return thrown;
    }
    return std::nullopt;
  }();
  REQUIRE(failure);
  CHECK(failure->kind == WorkerError::Kind::PeerLost);
  CHECK(failure->peer == 1);
  backend->abort();
  CHECK(stopped.wait());
}

TEST_CASE("a failure between the nodes is reported by the rank that exchanges") {
  std::atomic<int> exchanged = 0;
  PlayedNodes nodes;
  nodes.along_rail = [&](const Call&) {
    if (++exchanged == 2) throw BackendFailure(WorkerError::Kind::PeerLost, 1, "gone");
  };
  std::vector<float> data;
  try {
    nodes.connect()->run(all_reduce_of(data, 4), {1, std::chrono::steady_clock::now() + kLimit});
    FAIL("no failure");
  } catch (const BackendFailure& failure) {
    CHECK(failure.kind == WorkerError::Kind::PeerLost);
    CHECK(failure.peer == 2);  // the second rank of its rail
  }
}

TEST_CASE("one node uses only the local backend, and one rank per node only the remote one") {
  Cluster together{.node_of = {0, 0, 0}};
  Cluster apart{.node_of = {0, 1, 2}};
  const Scenario barrier{.size = 3};
  CHECK(run_all(together, {barrier}) == "");
  CHECK(together.across.sent_count() == 0);
  CHECK(run_all(apart, {barrier}) == "");
  CHECK(apart.local.sent_count() == 0);
}

TEST_CASE("debug mode names a rank on another node that calls a different operation") {
  Cluster cluster{.node_of = {0, 0, 1, 1}, .is_debug = true};
  std::mutex mutex;
  int told = 0;
  run_threads(4, [&](int rank) {
    const auto backend = cluster.connect(rank);
    std::vector<float> data(4);
    Call call{.operation = Operation::AllReduce,
              .type = DataType::F32,
              .input = data.data(),
              .output = data.data(),
              .count = 4};
    if (rank == 3) call = {};
    try {
      backend->run(call, {1, std::chrono::steady_clock::now() + kLimit});
    } catch (const BackendFailure& failure) {
      const std::lock_guard lock(mutex);
      told += failure.kind == WorkerError::Kind::Mismatch;
      CHECK_THAT(failure.what(), ContainsSubstring("ranks 0-2 call all_reduce(f32 x 4, sum); rank "
                                                   "3 calls barrier()"));
    }
  });
  CHECK(told == 4);
}

TEST_CASE("debug mode names ranks on two nodes whose counts differ") {
  Cluster cluster{.node_of = {0, 0, 1, 1}, .is_debug = true};
  std::mutex mutex;
  int told = 0;
  run_threads(4, [&](int rank) {
    const auto backend = cluster.connect(rank);
    const std::vector<float> mine(rank == 3 ? 5 : 2);
    std::vector<float> all(8);
    const std::vector<std::size_t> counts(4, 2);
    const Call call{.operation = Operation::Gather,
                    .type = DataType::F32,
                    .input = mine.data(),
                    .output = rank == 0 ? all.data() : nullptr,
                    .count = mine.size(),
                    .counts_out = rank == 0 ? counts.data() : nullptr,
                    .is_uneven = true};
    try {
      backend->run(call, {1, std::chrono::steady_clock::now() + std::chrono::seconds(2)});
    } catch (const BackendFailure& failure) {
      const std::lock_guard lock(mutex);
      told += failure.kind == WorkerError::Kind::Mismatch;
      CHECK_THAT(failure.what(),
                 ContainsSubstring("rank 3 has 5 elements for rank 0, which expects 2"));
    }
  });
  CHECK(told == 4);
}

TEST_CASE(
    "nodes are ordered by their first ranks, and it is known whether their ranks are contiguous") {
  const worker::NodeLayout layout({0, 1, 0, 2, 1});
  CHECK(layout.nodes() == 3);
  CHECK(layout.ranks_of(0) == std::vector<int>{0, 2});
  CHECK(layout.rail(0) == std::vector<int>{0, 1, 3});
  CHECK_FALSE(layout.is_uniform());
  CHECK(worker::NodeLayout({0, 1, 0, 1}).is_uniform());
  CHECK(worker::NodeLayout({0, 1, 0, 1}).rail(1) == std::vector<int>{2, 3});
  CHECK(layout.local_rank_of(4) == 1);
  CHECK_FALSE(layout.is_contiguous());
  CHECK(worker::NodeLayout({0, 0, 1, 1, 2}).is_contiguous());
}

// As NodeLayout and the backends require, whatever the numbers in the group that it is part of.
TEST_CASE("a group of some ranks numbers its nodes from 0") {
  worker::GroupParts group;
  group.rank = 3;
  group.size = 6;
  group.node_of = {0, 0, 1, 1, 1, 2};
  group.world_ranks = {4, 5, 6, 7, 8, 9};
  const worker::GroupParts node = worker::part_of(group, {2, 3, 4}, 7);
  CHECK(node.node_of == std::vector<int>{0, 0, 0});
  CHECK(node.world_ranks == std::vector<int>{6, 7, 8});
  CHECK(node.rank == 1);
  CHECK(node.size == 3);
  CHECK(node.label == 7);
  CHECK(worker::part_of(group, {5, 3, 0, 4}, 7).node_of == std::vector<int>{0, 1, 2, 1});
}

}  // namespace drun::test
