// Measures how soon waiting ranks detect a dead rank. The ranks call all_reduce in a loop, one is
// killed at a random moment, and each of the others reports the time of its exception.
//
//   notice_bench [backend, shm+gloo] [ranks, 4] [trials, 100]
//
// Prints the median and the maximum over all trials of the time until the last rank has detected
// the death, in milliseconds.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "drun/process_group.h"
#include "tests/support/ranks.h"

namespace drun {
namespace {

using Clock = std::chrono::steady_clock;  // the same for all processes of a machine

constexpr int kMostRanks = 64;

// Nanoseconds of the clock, shared by all processes.
struct Times {
  std::atomic<int> ready = 0;
  std::atomic<std::int64_t> killed = 0;
  std::atomic<std::int64_t> known[kMostRanks] = {};
  std::atomic<int> named[kMostRanks] = {};
};

std::int64_t now() { return Clock::now().time_since_epoch().count(); }

void be_a_rank(Times& times, const std::string& backend, int rank, int size, std::uint16_t port) {
  InitOptions options;
  options.backend = backend;
  options.store = connect_key_store("127.0.0.1", port, std::chrono::seconds(30));
  options.rank = rank;
  options.world_size = size;
  options.timeout = std::chrono::seconds(30);
  try {
    ProcessGroup group = ProcessGroup::connect(options);
    group.barrier();
    ++times.ready;
    std::vector<float> data(1000);
    while (true) group.all_reduce(data);
  } catch (const WorkerError& error) {
    times.known[rank] = now();
    times.named[rank] = error.peer().value_or(-1);
  }
  _exit(0);
}

// Returns the milliseconds until the last rank detected the death; negative if a rank named no rank
// or a wrong one.
double trial(const std::string& backend, int size, std::mt19937& random) {
  void* memory =
      mmap(nullptr, sizeof(Times), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Times& times = *new (memory) Times;
  const test::StoreProcess store;
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(fork());
    if (ranks.back() == 0) be_a_rank(times, backend, rank, size, store.port());
  }
  while (times.ready < size) usleep(1000);
  usleep(std::uniform_int_distribution<useconds_t>(0, 20'000)(random));  // not only at the start
  const int victim = std::uniform_int_distribution<int>(0, size - 1)(random);
  times.killed = now();
  kill(ranks[static_cast<std::size_t>(victim)], SIGKILL);
  for (const pid_t rank : ranks) waitpid(rank, nullptr, 0);
  std::int64_t last = 0;
  bool is_named = true;
  for (int rank = 0; rank < size; ++rank) {
    if (rank == victim) continue;
    last = std::max<std::int64_t>(last, times.known[rank]);
    is_named = is_named && times.named[rank] == victim;
  }
  const double took = static_cast<double>(last - times.killed) / 1e6;
  munmap(memory, sizeof(Times));
  return is_named ? took : -took;
}

}  // namespace
}  // namespace drun

int main(int argc, char** argv) {
  const std::string backend = argc > 1 ? argv[1] : "shm+gloo";
  const int size = argc > 2 ? std::atoi(argv[2]) : 4;
  const int trials = argc > 3 ? std::atoi(argv[3]) : 100;
  if (size < 2 || size > drun::kMostRanks || trials < 1) return 2;
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  std::vector<double> took;
  int misnamed = 0;
  for (int i = 0; i < trials; ++i) {
    const double each = drun::trial(backend, size, random);
    misnamed += each < 0 ? 1 : 0;
    took.push_back(std::abs(each));
  }
  std::sort(took.begin(), took.end());
  std::printf(
      "%s, %d ranks, %d trials: known to all after %.1f ms (median), %.1f ms (most); "
      "misnamed %d times (seed %u)\n",
      backend.c_str(), size, trials, took[took.size() / 2], took.back(), misnamed, seed);
  return misnamed == 0 ? 0 : 1;
}
