// Runs ranks as threads that share memory in one process, so that a thread sanitizer sees them all.
#include <cstdint>
#include <random>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/collective_checks.h"
#include "tests/support/shm_ranks.h"

namespace drun {
namespace {

using test::CollectiveRig;
using test::finish;
using test::run_shm_threads;
using test::ShmRank;

}  // namespace

TEST_CASE("shared memory: a random program of calls gives the expected results on every rank") {
  const int size = GENERATE(2, 3, 5);
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed << ", " << size << " ranks");
  CHECK_NOTHROW(run_shm_threads(size, [seed](ShmRank& self) {
    std::mt19937 random(seed);  // the same on all ranks
    const CollectiveRig rig{.rank = self.rank(),
                            .size = self.size(),
                            .run = [&self](const Call& call) { self.run(call); }};
    for (int step = 0; step < 24; ++step) {
      const DataType type = test::all_types()[random() % test::all_types().size()];
      const ReduceOp op = test::all_ops()[random() % test::all_ops().size()];
      const std::size_t count = random() % (step % 6 == 0 ? 140000 : 2000);
      if (test::has_op(type, op)) test::check_reductions(rig, type, op, count);
      test::check_moves(rig, type, count);
      if (step % 3 == 0) test::check_uneven(rig, type, count);
    }
  }));
}

TEST_CASE("shared memory: all ranks exchange long and short messages with each other at once") {
  CHECK_NOTHROW(run_shm_threads(4, [](ShmRank& self) {
    for (int turn = 0; turn < 30; ++turn) {
      const std::size_t count = turn % 3 == 0 ? 20000 : 20;
      std::vector<std::int32_t> data(count, self.rank() * 1000 + turn);
      std::vector<std::vector<std::int32_t>> got(4, std::vector<std::int32_t>(count));
      std::vector<std::unique_ptr<Transfer>> all;
      for (int peer = 0; peer < 4; ++peer) {
        if (peer == self.rank()) continue;
        all.push_back(self.backend().start_send(data, peer, turn));
        all.push_back(self.backend().start_recv(got[static_cast<std::size_t>(peer)], peer, turn));
      }
      for (const auto& each : all) finish(each);
      for (int peer = 0; peer < 4; ++peer) {
        if (peer == self.rank()) continue;
        const std::vector<std::int32_t> should(count, peer * 1000 + turn);
        if (got[static_cast<std::size_t>(peer)] != should) throw std::runtime_error("wrong");
      }
    }
  }));
}

}  // namespace drun
