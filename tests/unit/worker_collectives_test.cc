#include <atomic>
#include <mutex>
#include <random>
#include <stdexcept>

#include "tests/support/catch.h"
#include "tests/support/collective_model.h"
#include "tests/support/memory_mesh.h"
#include "worker_lib/algorithms/collectives.h"
#include "worker_lib/base/signature.h"

namespace drun::test {
namespace {

// Returns the errors of all ranks.
std::string run_all(MemoryMesh& mesh, const std::vector<Scenario>& program) {
  std::mutex mutex;
  std::string wrong;
  run_threads(mesh.size(), [&](int rank) {
    std::uint64_t sequence = 0;
    for (const Scenario& scenario : program) {
      const auto exchange = mesh.exchange(rank, ++sequence);
      const std::string text = run_and_check(
          scenario, rank, [&](const Call& call) { worker::run_collective(*exchange, call); });
      const std::lock_guard lock(mutex);
      if (!text.empty()) wrong += text + "\n";
    }
  });
  return wrong;
}

std::vector<Scenario> every_way(const Scenario& base) {
  std::vector<Scenario> all;
  for (const Operation operation : all_operations()) {
    for (int root = 0; root < base.size; ++root) {
      Scenario scenario = base;
      scenario.operation = operation;
      scenario.root = root;
      scenario.is_in_place = root % 2 == 1;
      all.push_back(scenario);
    }
  }
  return all;
}

}  // namespace

TEST_CASE("every collective is exact for any number of ranks, any root and any size") {
  const int size = GENERATE(range(1, 10));
  MemoryMesh mesh(size);
  for (const std::size_t count : {0u, 1u, 3u, 64u, 1023u, 1025u}) {
    Scenario base;
    base.size = size;
    base.count = count;
    CHECK(run_all(mesh, every_way(base)) == "");
  }
}

TEST_CASE("large data that does not divide evenly passes the pipelines exactly") {
  const int size = GENERATE(2, 3, 5);
  MemoryMesh mesh(size);
  std::mt19937 random(static_cast<unsigned>(size));
  std::vector<Scenario> program;
  for (const Operation operation : all_operations()) {
    Scenario scenario;
    scenario.size = size;
    scenario.operation = operation;
    scenario.type = DataType::I16;
    scenario.root = size - 1;
    scenario.count = operation >= Operation::Gather ? 50'001 : 300'001;
    program.push_back(scenario);
    if (!has_parts(operation)) continue;
    scenario.is_uneven = true;
    scenario.counts = random_counts(random, size, 90'000);
    program.push_back(scenario);
  }
  CHECK(run_all(mesh, program) == "");
}

TEST_CASE("data larger than a ring block is sent in several blocks") {
  MemoryMesh mesh(3);
  Scenario scenario;
  scenario.size = 3;
  scenario.type = DataType::U8;
  scenario.operation = GENERATE(Operation::ReduceScatter, Operation::AllReduce);
  scenario.count = 6'100'001;
  if (scenario.operation == Operation::ReduceScatter) {
    scenario.is_uneven = true;
    scenario.counts = {70'001, 4'100'001, 0};
  }
  CHECK(run_all(mesh, {scenario}) == "");
}

TEST_CASE("random programs of mixed collectives match a sequential model") {
  const unsigned seed = GENERATE(range(0u, 12u));
  CAPTURE(seed);
  std::mt19937 random(seed);
  MemoryMesh mesh(static_cast<int>(random() % 9 + 1));
  std::vector<Scenario> program;
  for (int i = 0; i < 60; ++i) {
    const std::size_t most = random() % 8 == 0 ? 100'000 : random() % 2 == 0 ? 2000 : 5;
    program.push_back(random_scenario(random, mesh.size(), most));
  }
  CHECK(run_all(mesh, program) == "");
}

TEST_CASE("in a small all_reduce and in a barrier, each rank sends log2 of the ranks messages") {
  MemoryMesh mesh(8);
  Scenario scenario;
  scenario.size = 8;
  scenario.operation = Operation::AllReduce;
  scenario.count = 100;
  CHECK(run_all(mesh, {scenario}) == "");
  CHECK(mesh.sent_count() == 3 * 8);
  scenario.operation = Operation::Barrier;
  MemoryMesh other(8);
  CHECK(run_all(other, {scenario}) == "");
  CHECK(other.sent_count() == 3 * 8);
}

TEST_CASE("all_reduce gives the same bits on all ranks if the order of additions matters") {
  const int size = GENERATE(3, 5, 8);
  const std::size_t count = GENERATE(100u, 200'000u);
  MemoryMesh mesh(size);
  std::vector<std::vector<float>> results(static_cast<std::size_t>(size));
  run_threads(size, [&](int rank) {
    std::vector<float>& data = results[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < count; ++i) {
      data.push_back(1.0F / static_cast<float>(i % 977 + 3 + static_cast<std::size_t>(rank) * 7));
    }
    worker::run_collective(*mesh.exchange(rank), {.operation = Operation::AllReduce,
                                                  .type = DataType::F32,
                                                  .input = data.data(),
                                                  .output = data.data(),
                                                  .count = count});
  });
  for (const auto& result : results) CHECK(result == results[0]);
}

TEST_CASE("ranks that agree raise no error, and none returns before the last has arrived") {
  const int size = GENERATE(2, 3, 7);
  MemoryMesh mesh(size);
  std::atomic<int> come = 0;
  run_threads(size, [&](int rank) {
    ++come;
    const auto exchange = mesh.exchange(rank);
    worker::agree(*exchange, {.operation = Operation::Barrier}, 1);
    if (come != size) throw std::runtime_error("left early");
  });
}

TEST_CASE("a rank that calls a different operation is named on every rank") {
  const int size = GENERATE(2, 3, 4, 7);
  MemoryMesh mesh(size);
  std::atomic<int> told = 0;
  run_threads(size, [&](int rank) {
    Call call{.operation = Operation::AllReduce, .type = DataType::F32, .count = 10};
    if (rank == 1) call.count = 11;
    try {
      worker::agree(*mesh.exchange(rank), call, 5);
    } catch (const BackendFailure& failure) {
      const std::string text = failure.what();
      if (failure.kind == WorkerError::Kind::Mismatch &&
          text.find("collective number 5: rank") != std::string::npos &&
          text.find("rank 1 calls all_reduce(f32 x 11, sum)") != std::string::npos) {
        ++told;
      }
    }
  });
  CHECK(told == size);
}

TEST_CASE("counts known to only some ranks are compared with those of the others") {
  const Operation operation = GENERATE(Operation::Gather, Operation::Scatter, Operation::AllToAll);
  const bool is_wrong = GENERATE(false, true);
  std::mt19937 random(7);
  Scenario scenario;
  scenario.operation = operation;
  scenario.size = 3;
  scenario.is_uneven = true;
  scenario.counts = std::vector<std::size_t>(9, 4);
  MemoryMesh mesh(3);
  std::atomic<int> told = 0;
  run_threads(3, [&](int rank) {
    Scenario mine = scenario;
    if (is_wrong && rank == 0) mine.counts.assign(9, 5);
    run_and_check(mine, rank, [&](const Call& call) {
      const auto exchange = mesh.exchange(rank);
      try {
        worker::compare_counts(*exchange, call, 1);
      } catch (const BackendFailure& failure) {
        const std::string text = failure.what();
        if (text.find("elements for rank ") != std::string::npos &&
            text.find("which expects ") != std::string::npos) {
          ++told;
        }
      }
    });
  });
  CHECK(told == (is_wrong ? 3 : 0));
}

}  // namespace drun::test
