#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/collective_checks.h"
#include "tests/support/shm_ranks.h"

namespace drun {
namespace {

using test::all_ops;
using test::all_reduce_of;
using test::all_types;
using test::check_exited;
using test::check_moves;
using test::check_reductions;
using test::check_uneven;
using test::CollectiveRig;
using test::failure_of;
using test::has_op;
using test::run_shm_processes;
using test::Say;
using test::ShmRank;

CollectiveRig rig_of(ShmRank& self) {
  return {.rank = self.rank(), .size = self.size(), .run = [&self](const Call& call) {
            self.run(call);
          }};
}

CollectiveRig shared_rig_of(ShmRank& self) {
  CollectiveRig rig = rig_of(self);
  rig.alloc = [&self](std::size_t bytes) {
    return self.backend().alloc_shared(bytes, self.turn());
  };
  return rig;
}

void say_what_differs(ShmRank& self, const Say& say, const Call& call) {
  say(self.failure_of([&] { self.run(call); }));
  say(self.failure_of([&] { self.run({.operation = Operation::Barrier}); }));
}

}  // namespace

TEST_CASE("shared memory: every collective is exact for every type and op") {
  const int size = GENERATE(1, 2, 3, 4, 8);
  INFO(size << " ranks");
  check_exited(run_shm_processes(size, [](ShmRank& self, const Say&) {
    const CollectiveRig rig = rig_of(self);
    for (const std::size_t count : {0u, 1u, 3u, 1023u, 1025u}) {
      for (const DataType type : all_types()) {
        check_moves(rig, type, count);
        check_uneven(rig, type, count);
        for (const ReduceOp op : all_ops()) {
          if (has_op(type, op)) check_reductions(rig, type, op, count);
        }
      }
    }
  }));
}

TEST_CASE("shared memory: data larger than a rank's station arrives whole") {
  const int size = GENERATE(2, 3, 8);
  INFO(size << " ranks");
  check_exited(run_shm_processes(size, [size](ShmRank& self, const Say&) {
    const CollectiveRig rig = rig_of(self);
    const auto check = [&](DataType type, std::size_t count) {
      check_reductions(rig, type, ReduceOp::Sum, count);
      check_moves(rig, type, count);
      check_uneven(rig, type, count);
    };
    if (size == 8)
      return check(DataType::I64, 70001);  // more than one station holds; other sizes
                                           // would be slow with 8 ranks
    check(DataType::BF16, 300007);
    check(DataType::I64, 300007);
  }));
}

TEST_CASE("shared memory: buffers from alloc_shared give the same results as other buffers") {
  const int size = GENERATE(1, 2, 4);
  INFO(size << " ranks");
  check_exited(run_shm_processes(size, [](ShmRank& self, const Say&) {
    const CollectiveRig rig = shared_rig_of(self);
    const auto check = [&](DataType type, std::size_t count) {
      check_reductions(rig, type, ReduceOp::Max, count);
      check_moves(rig, type, count);
      check_uneven(rig, type, count);
    };
    for (const std::size_t count : {0u, 5u, 20001u}) {
      for (const DataType type : {DataType::F32, DataType::F16, DataType::I8}) check(type, count);
    }
    check(DataType::F16, 150001);
    check_reductions(rig, DataType::F64, ReduceOp::Avg, 300007);
  }));
}

TEST_CASE("shared memory: collectives work if only some ranks pass shared buffers") {
  check_exited(run_shm_processes(3, [](ShmRank& self, const Say&) {
    const std::size_t count = 400000;
    const auto first = self.backend().alloc_shared(count * sizeof(float), self.turn());
    const auto second = self.backend().alloc_shared(count * sizeof(float), self.turn());
    std::vector<float> own(count);
    // The ranks use two different shared regions and an ordinary buffer.
    auto* data = self.rank() == 0   ? static_cast<float*>(first.get())
                 : self.rank() == 1 ? static_cast<float*>(second.get())
                                    : own.data();
    for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<float>(self.rank() + 1);
    self.run({.operation = Operation::AllReduce,
              .type = DataType::F32,
              .input = data,
              .output = data,
              .count = count});
    for (std::size_t i = 0; i < count; ++i) {
      if (data[i] != 6) throw std::runtime_error("wrong at " + std::to_string(i));
    }
  }));
}

TEST_CASE("shared memory: freed memory is released and can be allocated again") {
  check_exited(run_shm_processes(2, [](ShmRank& self, const Say&) {
    // The total is far more than this machine's memory.
    for (int turn = 0; turn < 2000; ++turn) {
      const std::size_t bytes = std::size_t{256} << 20;
      const bool is_large = turn % 200 == 0;
      const auto memory = self.backend().alloc_shared(is_large ? bytes : bytes >> 8, self.turn());
      auto* words = static_cast<std::uint64_t*>(memory.get());
      if (words[0] != 0) throw std::runtime_error("not zero");
      words[0] = 1;
    }
  }));
}

TEST_CASE("shared memory: all ranks get the same bits from any kind of buffer") {
  const auto ends = run_shm_processes(3, [](ShmRank& self, const Say& say) {
    const std::size_t count = 200003;
    const auto shared = self.backend().alloc_shared(count * sizeof(float), self.turn());
    std::vector<float> own(count);
    auto* data = static_cast<float*>(shared.get());
    for (std::size_t i = 0; i < count; ++i) {
      // Sums of these depend on the order of the additions.
      own[i] = data[i] =
          1.0f / static_cast<float>(i % 977 + 3 * static_cast<unsigned>(self.rank()) + 1);
    }
    self.run(all_reduce_of(own));
    self.run({.operation = Operation::AllReduce,
              .type = DataType::F32,
              .input = data,
              .output = data,
              .count = count});
    if (std::memcmp(own.data(), data, count * sizeof(float)) != 0) say("differ");
    std::uint64_t hash = 0;
    for (const float value : own) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      hash = hash * 31 + bits;
    }
    say(std::to_string(hash));
  });
  check_exited(ends);
  CHECK_THAT(ends[0].said, !ContainsSubstring("differ"));
  CHECK(ends[1].said == ends[0].said);
  CHECK(ends[2].said == ends[0].said);
}

TEST_CASE("shared memory: if ranks disagree about a call, every rank's error shows all calls") {
  struct Row {
    const char* name;
    std::function<void(ShmRank& self, const Say& say)> body;
    const char* said;
  };
  const std::vector<Row> rows = {
      {"count",
       [](ShmRank& self, const Say& say) {
         std::vector<float> data(self.rank() == 1 ? 1001 : 1000);
         say_what_differs(self, say, all_reduce_of(data));
       },
       "ranks 0, 2 call all_reduce(f32 x 1000, sum); rank 1 calls all_reduce(f32 x 1001, sum)"},
      {"little against much",
       [](ShmRank& self, const Say& say) {
         std::vector<float> data(self.rank() == 2 ? 3 << 20 : 1);
         say_what_differs(self, say, all_reduce_of(data));
       },
       "ranks 0, 1 call all_reduce(f32 x 1, sum); rank 2 calls all_reduce(f32 x 3145728, sum)"},
      {"op",
       [](ShmRank& self, const Say& say) {
         std::vector<float> data(8);
         say_what_differs(self, say,
                          all_reduce_of(data, self.rank() == 0 ? ReduceOp::Max : ReduceOp::Sum));
       },
       "rank 0 calls all_reduce(f32 x 8, max); ranks 1, 2 call all_reduce(f32 x 8, sum)"},
      {"another collective",
       [](ShmRank& self, const Say& say) {
         std::vector<float> data(1 << 20);
         say_what_differs(
             self, say,
             self.rank() == 0 ? Call{.operation = Operation::Barrier} : all_reduce_of(data));
       },
       "rank 0 calls barrier(); ranks 1, 2 call all_reduce(f32 x 1048576, sum)"},
      {"sizes",
       [](ShmRank& self, const Say& say) {
         std::vector<float> data(100);
         std::vector<float> all(100);
         const std::vector<std::size_t> counts = {1, 2, 3};
         Call call{.operation = Operation::Gather, .type = DataType::F32, .input = data.data()};
         call.is_uneven = true;
         call.count = self.rank() == 2 ? 90 : counts[static_cast<std::size_t>(self.rank())];
         call.output = self.rank() == 0 ? all.data() : nullptr;
         call.counts_out = self.rank() == 0 ? counts.data() : nullptr;
         say_what_differs(self, say, call);
       },
       "gather_v(f32, root 0): rank 2 has 90 elements for rank 0, which expects 3"},
  };
  for (const Row& row : rows) {
    INFO(row.name);
    const auto ends = run_shm_processes(3, [&](ShmRank& self, const Say& say) {
      self.barrier();
      row.body(self, say);
    });
    for (const auto& end : ends) {
      CHECK_THAT(end.said, ContainsSubstring("mismatch: the ranks disagree about collective "
                                             "number 2"));
      CHECK_THAT(end.said, ContainsSubstring(row.said));
      CHECK_THAT(end.said, !ContainsSubstring("no failure"));
    }
  }
}

}  // namespace drun
