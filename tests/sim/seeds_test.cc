// Tests the choice of seeds, and the check that a run depends on its seed alone.
#include "tests/sim/seeds.h"

#include "tests/sim/cluster.h"
#include "tests/sim/election_network.h"
#include "tests/sim/etcd_network.h"
#include "tests/sim/joint_cluster.h"
#include "tests/support/catch.h"

namespace drun::test {
namespace {

using Numbers = std::vector<std::uint32_t>;

// Sets or unsets the two variables. Restores them in the destructor.
class ChosenSeeds {
 public:
  ChosenSeeds(const char* seed, const char* runs) {
    set("DRUN_SIM_SEED", seed);
    set("DRUN_SIM_RUNS", runs);
  }
  ChosenSeeds(const ChosenSeeds&) = delete;
  ChosenSeeds& operator=(const ChosenSeeds&) = delete;
  ~ChosenSeeds() {
    for (const auto& [name, value] : before_) {
      if (value)
        setenv(name, value->c_str(), 1);
      else
        unsetenv(name);
    }
  }

 private:
  void set(const char* name, const char* value) {
    const char* const old = std::getenv(name);
    before_.emplace_back(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
    if (value == nullptr)
      unsetenv(name);
    else
      setenv(name, value, 1);
  }
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

// A broken simulation whose course depends on more than the seed.
struct Undetermined {
  Undetermined(int, std::uint32_t) {}
  std::string broken() const { return ""; }
  std::uint64_t trace_hash() const { return hash; }
  std::uint64_t hash = 0;
};

template <typename Simulation, typename Weather, typename Run>
std::uint64_t hash_of(const Weather& weather, std::uint32_t seed, const Run& run) {
  Simulation simulation(weather, seed);
  run(simulation);
  return simulation.trace_hash();
}

template <typename Simulation, typename Weather, typename Run>
void check_hashes(const Weather& weather, const Run& run) {
  const std::uint64_t first = hash_of<Simulation>(weather, 3, run);
  CHECK(first == hash_of<Simulation>(weather, 3, run));
  CHECK(first != hash_of<Simulation>(weather, 4, run));
}

}  // namespace

TEST_CASE("each run has the fixed seeds and a fifth as many fresh ones") {
  const ChosenSeeds none(nullptr, nullptr);
  const Numbers all = seeds(10);
  REQUIRE(all.size() == 12);
  for (std::uint32_t i = 0; i < 10; ++i) CHECK(all[i] == i + 1);
  CHECK(all[10] >= 1'000'000);
  CHECK(all[11] == all[10] + 1);
  CHECK(seeds(1).size() == 2);
}

TEST_CASE("one variable replays a seed, and a second one replays a range") {
  {
    const ChosenSeeds chosen("4711", nullptr);
    CHECK(seeds(1000) == Numbers{4711});
    CHECK(is_run_twice(4711));
  }
  const ChosenSeeds chosen("7", "3");
  CHECK(seeds(1000) == Numbers{7, 8, 9});
}

TEST_CASE("the hash of a simulation depends on its seed alone") {
  const auto run = [](auto& simulation) { simulation.run(); };
  const auto run_all = [](auto& simulation) { simulation.run_all(); };
  check_hashes<Cluster>(fixed_weather(3), run);
  check_hashes<Cluster>(Weather{}, run);
  check_hashes<JointCluster>(JointWeather{}, run);
  check_hashes<ElectionNetwork>(ElectionWeather{}, run_all);
  check_hashes<EtcdNetwork>(EtcdWeather{}, run_all);
}

TEST_CASE("a seed whose second run differs fails the test", "[!shouldfail]") {
  std::uint64_t runs = 0;
  run_seed<Undetermined>(0, 10, [&runs](Undetermined& one) { one.hash = ++runs; });
}

}  // namespace drun::test
