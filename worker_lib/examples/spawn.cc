// A program that starts its own ranks: four processes count how many random points of a square lie
// in the circle, and add up.
//
//     ./spawn
//
//     4 ranks threw 4000000 points: pi is about 3.14
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "drun/process_group.h"
#include "drun/record.h"
#include "drun/spawn.h"

namespace {

constexpr int kRanks = 4;
constexpr std::int64_t kPoints = 1'000'000;  // a rank

std::int64_t count_inside(int rank) {
  std::mt19937 random(static_cast<unsigned>(rank));
  std::uniform_real_distribution<double> place(-1, 1);
  std::int64_t inside = 0;
  for (std::int64_t i = 0; i < kPoints; ++i) {
    const double x = place(random);
    const double y = place(random);
    if (x * x + y * y < 1) ++inside;
  }
  return inside;
}

void run_rank(int rank) {
  drun::ProcessGroup group = drun::init_process_group();
  std::vector<std::int64_t> sums{count_inside(rank), kPoints};
  group.all_reduce(sums);
  if (rank == 0) {
    std::printf("%d ranks threw %lld points: pi is about %.2f\n", group.size(),
                static_cast<long long>(sums[1]),
                4 * static_cast<double>(sums[0]) / static_cast<double>(sums[1]));
  }
  group.barrier();
}

}  // namespace

// An exception of a rank is thrown here, and stops the other ranks.
int main() {
  return drun::record([] { drun::spawn(run_rank, kRanks); });
}
