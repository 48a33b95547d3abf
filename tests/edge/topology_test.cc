#include "launcher/facts/topology.h"

#include <sched.h>

#include <algorithm>
#include <set>

#include "launcher/placement/place.h"
#include "tests/support/catch.h"

namespace drun {
namespace {

Topology synthetic(const std::string& description) {
  const Result<Topology> topology = read_synthetic_topology(description);
  INFO((topology ? "" : topology.error().message));
  REQUIRE(topology);
  return *topology;
}

std::set<int> all_of(const Topology& topology, int Cpu::*field) {
  std::set<int> values;
  for (const Cpu& cpu : topology.cpus) values.insert(cpu.*field);
  return values;
}

std::vector<std::string> cpus_of(const Topology& topology, const PlacementRequest& wish) {
  const auto places = place_workers(topology, wish);
  REQUIRE(places);
  std::vector<std::string> lists;
  for (const WorkerPlacement& place : *places) lists.push_back(ranges_text(place.cpus));
  return lists;
}

}  // namespace

TEST_CASE("hwloc's description of a machine becomes a table of CPUs") {
  const Topology server = synthetic("pack:2 numa:2 l3:2 core:4 pu:2");
  CHECK(server.cpus.size() == 64);
  CHECK(all_of(server, &Cpu::package).size() == 2);
  CHECK(all_of(server, &Cpu::memory_node) == std::set<int>{0, 1, 2, 3});
  CHECK(all_of(server, &Cpu::cache).size() == 8);
  CHECK(all_of(server, &Cpu::core).size() == 32);
  CHECK(all_of(server, &Cpu::cpu).size() == 64);
  CHECK(server.memory_nodes == std::vector<int>{0, 1, 2, 3});
  CHECK(std::all_of(server.cpus.begin(), server.cpus.end(),
                    [](const Cpu& cpu) { return cpu.is_allowed; }));
}

TEST_CASE("machines without an L3 cache or with little information are read") {
  CHECK(all_of(synthetic("pack:1 l2:4 core:2 pu:1"), &Cpu::cache).size() == 4);
  const Topology plain = synthetic("pu:4");
  CHECK(all_of(plain, &Cpu::core).size() == 4);
  CHECK(all_of(plain, &Cpu::package).size() == 1);
  CHECK(all_of(plain, &Cpu::cache).size() == 1);
  CHECK(all_of(plain, &Cpu::memory_node) == std::set<int>{0});
  CHECK_FALSE(read_synthetic_topology("no such machine"));
}

TEST_CASE("if several memory nodes are local to a CPU, the first one counts") {
  const Topology two_kinds = synthetic("pack:2 [numa] [numa] core:2 pu:1");
  CHECK(two_kinds.memory_nodes.size() == 4);
  CHECK(all_of(two_kinds, &Cpu::memory_node).size() == 2);
}

TEST_CASE("workers are placed on machines that hwloc describes") {
  const Topology server = synthetic("pack:2 numa:1 l3:2 core:4 pu:2");
  CHECK(cpus_of(server, {.bind_to = BindTo::Core, .workers = 4}) ==
        std::vector<std::string>{"0-1", "8-9", "16-17", "24-25"});
  CHECK(cpus_of(server, {.bind_to = BindTo::Socket, .workers = 2}) ==
        std::vector<std::string>{"0-15", "16-31"});
  const std::vector<Gpu> gpus{{.memory_node = 1}, {.memory_node = 1}, {.memory_node = 0}};
  CHECK(cpus_of(server, {.bind_to = BindTo::GpuCoreComplex, .workers = 3, .gpus = gpus}) ==
        std::vector<std::string>{"16-23", "24-31", "0-7"});
  CHECK(cpus_of(server, {.bind_to = BindTo::GpuExclusive, .workers = 3, .gpus = gpus}) ==
        std::vector<std::string>{"16-23", "24-31", "0-15"});
}

TEST_CASE("256 workers get 256 different cores") {
  const auto lists = cpus_of(synthetic("pack:4 numa:2 l3:4 core:8 pu:2"),
                             {.bind_to = BindTo::Core, .workers = 256});
  CHECK(std::set<std::string>(lists.begin(), lists.end()).size() == 256);
}

TEST_CASE("on this machine the CPUs that this process may use are allowed, and no others") {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
  const auto check = [](const cpu_set_t& set) {
    const Result<Topology> topology = read_topology();
    REQUIRE(topology);
    CHECK_FALSE(topology->memory_nodes.empty());
    for (const Cpu& cpu : topology->cpus) {
      CAPTURE(cpu.cpu);
      CHECK(cpu.is_allowed == (CPU_ISSET(static_cast<std::size_t>(cpu.cpu), &set) != 0));
    }
    CHECK(std::count_if(topology->cpus.begin(), topology->cpus.end(),
                        [](const Cpu& cpu) { return cpu.is_allowed; }) == CPU_COUNT(&set));
  };
  check(before);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  REQUIRE(sched_setaffinity(0, sizeof(one), &one) == 0);
  check(one);
  REQUIRE(sched_setaffinity(0, sizeof(before), &before) == 0);
}

}  // namespace drun
