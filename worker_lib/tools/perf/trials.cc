#include "worker_lib/tools/perf/trials.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

namespace drun::perf {
namespace {

// The input of a rank at an index: so small that no type rounds a product or sum of a few ranks.
int brought(int rank, std::size_t place) {
  return 1 + static_cast<int>((static_cast<std::size_t>(rank) + place) % 2);
}

double combined(ReduceOp op, double left, double right) {
  const auto bits = [left, right](auto action) {
    return static_cast<double>(action(static_cast<long>(left), static_cast<long>(right)));
  };
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
      return left + right;
    case ReduceOp::Product:
      return left * right;
    case ReduceOp::Min:
      return std::min(left, right);
    case ReduceOp::Max:
      return std::max(left, right);
    case ReduceOp::Band:
      return bits([](long a, long b) { return a & b; });
    case ReduceOp::Bor:
      return bits([](long a, long b) { return a | b; });
    case ReduceOp::Bxor:
      return bits([](long a, long b) { return a ^ b; });
  }
  return 0;
}

double reduced(ReduceOp op, int size, std::size_t place) {
  double result = brought(0, place);
  for (int rank = 1; rank < size; ++rank) result = combined(op, result, brought(rank, place));
  return op == ReduceOp::Avg ? result / size : result;
}

}  // namespace

Trial make_trial(ProcessGroup& group, const Options& options, const Place& place,
                 std::size_t bytes) {
  const std::string& name = options.operation;
  Trial trial;
  if (name == "barrier") {
    trial.fill = trial.check = [] {};
    trial.run = [&group](const OpOptions& how) { return group.barrier(how); };
    return trial;
  }
  const bool is_in_place = name == "broadcast" || name == "all_reduce" || name == "reduce";
  const bool is_message = name == "send_recv";
  // A buffer of one part of each rank, or of one part.
  const bool is_in_whole = name == "scatter" || name == "reduce_scatter" || name == "all_to_all";
  const bool is_out_whole = name == "gather" || name == "all_gather" || name == "all_to_all";
  const int rank = group.rank();
  const int size = group.size();
  const int root = options.root;
  const bool is_root = rank == root;
  const ReduceOp op = options.op;
  const std::size_t parts = is_in_place || is_message ? 1 : static_cast<std::size_t>(size);
  const std::size_t part = std::max<std::size_t>(bytes / size_bytes(options.type) / parts, 1);
  const std::size_t first = part * static_cast<std::size_t>(rank);  // of this rank's part
  const auto buffer = [&](bool is_whole) {
    return std::make_shared<Buffer>(group, place, is_whole ? part * parts : part, options.type);
  };
  const auto in = buffer(is_in_whole);
  const auto out = is_in_place ? in : buffer(is_out_whole);
  trial.count = part * parts;
  trial.bus_factor = parts == 1 ? 1 : static_cast<double>(size - 1) / size;
  trial.fill = [=] {
    in->fill([=](std::size_t i) { return brought(rank, i); });
    if (out != in) out->fill([](std::size_t) { return 0; });
  };
  const auto set = [&](auto run, Buffer::Value expected) {
    trial.run = std::move(run);
    trial.check = [out, expected = std::move(expected)] { out->check(expected); };
  };
  // The parts of all ranks in a row.
  const auto gathered = [=](std::size_t i) {
    return brought(static_cast<int>(i / part), i % part);
  };
  if (name == "broadcast") {
    set([=, &group](const OpOptions& how) { return group.broadcast(in->all(), root, how); },
        [=](std::size_t i) { return brought(root, i); });
  } else if (name == "all_reduce") {
    trial.bus_factor = 2.0 * (size - 1) / size;
    set([=, &group](const OpOptions& how) { return group.all_reduce(in->all(), op, how); },
        [=](std::size_t i) { return reduced(op, size, i); });
  } else if (name == "reduce") {
    set([=, &group](const OpOptions& how) { return group.reduce(in->all(), root, op, how); },
        [=](std::size_t i) { return is_root ? reduced(op, size, i) : brought(rank, i); });
  } else if (name == "gather") {
    set(
        [=, &group](const OpOptions& how) {
          return group.gather(in->all(), is_root ? out->all() : out->none(), root, how);
        },
        [=](std::size_t i) { return is_root ? gathered(i) : 0; });
  } else if (name == "all_gather") {
    set([=, &group](const OpOptions& how) { return group.all_gather(in->all(), out->all(), how); },
        gathered);
  } else if (name == "scatter") {
    set(
        [=, &group](const OpOptions& how) {
          return group.scatter(is_root ? in->all() : in->none(), out->all(), root, how);
        },
        [=](std::size_t i) { return brought(root, first + i); });
  } else if (name == "reduce_scatter") {
    set([=, &group](
            const OpOptions& how) { return group.reduce_scatter(in->all(), out->all(), op, how); },
        [=](std::size_t i) { return reduced(op, size, first + i); });
  } else if (name == "all_to_all") {
    set([=, &group](const OpOptions& how) { return group.all_to_all(in->all(), out->all(), how); },
        [=](std::size_t i) { return brought(static_cast<int>(i / part), first + i % part); });
  } else {  // to the next rank, from the one before, one message at a time
    const int next = (rank + 1) % size;
    const int before = (rank + size - 1) % size;
    trial.takes_async_op = false;
    set(
        [=, &group](const OpOptions&) {
          const Work sent = group.send(in->all(), next, async_op);
          group.recv(out->all(), before);
          sent.wait();
          return Work();
        },
        [=](std::size_t i) { return brought(before, i); });
  }
  return trial;
}

}  // namespace drun::perf
