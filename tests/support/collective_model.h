// A sequential model of one collective as all ranks call it. Backends and algorithms are compared
// with it. All numbers are small integers, so results are exact in any order.
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
  std::size_t count = 0;     // if all parts are equal
  // Indexed by [from * size + to]. Gather and AllGather use only column 0, Scatter and
  // ReduceScatter only row 0.
  std::vector<std::size_t> counts = {};
  unsigned seed = 0;  // for the numbers
};

std::string to_string(const Scenario& scenario);

// Chooses any operation, type and op, with parts of up to `most` elements.
Scenario random_scenario(std::mt19937& random, int size, std::size_t most);
// Counts for an uneven scenario.
std::vector<std::size_t> random_counts(std::mt19937& random, int size, std::size_t most);
const std::vector<Operation>& all_operations();
bool has_parts(Operation operation);  // whether it has a variant with parts of different sizes

// Makes this rank's call through `run`. Returns an empty string, or what is wrong with the output,
// the memory around it, or memory that must not change.
std::string run_and_check(const Scenario& scenario, int rank,
                          const std::function<void(const Call&)>& run);

}  // namespace drun::test
