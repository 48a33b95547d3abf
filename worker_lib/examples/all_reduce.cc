// Every rank has different numbers. all_reduce gives all ranks the sum, and every rank checks all
// of it exactly.
//
//     drun --standalone --nproc_per_node=4 ./all_reduce
//
//     4 ranks: 1000003 numbers summed, all exact
#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "drun/process_group.h"
#include "drun/record.h"

namespace {

constexpr std::size_t kCount = 1'000'003;  // not a multiple of anything

// What rank r brings at place i. Sums of such small whole numbers are exact in a double.
double brought_by(int rank, std::size_t i) { return (rank + 1) * static_cast<double>(i % 1000); }

void check(const std::vector<double>& sums, int size) {
  const double ranks = size * (size + 1) / 2;  // 1 + 2 + ... + size
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const double expected = ranks * static_cast<double>(i % 1000);
    if (sums[i] == expected) continue;
    throw std::runtime_error("number " + std::to_string(i) + " is " + std::to_string(sums[i]) +
                             ", not " + std::to_string(expected));
  }
}

}  // namespace

int main() {
  return drun::record([] {
    drun::ProcessGroup group = drun::init_process_group();

    std::vector<double> numbers(kCount);
    for (std::size_t i = 0; i < kCount; ++i) numbers[i] = brought_by(group.rank(), i);
    group.all_reduce(numbers);
    check(numbers, group.size());

    // A rank gets here only if its check passed; the sum of ones counts the ranks.
    std::int32_t good = 1;
    group.all_reduce(good);
    if (group.rank() == 0) {
      std::cout << good << " ranks: " << kCount << " numbers summed, all exact\n" << std::flush;
    }
    group.barrier();
  });
}
