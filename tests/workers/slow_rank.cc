// slow_rank R P [N]: steps of 8 ms of work and an all_reduce; rank R works P percent longer. With
// SLOW_PERCENT in the environment, all ranks of the node work that much longer instead. Returns
// after N steps, or in round 1 after 100. Prints "round ROUND of WORLD_SIZE" on each rank.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "drun/process_group.h"
#include "drun/record.h"

int main(int argc, char** argv) {
  return drun::record([argc, argv] {
    drun::ProcessGroup group = drun::init_process_group();
    const char* const round = std::getenv("DRUN_ROUND");
    const char* const of_node = std::getenv("SLOW_PERCENT");
    const int slow_rank = argc > 1 ? std::atoi(argv[1]) : -1;
    int percent = group.rank() == slow_rank && argc > 2 ? std::atoi(argv[2]) : 0;
    if (of_node != nullptr) percent = std::atoi(of_node);
    long steps = argc > 3 ? std::atol(argv[3]) : std::numeric_limits<long>::max();
    if (round != nullptr && std::string(round) == "1") steps = 100;
    std::printf("round %s of %d\n", round, group.size());
    std::fflush(stdout);
    std::vector<float> numbers(1000);
    for (long i = 0; i < steps; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(80 * (100 + percent)));
      group.all_reduce(numbers);
    }
  });
}
