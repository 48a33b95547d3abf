#include "tests/support/nccl_deeds.h"

#include <vector>

#include "drun/process_group.h"
#include "tests/support/calls.h"
#include "tests/support/gpu_memory.h"
#include "tests/support/in_rank.h"
#include "worker_lib/nccl/nccl_backend.h"

namespace drun::test {
namespace {

using std::chrono::seconds;

bool knows(DataType type, ReduceOp op) {
  const bool is_bits = op == ReduceOp::Band || op == ReduceOp::Bor || op == ReduceOp::Bxor;
  return type != DataType::I16 && !is_bits && has_op(type, op);
}

}  // namespace

void check_nccl_collectives(const Ranks& ranks, int rank) {
  BackendContext context;
  context.rank = rank;
  context.size = ranks.size;
  context.node_of.assign(static_cast<std::size_t>(ranks.size), 0);
  if (ranks.size > 1) context.store = connect_key_store("127.0.0.1", ranks.port, seconds(20));
  context.deadline = soon();
  const std::unique_ptr<Backend> backend = worker::connect_nccl(context);
  std::uint32_t sequence = 0;
  const CollectiveRig rig = rig_on_gpu(*backend, rank, ranks.size, [&] {
    return Turn{++sequence, soon()};
  });
  for (const DataType type : all_types()) {
    for (const ReduceOp op : all_ops()) {
      if (!knows(type, op)) continue;
      check_reductions(rig, type, op, 5);
    }
    check_moves(rig, type, 3);
    if (type != DataType::I16) check_uneven(rig, type, 7);  // NCCL has no sums of i16
  }
  for (const DataType type : {DataType::F8E4M3, DataType::F8E5M2}) {
    check_moves(rig, type, 3);
    Call sum{.operation = Operation::AllReduce, .type = type};
    if (backend->refusal(sum).empty()) check_reductions(rig, type, ReduceOp::Max, 5);
  }
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{40001}}) {
    check_reductions(rig, DataType::F32, ReduceOp::Sum, count);
    check_moves(rig, DataType::I16, count);
    check_uneven(rig, DataType::F64, count);
  }
  backend->run(Call{.operation = Operation::Barrier}, Turn{++sequence, soon()});
  backend->abort();
}

void check_nccl_messages() {
  ProcessGroup group = ProcessGroup::connect(over("nccl"));
  const int next = (group.rank() + 1) % group.size();
  const int previous = (group.rank() + group.size() - 1) % group.size();
  constexpr std::size_t kCount = 30000;  // more operations than can be pending at once
  const auto value = [](int rank, int turn) { return 100 * rank + turn; };
  std::vector<std::unique_ptr<OnGpu<int>>> arrived;
  std::vector<std::unique_ptr<OnGpu<int>>> sent;
  for (int turn = 0; turn < 3; ++turn) {
    sent.push_back(std::make_unique<OnGpu<int>>(kCount, value(group.rank(), turn)));
    arrived.push_back(std::make_unique<OnGpu<int>>(kCount, -1));
  }
  const auto check_arrived = [&] {
    for (int turn = 0; turn < 3; ++turn) {
      const OnGpu<int>& each = *arrived[static_cast<std::size_t>(turn)];
      expect(each.read() == std::vector<int>(kCount, value(previous, turn)), "this turn's message");
      each.write(std::vector<int>(kCount, -1));
    }
  };

  // Both directions at once: in a batch.
  std::vector<Work> works;
  for (std::size_t turn = 0; turn < 3; ++turn) {
    for (const Work& work :
         batch_isend_irecv(group, {P2POp::send(sent[turn]->named(), next),
                                   P2POp::recv(arrived[turn]->unnamed(), previous)})) {
      works.push_back(work);
    }
  }
  wait_all(works);
  check_arrived();

  // One by one: one of two ranks sends first, and the other receives first.
  works.clear();
  for (const bool is_sending : {group.rank() % 2 == 0, group.rank() % 2 != 0}) {
    for (std::size_t turn = 0; turn < 3; ++turn) {
      works.push_back(is_sending ? group.send(sent[turn]->named(), next, async_op)
                                 : group.recv(arrived[turn]->unnamed(), previous, async_op));
    }
  }
  wait_all(works);
  check_arrived();

  const OnGpu<std::int16_t> small(3, static_cast<std::int16_t>(group.rank()));
  if (group.rank() == 0) group.send(small.named(), 1);
  if (group.rank() == 1) group.recv(small.named(), 0);
  expect(group.rank() > 1 || small.read() == std::vector<std::int16_t>(3, 0), "rank 0's");
  group.barrier();
}

void check_nccl_async() {
  ProcessGroup group = ProcessGroup::connect(over("nccl"));
  std::vector<std::unique_ptr<OnGpu<float>>> numbers;
  std::vector<Work> works;
  for (int i = 0; i < 8; ++i) {
    numbers.push_back(std::make_unique<OnGpu<float>>(1000, static_cast<float>(i)));
    works.push_back(group.all_reduce(numbers.back()->named(), async_op));
    if (i == 4) group.all_reduce(numbers.back()->named());  // queued after the asynchronous ones
  }
  for (std::size_t i = 0; i < works.size(); ++i) {
    works[i].wait();
    expect(works[i].is_completed() && works[i].error() == nullptr, "done");
    float sum = static_cast<float>(i) * static_cast<float>(group.size());
    if (i == 4) sum *= static_cast<float>(group.size());
    expect(numbers[i]->read() == std::vector<float>(1000, sum), "the sum");
  }
  const OnGpu<Float16> halves(1000, Float16(40000.0F));  // their sum would be infinite
  group.all_reduce(halves.named(), premul_sum(1.0 / 32));
  const auto scaled = Float16(1250.0F * static_cast<float>(group.size()));
  expect(halves.read() == std::vector<Float16>(1000, scaled), "the sum of multiplied numbers");
  group.barrier();
}

void check_both_memories() {
  ProcessGroup group = ProcessGroup::connect(over(InitOptions().backend));
  // A group whose GPUs are not connected yet has nothing to split.
  const int last = group.size() - 1;
  const std::vector<int> ends = last > 0 ? std::vector<int>{last, 0} : std::vector<int>{0};
  std::optional<ProcessGroup> early = group.new_group(ends);
  std::vector<int> of_host(5, 1);
  const OnGpu<int> of_gpu(5, 2);
  group.all_reduce(of_host);
  group.all_reduce(of_gpu.named());
  group.all_reduce(of_gpu.unnamed());  // CUDA is loaded by now
  Work work = group.all_reduce(of_host, async_op);
  group.all_reduce(of_gpu.named(), async_op).wait();
  work.wait();
  const int size = group.size();
  expect(of_host == std::vector<int>(5, size * size), "the host's sum");
  expect(of_gpu.read() == std::vector<int>(5, 2 * size * size * size), "the GPU's sum");
  if (size > 1) {
    const OnGpu<int> message(2, group.rank());
    if (group.rank() == 0) group.send(message.named(), 1);
    if (group.rank() == 1) group.recv(message.named(), 0);
    if (group.rank() == 0) group.send(of_host, 1, /*tag=*/7);
    if (group.rank() == 1) group.recv(of_host, 0, /*tag=*/7);
    expect(group.rank() > 1 || message.read() == std::vector<int>(2, 0), "rank 0's message");
  }
  std::optional<ProcessGroup> late = group.new_group(ends);
  expect(early.has_value() == late.has_value(), "the same ranks");
  for (std::optional<ProcessGroup>* part : {&early, &late}) {
    if (!*part) continue;
    std::vector<int> one(1, 1);
    const OnGpu<int> another(1, 1);
    (*part)->all_reduce(one);
    (*part)->all_reduce(another.unnamed());
    expect(one[0] == (*part)->size() && another.read() == one, "a sum of either memory");
  }
  group.barrier();
}

void check_nccl_groups() {
  ProcessGroup world = ProcessGroup::connect(over("nccl"));
  const int half = world.rank() % 2;
  std::optional<ProcessGroup> part = world.split(half, -world.rank());
  expect(part.has_value(), "a part for each rank");
  const OnGpu<int> number(1, 1 << world.rank());
  part->all_reduce(number.named());
  int sum = 0;
  for (int rank = half; rank < world.size(); rank += 2) sum += 1 << rank;
  expect(number.read()[0] == sum, "the sum of this half");
  const OnGpu<int> first(1, world.rank());
  part->broadcast(first.named(), 0);  // the highest rank is the first
  const int last = world.size() - 1;
  expect(first.read()[0] == (last % 2 == half ? last : last - 1), "ordered by key");
  std::optional<ProcessGroup> two = world.new_group({1, 0});
  expect(two.has_value() == (world.rank() < 2), "only those named");
  if (two) {
    expect(two->rank() == 1 - world.rank(), "in the order given");
    two->all_reduce(number.named());
  }
  world.barrier();
}

}  // namespace drun::test
