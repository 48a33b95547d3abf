// edge. Chooses the seeds that a simulation runs: fixed ones, which are the same in every run, and
// fresh ones, which are drawn in every run and printed. Also checks that a run depends on its seed
// alone.
//
//   DRUN_SIM_SEED=N                  replays only seed N, in every simulation
//   DRUN_SIM_SEED=N DRUN_SIM_RUNS=K  runs K seeds starting at N
//   DRUN_SIM_TRACE=1                 prints the events on stderr
//   DRUN_SIM_HASHES=1                prints the hash of each run, to compare two builds
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/machine.h"

namespace drun::test {

// Under sanitizers a simulation runs one in ten of its seeds. A run takes about forty times as
// long, and sanitizers do not look for rare orders of events.
inline constexpr int kRunShare = kSlowdown > 1 ? 10 : 1;

// An FNV-1a hash of a run: the time of each event, the bytes of each message, and the lines of the
// trace.
class TraceHash {
 public:
  void add(std::uint64_t number) {
    for (int i = 0; i < 8; ++i) add_byte(static_cast<unsigned char>(number >> (8 * i)));
  }
  void add(std::string_view bytes) {
    for (const char byte : bytes) add_byte(static_cast<unsigned char>(byte));
  }
  std::uint64_t value() const { return value_; }

 private:
  void add_byte(unsigned char byte) { value_ = (value_ ^ byte) * 0x100000001b3U; }
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

// Whether the user chose the seeds. Expectations about all runs together may not hold then.
inline bool seeds_are_chosen() {
  return std::getenv("DRUN_SIM_SEED") != nullptr || std::getenv("DRUN_SIM_RUNS") != nullptr;
}

// Returns 1 to `fixed` and a fifth as many fresh seeds, at least one, or the seeds that the user
// chose. Fresh seeds are above a million and consecutive, so that one range replays them.
inline std::vector<std::uint32_t> seeds(int fixed) {
  const auto number_of = [](const char* variable, std::uint32_t otherwise) {
    const char* const text = std::getenv(variable);
    return text == nullptr ? otherwise
                           : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
  };
  std::vector<std::uint32_t> all;
  const auto append = [&all](std::uint32_t first, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) all.push_back(first + i);
  };
  if (seeds_are_chosen()) {
    append(number_of("DRUN_SIM_SEED", 1), number_of("DRUN_SIM_RUNS", 1));
    return all;
  }
  const auto fixed_count = static_cast<std::uint32_t>(std::max(fixed, 1));
  const std::uint32_t fresh_count = std::max(fixed_count / 5, 1U);
  static const std::uint32_t first_fresh = 1'000'000 + std::random_device()() % 4'000'000'000U;
  append(1, fixed_count);
  append(first_fresh, fresh_count);
  std::printf("seeds 1 to %u, fresh seeds: DRUN_SIM_SEED=%u DRUN_SIM_RUNS=%u\n", fixed_count,
              first_fresh, fresh_count);
  std::fflush(stdout);
  return all;
}

inline std::string replay(std::uint32_t seed) {
  return "replay with DRUN_SIM_SEED=" + std::to_string(seed);
}

// True for one seed in ten, by its last digit, and for each seed that the user chose.
inline bool is_run_twice(std::uint32_t seed) { return seed % 10 == 0 || seeds_are_chosen(); }

inline void print_hash(std::uint32_t seed, std::uint64_t hash) {
  if (std::getenv("DRUN_SIM_HASHES") == nullptr) return;
  std::printf("seed %u: %016llx\n", seed, static_cast<unsigned long long>(hash));
}

// Runs the simulation of a seed with `run`, which also checks the final state, and fails the test
// at the first violation. Some seeds run twice, and both runs must be the same.
template <typename Simulation, typename Weather, typename Run>
std::unique_ptr<Simulation> run_seed(const Weather& weather, std::uint32_t seed, const Run& run) {
  INFO(replay(seed));
  auto simulation = std::make_unique<Simulation>(weather, seed);
  run(*simulation);
  REQUIRE(simulation->broken() == "");
  print_hash(seed, simulation->trace_hash());
  if (is_run_twice(seed)) {
    Simulation again(weather, seed);
    run(again);
    INFO("the second run of the same seed took another course");
    REQUIRE(again.trace_hash() == simulation->trace_hash());
  }
  return simulation;
}

}  // namespace drun::test
