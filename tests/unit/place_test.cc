#include "launcher/placement/place.h"

#include <functional>
#include <set>

#include "launcher/facts/visible_gpus.h"
#include "tests/support/catch.h"

namespace drun {
namespace {

using Lists = std::vector<std::string>;

// A machine of equal parts. CPUs are numbered as on most x86 servers: first one CPU per core, then
// their siblings. Each memory node has `caches` last-level caches.
struct Shape {
  int packages = 1;
  int nodes = 1;  // per package
  int caches = 1;
  int cores = 1;  // per cache
  int threads = 1;
};

Topology machine(const Shape& shape) {
  const int nodes = shape.packages * shape.nodes;
  const int cores = nodes * shape.caches * shape.cores;
  Topology topology;
  for (int core = 0; core < cores; ++core) {
    for (int thread = 0; thread < shape.threads; ++thread) {
      const int cache = core / shape.cores;
      const int node = cache / shape.caches;
      topology.cpus.push_back({.cpu = thread * cores + core,
                               .core = core,
                               .cache = cache,
                               .package = node / shape.nodes,
                               .memory_node = node});
    }
  }
  for (int node = 0; node < nodes; ++node) topology.memory_nodes.push_back(node);
  return topology;
}

void allow_only(Topology& topology, const std::set<int>& cpus) {
  for (Cpu& cpu : topology.cpus) cpu.is_allowed = cpus.contains(cpu.cpu);
}

std::vector<Gpu> gpus_on(const std::vector<int>& nodes) {
  std::vector<Gpu> gpus;
  for (const int node : nodes) gpus.push_back({.memory_node = node});
  return gpus;
}

std::vector<WorkerPlacement> places_of(const Topology& topology, const PlacementRequest& wish) {
  const auto places = place_workers(topology, wish);
  INFO((places ? "" : places.error().message));
  REQUIRE(places);
  CHECK(places->size() == static_cast<std::size_t>(wish.workers));
  return *places;
}

Lists cpus_of(const Topology& topology, const PlacementRequest& wish) {
  Lists lists;
  for (const WorkerPlacement& place : places_of(topology, wish))
    lists.push_back(ranges_text(place.cpus));
  return lists;
}

std::string refusal_of(const Topology& topology, const PlacementRequest& wish) {
  const auto places = place_workers(topology, wish);
  REQUIRE_FALSE(places);
  CHECK(places.error().code == ErrorCode::Usage);
  CHECK_THAT(places.error().message, ContainsSubstring("; "));  // a remedy follows the semicolon
  return places.error().message;
}

const Topology kServer =
    machine({.packages = 2, .nodes = 2, .caches = 1, .cores = 4, .threads = 2});

}  // namespace

TEST_CASE("ranges are written in the kernel's format") {
  CHECK(ranges_text({}).empty());
  CHECK(ranges_text({3}) == "3");
  CHECK(ranges_text({0, 1, 2, 5, 7, 8}) == "0-2,5,7-8");
}

TEST_CASE("unbound workers have empty placements") {
  CHECK(places_of(kServer, {.workers = 2}) == std::vector<WorkerPlacement>(2));
}

TEST_CASE("core binding gives each worker a whole core and spreads workers evenly") {
  CHECK(cpus_of(kServer, {.bind_to = BindTo::Core, .workers = 4}) ==
        Lists{"0,16", "4,20", "8,24", "12,28"});
  CHECK(cpus_of(kServer, {.bind_to = BindTo::Core, .workers = 3}) ==
        Lists{"0,16", "5,21", "10,26"});
  CHECK(cpus_of(machine({.cores = 2}), {.bind_to = BindTo::Core, .workers = 2}) == Lists{"0", "1"});
  const auto all = places_of(kServer, {.bind_to = BindTo::Core, .workers = 16});
  std::set<int> used;
  for (const WorkerPlacement& place : all) {
    CHECK(place.cores == 1);
    used.insert(place.cpus.begin(), place.cpus.end());
  }
  CHECK(used.size() == 32);
}

TEST_CASE("on 96 cores no two workers share a core, for any number of workers") {
  const Topology big = machine({.packages = 2, .nodes = 4, .caches = 2, .cores = 6});
  for (int workers = 1; workers <= 96; ++workers) {
    CAPTURE(workers);
    std::set<int> used;
    for (const auto& place : places_of(big, {.bind_to = BindTo::Core, .workers = workers}))
      used.insert(place.cpus.begin(), place.cpus.end());
    CHECK(used.size() == static_cast<std::size_t>(workers));
  }
}

TEST_CASE("core binding rejects more workers than cores, and socket binding accepts them") {
  const Topology two = machine({.cores = 2, .threads = 2});
  CHECK_THAT(refusal_of(two, {.bind_to = BindTo::Core, .workers = 3}),
             ContainsSubstring("3 workers") && ContainsSubstring("2 cores"));
  CHECK(cpus_of(two, {.bind_to = BindTo::Socket, .workers = 3}) == Lists{"0-3", "0-3", "0-3"});
}

TEST_CASE("socket and NUMA binding give a worker the whole socket or NUMA node of its core") {
  CHECK(cpus_of(kServer, {.bind_to = BindTo::Socket, .workers = 2}) ==
        Lists{"0-7,16-23", "8-15,24-31"});
  CHECK(cpus_of(kServer, {.bind_to = BindTo::Numa, .workers = 4}) ==
        Lists{"0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"});
  CHECK(cpus_of(kServer, {.bind_to = BindTo::Numa, .workers = 8}) ==
        Lists{"0-3,16-19", "0-3,16-19", "4-7,20-23", "4-7,20-23", "8-11,24-27", "8-11,24-27",
              "12-15,28-31", "12-15,28-31"});
  CHECK(places_of(kServer, {.bind_to = BindTo::Socket, .workers = 1})[0].cores == 8);
}

TEST_CASE("only allowed CPUs are assigned, even if a cpuset splits nodes and cores") {
  Topology cut = kServer;
  allow_only(cut, {1, 2, 3, 18, 19, 20});  // of core 1 only one CPU, of core 4 only the sibling
  CHECK(cpus_of(cut, {.bind_to = BindTo::Core, .workers = 4}) == Lists{"1", "2,18", "3,19", "20"});
  CHECK(cpus_of(cut, {.bind_to = BindTo::Numa, .workers = 4}) ==
        Lists{"1-3,18-19", "1-3,18-19", "1-3,18-19", "20"});
  CHECK_THAT(refusal_of(cut, {.bind_to = BindTo::Core, .workers = 5}),
             ContainsSubstring("4 cores"));
  allow_only(cut, {});
  CHECK_THAT(refusal_of(cut, {.bind_to = BindTo::Numa}), ContainsSubstring("no CPU"));
}

TEST_CASE("memory comes from the NUMA nodes of a worker's CPUs") {
  const auto numa = places_of(kServer, {.bind_to = BindTo::Numa, .workers = 4});
  CHECK(numa[2].memory_nodes == std::vector<int>{2});
  CHECK(numa[2].memory == MemoryPolicy::Prefer);
  const auto socket =
      places_of(kServer, {.bind_to = BindTo::Socket, .memory = MemoryPolicy::Strict, .workers = 2});
  CHECK(socket[1].memory_nodes == std::vector<int>{2, 3});
  CHECK(socket[1].memory == MemoryPolicy::Strict);
  const auto none =
      places_of(kServer, {.bind_to = BindTo::Numa, .memory = MemoryPolicy::None, .workers = 1});
  CHECK(none[0].memory_nodes.empty());
  CHECK(none[0].memory == MemoryPolicy::None);
}

TEST_CASE("memory nodes outside the cpuset are not used, and strict binding to them is rejected") {
  Topology far = machine({.packages = 2, .cores = 2});
  far.memory_nodes = {0};
  const auto places = places_of(far, {.bind_to = BindTo::Numa, .workers = 2});
  CHECK(places[0].memory == MemoryPolicy::Prefer);
  CHECK(places[1].memory == MemoryPolicy::None);
  CHECK(places[1].memory_nodes.empty());
  CHECK_THAT(
      refusal_of(far, {.bind_to = BindTo::Numa, .memory = MemoryPolicy::Strict, .workers = 2}),
      ContainsSubstring("NUMA node 1"));
}

// The expected lists are those of torch.numa.binding for the same machine and GPUs.
TEST_CASE("GPU-based binding gives the same CPUs as torchrun") {
  const auto [bind_to, lists] = GENERATE(table<BindTo, Lists>({
      {BindTo::GpuNode, {"0-3,16-19", "8-11,24-27", "8-11,24-27"}},
      {BindTo::GpuSocket, {"0-7,16-23", "8-15,24-31", "8-15,24-31"}},
      {BindTo::GpuExclusive, {"0-3,16-19", "8-9,24-25", "10-11,26-27"}},
      {BindTo::GpuCoreComplex, {"0-3,16-19", "8-11,24-27", "8-11,24-27"}},
  }));
  CAPTURE(static_cast<int>(bind_to));
  CHECK(cpus_of(kServer, {.bind_to = bind_to, .workers = 3, .gpus = gpus_on({0, 2, 2})}) == lists);
}

TEST_CASE(
    "exclusive binding gives extra cores to the first GPUs and reserves cores for unused GPUs") {
  const Topology ten = machine({.cores = 10, .threads = 2});
  CHECK(cpus_of(ten,
                {.bind_to = BindTo::GpuExclusive, .workers = 2, .gpus = gpus_on({0, 0, 0, 0})}) ==
        Lists{"0-2,10-12", "3-5,13-15"});
  CHECK(cpus_of(ten,
                {.bind_to = BindTo::GpuExclusive, .workers = 4, .gpus = gpus_on({0, 0, 0, 0})}) ==
        Lists{"0-2,10-12", "3-5,13-15", "6-7,16-17", "8-9,18-19"});
  Topology cut = ten;
  allow_only(cut, {10, 1, 2});  // core 0 is counted by CPU 0, although that CPU is not allowed
  CHECK(cpus_of(cut, {.bind_to = BindTo::GpuExclusive, .workers = 3, .gpus = gpus_on({0, 0, 0})}) ==
        Lists{"10", "1", "2"});
  CHECK_THAT(refusal_of(cut, {.bind_to = BindTo::GpuExclusive, .gpus = gpus_on({0, 0, 0, 0})}),
             ContainsSubstring("3 cores for 4 GPUs"));
}

TEST_CASE("core complexes are assigned in turn, those with the most allowed CPUs first") {
  Topology chiplets = machine({.caches = 3, .cores = 2});
  const PlacementRequest wish{
      .bind_to = BindTo::GpuCoreComplex, .workers = 4, .gpus = gpus_on({0, 0, 0, 0})};
  CHECK(cpus_of(chiplets, wish) == Lists{"0-1", "2-3", "4-5", "0-1"});
  allow_only(chiplets, {1, 2, 3, 4, 5});
  CHECK(cpus_of(chiplets, wish) == Lists{"2-3", "4-5", "1", "2-3"});
}

TEST_CASE("a worker with several GPUs gets the CPUs of all of them") {
  PlacementRequest wish{
      .bind_to = BindTo::GpuNode, .workers = 2, .gpus_of = {2, 2}, .gpus = gpus_on({0, 1, 3, 3})};
  CHECK(cpus_of(kServer, wish) == Lists{"0-7,16-23", "12-15,28-31"});
  CHECK(places_of(kServer, wish)[0].memory_nodes == std::vector<int>{0, 1});
  wish.bind_to = BindTo::GpuExclusive;
  CHECK(cpus_of(kServer, wish) == Lists{"0-7,16-23", "12-15,28-31"});
  wish.workers = 3;
  wish.gpus_of = {2, 2, 2};
  CHECK_THAT(refusal_of(kServer, wish),
             ContainsSubstring("3 workers with 6 GPUs") && ContainsSubstring("4 are visible"));
}

TEST_CASE("GPUs that are missing, have no known NUMA node or have no allowed CPUs are rejected") {
  CHECK_THAT(refusal_of(kServer, {.bind_to = BindTo::GpuNode}), ContainsSubstring("no GPU"));
  const PlacementRequest nowhere{.bind_to = BindTo::GpuNode, .gpus = {Gpu{}}};
  CHECK_THAT(refusal_of(kServer, nowhere), ContainsSubstring("does not say"));
  CHECK(cpus_of(machine({.cores = 4}), nowhere) == Lists{"0-3"});  // there is only one NUMA node
  Topology cut = kServer;
  allow_only(cut, {0, 1});
  CHECK_THAT(refusal_of(cut, {.bind_to = BindTo::GpuSocket, .gpus = gpus_on({2})}),
             ContainsSubstring("NUMA node 2") && ContainsSubstring("none of its CPUs"));
}

TEST_CASE("the thread count is a worker's share of its cores, within the CPU quota") {
  const auto threads = [](const PlacementRequest& wish, int usable_cpus) {
    return fair_threads(kServer, places_of(kServer, wish), usable_cpus);
  };
  using Threads = std::vector<int>;
  CHECK(threads({.workers = 4}, 32) == Threads{4, 4, 4, 4});
  CHECK(threads({.workers = 3}, 32) == Threads{5, 5, 5});
  CHECK(threads({.workers = 1}, 32) == Threads{16});
  CHECK(threads({.workers = 40}, 32) == Threads(40, 1));
  CHECK(threads({.workers = 4}, 8) == Threads{2, 2, 2, 2});  // a quota of eight CPUs
  CHECK(threads({.bind_to = BindTo::Core, .workers = 2}, 32) == Threads{1, 1});
  CHECK(threads({.bind_to = BindTo::Numa, .workers = 2}, 32) == Threads{4, 4});
  CHECK(threads({.bind_to = BindTo::Numa, .workers = 8}, 32) == Threads(8, 2));
  CHECK(threads({.bind_to = BindTo::GpuExclusive, .workers = 3, .gpus = gpus_on({0, 2, 2})}, 32) ==
        Threads{4, 2, 2});
  CHECK(threads({.bind_to = BindTo::Socket, .workers = 3}, 32) == Threads{4, 4, 8});
}

TEST_CASE("GPUs are found by index, UUID and MIG name") {
  const std::vector<Gpu> gpus{{.pci_address = "a", .uuid = "GPU-12", .memory_node = 0},
                              {.pci_address = "b", .uuid = "GPU-34", .memory_node = 1}};
  CHECK(gpus_named({"1", "0"}, gpus) == std::vector<Gpu>{gpus[1], gpus[0]});
  CHECK(gpus_named({"GPU-3"}, gpus) == std::vector<Gpu>{gpus[1]});
  CHECK(gpus_named({"MIG-GPU-34/1/0"}, gpus) == std::vector<Gpu>{gpus[1]});
  CHECK(gpus_named({"MIG-77", "2", "x", ""}, gpus) == std::vector<Gpu>(4));
  const std::vector<Gpu> one{gpus[1]};
  CHECK(gpus_named({"MIG-77"}, one) == std::vector<Gpu>{{.memory_node = 1}});
  CHECK(gpus_named({"0"}, {}) == std::vector<Gpu>(1));
}

}  // namespace drun
