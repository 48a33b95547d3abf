// One collective as all ranks call it, and what must come out: a sequential model that backends and
// algorithms are compared with. Numbers are small and whole, so results are exact in any order.
#pragma once

#include <cstddef>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "drun/backend.h"

namespace drun::test {

inline std::size_t rank_index(int rank) { return static_cast<std::size_t>(rank); }

struct Scenario {
  Operation operation = Operation::Barrier;
  DataType type = DataType::F32;
  ReduceOp op = ReduceOp::Sum;
  int size = 2;
  int root = 0;
  bool is_uneven = false;
  bool is_in_place = false;  // reduce: the root's output is its input
  std::size_t count = 0;     // where all parts are equal
  // [from * size + to]; of operations where one side is everybody or the root, the row or column
  // that tells.
  std::vector<std::size_t> counts = {};
  unsigned seed = 0;  // of the numbers
};

std::string to_string(const Scenario& scenario);

// Of all operations, types and ops; parts of up to `most` elements.
Scenario random_scenario(std::mt19937& random, int size, std::size_t most);
// Counts for a scenario that is_uneven.
std::vector<std::size_t> random_counts(std::mt19937& random, int size, std::size_t most);
const std::vector<Operation>& all_operations();
bool has_parts(Operation operation);  // there is a variant of it with parts of different sizes

// Makes this rank's call through `run`. Empty, or what is wrong: with the output, the memory around
// it, or memory that must not have changed.
std::string run_and_check(const Scenario& scenario, int rank,
                          const std::function<void(const Call&)>& run);

}  // namespace drun::test
