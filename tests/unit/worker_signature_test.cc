#include "worker_lib/call.h"

#include "tests/support/catch.h"

namespace drun::worker {

TEST_CASE("a call is told as its source would write it") {
  CHECK(to_string(Call{.name = Call::Name::Barrier}) == "barrier()");
  CHECK(to_string(Call{.name = Call::Name::AllReduce,
                       .type = DataType::F32,
                       .op = ReduceOp::Max,
                       .count = 1000}) == "all_reduce(f32 x 1000, max)");
  CHECK(to_string(
            Call{.name = Call::Name::Broadcast, .type = DataType::I64, .root = 3, .count = 0}) ==
        "broadcast(i64 x 0, root 3)");
}

TEST_CASE("equal calls have equal bytes, and calls that differ in anything do not") {
  const Call call{.name = Call::Name::AllReduce,
                  .type = DataType::F32,
                  .op = ReduceOp::Sum,
                  .root = 0,
                  .count = 7};
  CHECK(encode(call) == encode(Call(call)));
  CHECK(describe(encode(call)) == to_string(call));
  std::vector<Call> others(5, call);
  others[0].name = Call::Name::Broadcast;
  others[1].type = DataType::I32;
  others[2].op = ReduceOp::Min;
  others[3].root = 1;
  others[4].count = 7 + (std::uint64_t{1} << 40);
  for (const Call& other : others) CHECK(encode(other) != encode(call));
}

TEST_CASE("bytes that are no call are told as such") {
  CallBytes bytes{};
  bytes.fill('\xff');
  CHECK(describe(bytes) == "unknown call");
}

TEST_CASE("a disagreement names every group of callers once") {
  const CallBytes barrier = encode(Call{.name = Call::Name::Barrier});
  const CallBytes reduce =
      encode(Call{.name = Call::Name::AllReduce, .type = DataType::U8, .count = 4});
  CHECK(describe_disagreement({barrier, reduce, reduce, reduce, barrier, reduce}) ==
        "ranks 0, 4 call barrier(); ranks 1-3, 5 call all_reduce(u8 x 4, sum)");
  CHECK(describe_disagreement({reduce, barrier}) ==
        "rank 0 calls all_reduce(u8 x 4, sum); rank 1 calls barrier()");
}

TEST_CASE("ranks are told in runs") {
  CHECK(describe_ranks({4}) == "rank 4");
  CHECK(describe_ranks({4, 5}) == "ranks 4, 5");
  CHECK(describe_ranks({0, 1, 2, 5, 7, 8, 9}) == "ranks 0-2, 5, 7-9");
}

}  // namespace drun::worker
