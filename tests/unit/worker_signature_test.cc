#include "worker_lib/base/signature.h"

#include "tests/support/catch.h"

namespace drun::worker {

TEST_CASE("a call is described as in source code") {
  CHECK(to_string(Call{.operation = Operation::Barrier}) == "barrier()");
  CHECK(to_string(Call{.operation = Operation::AllReduce,
                       .type = DataType::F32,
                       .op = ReduceOp::Max,
                       .count = 1000}) == "all_reduce(f32 x 1000, max)");
  CHECK(to_string(Call{
            .operation = Operation::Broadcast, .type = DataType::I64, .root = 3, .count = 0}) ==
        "broadcast(i64 x 0, root 3)");
  CHECK(to_string(Call{.operation = Operation::Reduce,
                       .type = DataType::BF16,
                       .op = ReduceOp::Avg,
                       .root = 1,
                       .count = 2}) == "reduce(bf16 x 2, avg, root 1)");
  CHECK(to_string(Call{.operation = Operation::Gather,
                       .type = DataType::U8,
                       .root = 1,
                       .count = 2,
                       .is_uneven = true}) == "gather_v(u8, root 1)");
}

TEST_CASE("equal calls have equal signatures, and calls that differ in any field do not") {
  const Call call{
      .operation = Operation::AllReduce, .type = DataType::F32, .op = ReduceOp::Sum, .count = 7};
  CHECK(signature_of(call, 3) == signature_of(Call(call), 3));
  CHECK(describe(signature_of(call, 3)) == to_string(call));
  std::vector<Call> others(6, call);
  others[0].operation = Operation::Reduce;
  others[1].type = DataType::I32;
  others[2].op = ReduceOp::Min;
  others[3].operation = Operation::Broadcast;
  others[4].count = 7 + (std::uint64_t{1} << 40);
  others[5].is_uneven = true;
  for (const Call& other : others) CHECK(signature_of(other, 3) != signature_of(call, 3));
  Call reduce = call;
  reduce.operation = Operation::Reduce;
  Call other_root = reduce;
  other_root.root = 1;
  CHECK(signature_of(reduce, 3) != signature_of(other_root, 3));
}

TEST_CASE("counts known to all ranks are compared, and counts known to one rank are not") {
  const std::vector<std::size_t> some{1, 2, 3};
  const std::vector<std::size_t> others{3, 2, 1};
  Call gather{.operation = Operation::AllGather, .counts_out = some.data(), .is_uneven = true};
  Call other = gather;
  other.counts_out = others.data();
  CHECK(signature_of(gather, 3) != signature_of(other, 3));
  gather.operation = other.operation = Operation::AllToAll;
  CHECK(signature_of(gather, 3) == signature_of(other, 3));
}

TEST_CASE("bytes that are not a call are described as unknown") {
  CHECK(describe({.what = ~std::uint64_t{0}}) == "unknown call");
  CHECK(describe(signature_of(DataType::F32, 10)) == "f32 x 10");
}

TEST_CASE("the description of a disagreement names every group of callers once") {
  const Signature barrier = signature_of(Call{.operation = Operation::Barrier}, 6);
  const Signature reduce =
      signature_of(Call{.operation = Operation::AllReduce, .type = DataType::U8, .count = 4}, 6);
  CHECK(describe_disagreement({barrier, reduce, reduce, reduce, barrier, reduce}) ==
        "ranks 0, 4 call barrier(); ranks 1-3, 5 call all_reduce(u8 x 4, sum)");
  CHECK(describe_disagreement({reduce, barrier}) ==
        "rank 0 calls all_reduce(u8 x 4, sum); rank 1 calls barrier()");
}

TEST_CASE("ranks whose counts differ are described as such") {
  const auto gathering = [](const std::vector<std::size_t>& counts) {
    return signature_of(Call{.operation = Operation::AllGather,
                             .type = DataType::F32,
                             .counts_out = counts.data(),
                             .is_uneven = true},
                        3);
  };
  CHECK(describe_disagreement({gathering({1, 1, 1}), gathering({2, 1, 1}), gathering({1, 1, 1})}) ==
        "ranks 0, 2 call all_gather_v(f32); rank 1 calls all_gather_v(f32) with other counts");
}

TEST_CASE("consecutive ranks are described as ranges") {
  CHECK(describe_ranks({4}) == "rank 4");
  CHECK(describe_ranks({4, 5}) == "ranks 4, 5");
  CHECK(describe_ranks({0, 1, 2, 5, 7, 8, 9}) == "ranks 0-2, 5, 7-9");
}

}  // namespace drun::worker
