#include "worker_lib/tools/perf/trials.h"

#include <algorithm>
#include <memory>
#include <string>

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

Trial trial_of_one_buffer(ProcessGroup& group, const Options& options, const Place& place,
                          std::size_t count) {
  const auto data = std::make_shared<Buffer>(group, place, count, options.type);
  const int rank = group.rank();
  const int size = group.size();
  const int root = options.root;
  const ReduceOp op = options.op;
  const std::string& name = options.operation;
  Trial trial{.count = count};
  trial.fill = [=] { data->fill([=](std::size_t i) { return brought(rank, i); }); };
  if (name == "broadcast") {
    trial.run = [=, &group](const OpOptions& how) {
      return group.broadcast(data->all(), root, how);
    };
    trial.check = [=] { data->check([=](std::size_t i) { return brought(root, i); }); };
  } else if (name == "all_reduce") {
    trial.run = [=, &group](const OpOptions& how) {
      return group.all_reduce(data->all(), op, how);
    };
    trial.check = [=] { data->check([=](std::size_t i) { return reduced(op, size, i); }); };
    trial.bus_factor = 2.0 * (size - 1) / size;
  } else {
    trial.run = [=, &group](const OpOptions& how) {
      return group.reduce(data->all(), root, op, how);
    };
    trial.check = [=] {
      data->check(
          [=](std::size_t i) { return rank == root ? reduced(op, size, i) : brought(rank, i); });
    };
  }
  return trial;
}

// A rank's part of the whole.
struct Parts {
  std::shared_ptr<Buffer> in{};
  std::shared_ptr<Buffer> out{};
  std::size_t part = 0;
  int rank = 0;
  int size = 1;
  int root = 0;
  ReduceOp op = ReduceOp::Sum;

  bool is_root() const { return rank == root; }
  std::size_t first() const { return part * static_cast<std::size_t>(rank); }  // of its part
  // The parts of all ranks together.
  double gathered(std::size_t i) const { return brought(static_cast<int>(i / part), i % part); }
};

// Of gather and all_gather, whose result is whole; of scatter, which comes from a whole.
void make_moves(const std::string& name, ProcessGroup& group, const Parts& the, Trial& trial) {
  const auto is_gathered = [the](std::size_t i) { return the.gathered(i); };
  if (name == "gather") {
    const auto all = [the] { return the.is_root() ? the.out->all() : the.out->none(); };
    trial.run = [=, &group](const OpOptions& how) {
      return group.gather(the.in->all(), all(), the.root, how);
    };
    trial.check = [=] {
      if (the.is_root()) the.out->check(is_gathered);
    };
  } else if (name == "all_gather") {
    trial.run = [=, &group](const OpOptions& how) {
      return group.all_gather(the.in->all(), the.out->all(), how);
    };
    trial.check = [=] { the.out->check(is_gathered); };
  } else {
    const auto all = [the] { return the.is_root() ? the.in->all() : the.in->none(); };
    trial.run = [=, &group](const OpOptions& how) {
      return group.scatter(all(), the.out->all(), the.root, how);
    };
    trial.check = [=] {
      the.out->check([=](std::size_t i) { return brought(the.root, the.first() + i); });
    };
  }
}

// Of reduce_scatter and all_to_all, which come from a whole on every rank.
void make_exchanges(const std::string& name, ProcessGroup& group, const Parts& the, Trial& trial) {
  if (name == "reduce_scatter") {
    trial.run = [=, &group](const OpOptions& how) {
      return group.reduce_scatter(the.in->all(), the.out->all(), the.op, how);
    };
    trial.check = [=] {
      the.out->check([=](std::size_t i) { return reduced(the.op, the.size, the.first() + i); });
    };
  } else {
    trial.run = [=, &group](const OpOptions& how) {
      return group.all_to_all(the.in->all(), the.out->all(), how);
    };
    trial.check = [=] {
      the.out->check([=](std::size_t i) {
        return brought(static_cast<int>(i / the.part), the.first() + i % the.part);
      });
    };
  }
}

// `part` elements for each rank.
Trial trial_of_parts(ProcessGroup& group, const Options& options, const Place& place,
                     std::size_t part) {
  const std::size_t whole = part * static_cast<std::size_t>(group.size());
  const std::string& name = options.operation;
  const bool is_in_whole = name == "scatter" || name == "reduce_scatter" || name == "all_to_all";
  const bool is_out_whole = name == "gather" || name == "all_gather" || name == "all_to_all";
  const auto buffer = [&](bool is_whole) {
    return std::make_shared<Buffer>(group, place, is_whole ? whole : part, options.type);
  };
  Parts the{.part = part, .rank = group.rank(), .size = group.size()};
  the.in = buffer(is_in_whole);
  the.out = buffer(is_out_whole);
  the.root = options.root;
  the.op = options.op;
  Trial trial{.count = whole, .bus_factor = static_cast<double>(the.size - 1) / the.size};
  trial.fill = [=] {
    the.in->fill([=](std::size_t i) { return brought(the.rank, i); });
    the.out->fill([](std::size_t) { return 0; });
  };
  if (name == "reduce_scatter" || name == "all_to_all") {
    make_exchanges(name, group, the, trial);
  } else {
    make_moves(name, group, the, trial);
  }
  return trial;
}

// To the next rank, from the one before: half of them send first. One at a time.
Trial trial_of_messages(ProcessGroup& group, const Options& options, const Place& place,
                        std::size_t count) {
  const auto out = std::make_shared<Buffer>(group, place, count, options.type);
  const auto in = std::make_shared<Buffer>(group, place, count, options.type);
  const int rank = group.rank();
  const int next = (rank + 1) % group.size();
  const int before = (rank + group.size() - 1) % group.size();
  Trial trial{.count = count, .takes_async_op = false};
  trial.fill = [=] {
    out->fill([=](std::size_t i) { return brought(rank, i); });
    in->fill([](std::size_t) { return 0; });
  };
  trial.run = [=, &group](const OpOptions&) {
    const Work sent = group.send(out->all(), next, async_op);
    group.recv(in->all(), before);
    sent.wait();
    return Work();
  };
  trial.check = [=] { in->check([=](std::size_t i) { return brought(before, i); }); };
  return trial;
}

}  // namespace

Trial make_trial(ProcessGroup& group, const Options& options, const Place& place,
                 std::size_t bytes) {
  const std::size_t count = std::max<std::size_t>(bytes / size_bytes(options.type), 1);
  const std::string& name = options.operation;
  if (name == "barrier") {
    Trial trial;
    trial.fill = trial.check = [] {};
    trial.run = [&group](const OpOptions& how) { return group.barrier(how); };
    return trial;
  }
  if (name == "send_recv") return trial_of_messages(group, options, place, count);
  if (name == "broadcast" || name == "reduce" || name == "all_reduce") {
    return trial_of_one_buffer(group, options, place, count);
  }
  return trial_of_parts(group, options, place,
                        std::max<std::size_t>(count / static_cast<std::size_t>(group.size()), 1));
}

}  // namespace drun::perf
