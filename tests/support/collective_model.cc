#include "tests/support/collective_model.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "worker_lib/base/signature.h"
#include "worker_lib/math/reduce.h"
#include "worker_lib/math/with_type.h"

namespace drun::test {
namespace {

using Bytes = std::vector<char>;
using Counts = std::vector<std::size_t>;

constexpr std::size_t kGuardBytes = 64;  // before and after each output
constexpr char kGuard = '\x5a';

template <typename T>
void put(char* to, int value) {
  T number{};
  if constexpr (std::is_class_v<T>) number = T(static_cast<float>(value));
  if constexpr (!std::is_class_v<T>) number = static_cast<T>(value);
  std::memcpy(to, &number, sizeof number);
}

void put(char* to, DataType type, int value) {
  worker::with_type(type, [&](auto sample) { put<decltype(sample)>(to, value); });
}

// A rank's input numbers, small enough for exact products. They repeat with a prime period, which
// no piece size is a multiple of, so large inputs are filled at the speed of memcpy.
Bytes numbers(const Scenario& scenario, int rank, std::size_t count) {
  constexpr std::size_t kPeriod = 1009;
  const std::size_t element = size_bytes(scenario.type);
  const std::size_t range = scenario.op == ReduceOp::Product ? 2 : 5;
  Bytes bytes(count * element);
  for (std::size_t i = 0; i < std::min(count, kPeriod); ++i) {
    const std::size_t value = (i * 7 + i / 11 + rank_index(rank) * 13 + scenario.seed) % range + 1;
    put(&bytes[i * element], scenario.type, static_cast<int>(value));
  }
  for (std::size_t done = kPeriod * element; done < bytes.size();) {
    const std::size_t next = std::min(done, bytes.size() - done);
    std::memcpy(&bytes[done], bytes.data(), next);
    done += next;
  }
  return bytes;
}

std::size_t count_from_to(const Scenario& scenario, int from, int to) {
  if (!scenario.is_uneven) return scenario.count;
  const int size = scenario.size;
  switch (scenario.operation) {
    case Operation::Gather:
    case Operation::AllGather:
      return scenario.counts[rank_index(from * size)];
    case Operation::Scatter:
    case Operation::ReduceScatter:
      return scenario.counts[rank_index(to)];
    default:
      return scenario.counts[rank_index(from * size + to)];
  }
}

Counts counts_to_all(const Scenario& scenario, int from) {
  Counts counts;
  for (int to = 0; to < scenario.size; ++to) counts.push_back(count_from_to(scenario, from, to));
  return counts;
}
Counts counts_from_all(const Scenario& scenario, int to) {
  Counts counts;
  for (int from = 0; from < scenario.size; ++from) {
    counts.push_back(count_from_to(scenario, from, to));
  }
  return counts;
}
std::size_t sum(const Counts& counts) {
  std::size_t total = 0;
  for (const std::size_t count : counts) total += count;
  return total;
}

// A rank's input, as the table in drun/backend.h describes it.
Bytes input_of(const Scenario& scenario, int rank) {
  switch (scenario.operation) {
    case Operation::Barrier:
      return {};
    case Operation::Broadcast:
    case Operation::AllReduce:
    case Operation::Reduce:
      return numbers(scenario, rank, scenario.count);
    case Operation::Gather:
    case Operation::AllGather:
      return numbers(scenario, rank, count_from_to(scenario, rank, 0));
    case Operation::Scatter:
      if (rank != scenario.root) return {};
      return numbers(scenario, rank, sum(counts_to_all(scenario, rank)));
    case Operation::ReduceScatter:
    case Operation::AllToAll:
      return numbers(scenario, rank, sum(counts_to_all(scenario, rank)));
  }
  return {};
}

Bytes reduced_bytes(const Scenario& scenario) {
  Bytes result = input_of(scenario, 0);
  const std::size_t count = result.size() / size_bytes(scenario.type);
  const auto reduce = worker::reduce_function(scenario.type, scenario.op);
  for (int rank = 1; rank < scenario.size; ++rank) {
    const Bytes next = input_of(scenario, rank);
    reduce(result.data(), result.data(), next.data(), count);
  }
  if (scenario.op == ReduceOp::Avg) {
    worker::divide(result.data(), scenario.type, count, scenario.size);
  }
  return result;
}

Bytes part_of(const Scenario& scenario, const Bytes& all, int from, int to) {
  Counts before = counts_to_all(scenario, from);
  const std::size_t element = size_bytes(scenario.type);
  const std::size_t bytes = before[rank_index(to)] * element;
  before.resize(rank_index(to));
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(sum(before) * element);
  return Bytes(begin, begin + static_cast<std::ptrdiff_t>(bytes));
}

Bytes expected_output(const Scenario& scenario, int rank) {
  const bool is_root = rank == scenario.root;
  switch (scenario.operation) {
    case Operation::Barrier:
      return {};
    case Operation::Broadcast:
      return input_of(scenario, scenario.root);
    case Operation::AllReduce:
      return reduced_bytes(scenario);
    case Operation::Reduce:
      return is_root ? reduced_bytes(scenario) : Bytes();
    case Operation::Scatter:
      return part_of(scenario, input_of(scenario, scenario.root), scenario.root, rank);
    case Operation::ReduceScatter:
      return part_of(scenario, reduced_bytes(scenario), 0, rank);
    case Operation::Gather:
    case Operation::AllGather:
    case Operation::AllToAll:
      break;
  }
  if (scenario.operation == Operation::Gather && !is_root) return {};
  Bytes result;
  for (int from = 0; from < scenario.size; ++from) {
    const Bytes input = input_of(scenario, from);
    const bool is_whole = scenario.operation != Operation::AllToAll;
    const Bytes part = is_whole ? input : part_of(scenario, input, from, rank);
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

bool is_in_place(const Scenario& scenario, int rank) {
  return scenario.operation == Operation::Broadcast || scenario.operation == Operation::AllReduce ||
         (scenario.operation == Operation::Reduce && scenario.is_in_place && rank == scenario.root);
}

std::size_t own_count(const Scenario& scenario, int rank) {
  switch (scenario.operation) {
    case Operation::Gather:
    case Operation::AllGather:
      return count_from_to(scenario, rank, 0);
    case Operation::Scatter:
    case Operation::ReduceScatter:
      return count_from_to(scenario, 0, rank);
    default:
      return scenario.is_uneven ? 0 : scenario.count;
  }
}

// Storage for the counts that the call points to.
struct CallCounts {
  Counts in;
  Counts out;
};

Call call_of(const Scenario& scenario, int rank, const CallCounts& counts) {
  Call call{.operation = scenario.operation,
            .type = scenario.type,
            .op = scenario.op,
            .root = scenario.root,
            .count = own_count(scenario, rank),
            .is_uneven = scenario.is_uneven};
  if (!scenario.is_uneven) return call;
  const bool is_root = rank == scenario.root;
  const Operation operation = scenario.operation;
  if (operation == Operation::AllGather || operation == Operation::AllToAll ||
      (operation == Operation::Gather && is_root)) {
    call.counts_out = counts.out.data();
  }
  if (operation == Operation::ReduceScatter || operation == Operation::AllToAll ||
      (operation == Operation::Scatter && is_root)) {
    call.counts_in = counts.in.data();
  }
  return call;
}

std::string first_difference(const Bytes& got, const Bytes& expected, std::size_t element) {
  const bool is_equal =
      expected.empty() || std::memcmp(&got[kGuardBytes], expected.data(), expected.size()) == 0;
  for (std::size_t i = 0; !is_equal && i < expected.size(); ++i) {
    if (got[kGuardBytes + i] != expected[i]) {
      return "wrong element " + std::to_string(i / element) + " of " +
             std::to_string(expected.size() / element);
    }
  }
  for (std::size_t i = 0; i < kGuardBytes; ++i) {
    if (got[i] != kGuard) return "wrote before the output";
    if (got[kGuardBytes + expected.size() + i] != kGuard) return "wrote behind the output";
  }
  return "";
}

}  // namespace

std::string to_string(const Scenario& scenario) {
  std::string text(to_string(scenario.operation));
  text += " " + std::string(to_string(scenario.type)) + " " + std::string(to_string(scenario.op)) +
          " root " + std::to_string(scenario.root) + " of " + std::to_string(scenario.size) +
          " count " + std::to_string(scenario.count);
  if (!scenario.is_uneven) return text;
  text += " counts";
  for (const std::size_t count : scenario.counts) text += " " + std::to_string(count);
  return text;
}

const std::vector<Operation>& all_operations() {
  static const std::vector<Operation> all{
      Operation::Barrier, Operation::Broadcast,     Operation::AllReduce,
      Operation::Reduce,  Operation::Gather,        Operation::AllGather,
      Operation::Scatter, Operation::ReduceScatter, Operation::AllToAll};
  return all;
}

bool has_parts(Operation operation) { return operation >= Operation::Gather; }

std::vector<std::size_t> random_counts(std::mt19937& random, int size, std::size_t most) {
  std::vector<std::size_t> counts(rank_index(size * size));
  for (std::size_t& count : counts) {
    count = random() % 4 == 0 ? 0 : random() % (most + 1);
  }
  return counts;
}

Scenario random_scenario(std::mt19937& random, int size, std::size_t most) {
  const auto below = [&random](std::size_t limit) { return random() % limit; };
  Scenario scenario;
  scenario.operation = all_operations()[below(all_operations().size())];
  do {
    scenario.type = static_cast<DataType>(below(11));
    scenario.op = static_cast<ReduceOp>(below(8));
  } while (worker::reduce_function(scenario.type, scenario.op) == nullptr ||
           (scenario.op == ReduceOp::Avg && !is_floating_point(scenario.type)));
  scenario.size = size;
  scenario.root = static_cast<int>(below(rank_index(size)));
  scenario.is_in_place = below(2) == 0;
  scenario.count = below(most + 1);
  scenario.seed = static_cast<unsigned>(below(100));
  scenario.is_uneven = has_parts(scenario.operation) && below(2) == 0;
  if (scenario.is_uneven) scenario.counts = random_counts(random, size, most);
  return scenario;
}

std::string run_and_check(const Scenario& scenario, int rank,
                          const std::function<void(const Call&)>& run) {
  const CallCounts counts{counts_to_all(scenario, rank), counts_from_all(scenario, rank)};
  const Bytes before = input_of(scenario, rank);
  Bytes input = before;
  const Bytes expected = expected_output(scenario, rank);
  Bytes output(expected.size() + 2 * kGuardBytes, kGuard);
  Call call = call_of(scenario, rank, counts);
  const bool has_output =
      !(scenario.operation == Operation::Barrier) &&
      !((scenario.operation == Operation::Reduce || scenario.operation == Operation::Gather) &&
        rank != scenario.root);
  if (has_output) call.output = &output[kGuardBytes];
  if (is_in_place(scenario, rank)) {
    if (!input.empty()) std::memcpy(call.output, input.data(), input.size());
    call.input = call.output;
  } else if (scenario.operation != Operation::Barrier &&
             (scenario.operation != Operation::Scatter || rank == scenario.root)) {
    call.input = input.data();
  }
  run(call);
  std::string wrong = first_difference(output, expected, size_bytes(scenario.type));
  if (wrong.empty() && input != before) wrong = "wrote to the input";
  if (wrong.empty()) return "";
  return "rank " + std::to_string(rank) + ": " + to_string(scenario) + ": " + wrong;
}

}  // namespace drun::test
