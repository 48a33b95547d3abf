#include "launcher/placement/place.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "launcher/base/text.h"
#include "launcher/base/words.h"

namespace drun {
namespace {

using Cpus = std::vector<const Cpu*>;  // allowed CPUs, in the table's order

Error refusal(std::string reason) { return Error{ErrorCode::Usage, std::move(reason)}; }

Cpus allowed(const Topology& topology) {
  Cpus cpus;
  for (const Cpu& cpu : topology.cpus) {
    if (cpu.is_allowed) cpus.push_back(&cpu);
  }
  return cpus;
}

// The first allowed CPU of each core, in the table's order.
Cpus core_leaders(const Cpus& cpus) {
  Cpus leaders;
  std::set<int> seen;
  for (const Cpu* cpu : cpus) {
    if (seen.insert(cpu->core).second) leaders.push_back(cpu);
  }
  return leaders;
}

template <typename Predicate>
Cpus those(const Cpus& cpus, Predicate predicate) {
  Cpus chosen;
  std::copy_if(cpus.begin(), cpus.end(), std::back_inserter(chosen), predicate);
  return chosen;
}

Cpus on_node(const Cpus& cpus, int node) {
  return those(cpus, [node](const Cpu* cpu) { return cpu->memory_node == node; });
}

// The lowest CPU of each group, allowed or not: torchrun orders cores by it.
std::map<int, int> lowest_cpus(const Topology& topology, int Cpu::*group) {
  std::map<int, int> lowest;
  for (const Cpu& cpu : topology.cpus) {
    const auto [entry, is_new] = lowest.emplace(cpu.*group, cpu.cpu);
    if (!is_new) entry->second = std::min(entry->second, cpu.cpu);
  }
  return lowest;
}

// With GPUs: the union of the CPUs that torchrun would assign for each GPU of the worker.
class ByGpu {
 public:
  ByGpu(const Topology& topology, const PlacementRequest& wish)
      : topology_(topology), wish_(wish), cpus_(allowed(topology)) {}

  Result<Cpus> of_worker(int local_rank) const {
    const std::size_t first = gpus_before(local_rank);
    const std::size_t end = gpus_before(local_rank + 1);
    std::set<const Cpu*> chosen;
    for (std::size_t gpu = first; gpu < end; ++gpu) {
      Result<Cpus> cpus = of_gpu(gpu);
      if (!cpus) return cpus.error();
      chosen.insert(cpus->begin(), cpus->end());
    }
    return those(cpus_, [&chosen](const Cpu* cpu) { return chosen.contains(cpu); });
  }

  Result<void> check() const {
    const std::size_t needed = gpus_before(wish_.workers);
    if (wish_.gpus.empty())
      return refusal("no GPU is visible; look at CUDA_VISIBLE_DEVICES, or use --bind-to=numa");
    if (needed > wish_.gpus.size()) {
      return refusal(counted(wish_.workers, "worker") + " with " + counted(needed, "GPU") +
                     ", and " + std::to_string(wish_.gpus.size()) +
                     " are visible; start fewer, or use --bind-to=numa");
    }
    return {};
  }

 private:
  std::size_t gpus_before(int local_rank) const {
    if (wish_.gpus_of.empty()) return static_cast<std::size_t>(local_rank);
    const auto end = wish_.gpus_of.begin() + local_rank;
    return static_cast<std::size_t>(std::accumulate(wish_.gpus_of.begin(), end, std::int64_t{0}));
  }

  // As in torchrun: on a machine with one memory node, GPUs without a node belong to it.
  std::optional<int> node_of(std::size_t gpu) const {
    if (wish_.gpus[gpu].memory_node) return wish_.gpus[gpu].memory_node;
    std::set<int> nodes;
    for (const Cpu& cpu : topology_.cpus) nodes.insert(cpu.memory_node);
    return nodes.size() == 1 ? std::optional(*nodes.begin()) : std::nullopt;
  }

  // Position of this GPU among the visible GPUs of its node, and their number.
  struct Share {
    std::size_t index = 0;
    std::size_t count = 0;
  };
  Share share_of(std::size_t gpu, int node) const {
    Share share;
    for (std::size_t other = 0; other < wish_.gpus.size(); ++other) {
      if (node_of(other) != node) continue;
      if (other < gpu) ++share.index;
      ++share.count;
    }
    return share;
  }

  Result<Cpus> of_gpu(std::size_t gpu) const {
    const std::optional<int> node = node_of(gpu);
    const std::string name = "GPU " + std::to_string(gpu);
    if (!node) {
      return refusal("the system does not say to which NUMA node " + name +
                     " is attached; use --bind-to=numa");
    }
    const Cpus near = on_node(cpus_, *node);
    if (near.empty()) {
      return refusal(name + " is attached to NUMA node " + std::to_string(*node) +
                     ", and this process may use none of its CPUs; widen its cpuset, or use "
                     "--bind-to=numa");
    }
    switch (wish_.bind_to) {
      case BindTo::GpuSocket:
        return packages_of(near);
      case BindTo::GpuExclusive:
        return exclusive(near, share_of(gpu, *node), *node);
      case BindTo::GpuCoreComplex:
        return complex(near, share_of(gpu, *node));
      default:
        return near;
    }
  }

  // All memory nodes of the package, as in torchrun. The package is that of the node's lowest CPU.
  Cpus packages_of(const Cpus& near) const {
    const Cpu& lowest = **std::min_element(
        near.begin(), near.end(), [](const Cpu* a, const Cpu* b) { return a->cpu < b->cpu; });
    return those(cpus_, [&lowest](const Cpu* cpu) { return cpu->package == lowest.package; });
  }

  Result<Cpus> exclusive(const Cpus& near, Share share, int node) const {
    const std::map<int, int> lowest = lowest_cpus(topology_, &Cpu::core);
    Cpus cores = core_leaders(near);
    std::sort(cores.begin(), cores.end(), [&lowest](const Cpu* a, const Cpu* b) {
      return lowest.at(a->core) < lowest.at(b->core);
    });
    const std::size_t each = cores.size() / share.count;
    const std::size_t extra = cores.size() % share.count;  // the first ones get one more
    if (each == 0) {
      return refusal("NUMA node " + std::to_string(node) + " has " + counted(cores.size(), "core") +
                     " for " + counted(share.count, "GPU") + "; use --numa-binding=node");
    }
    const std::size_t begin = share.index * each + std::min(share.index, extra);
    const std::size_t end = begin + each + (share.index < extra ? 1 : 0);
    std::set<int> mine;
    for (std::size_t i = begin; i < end; ++i) mine.insert(cores[i]->core);
    return those(near, [&mine](const Cpu* cpu) { return mine.contains(cpu->core); });
  }

  // Orders caches by their number of allowed CPUs (most first), then by lowest CPU, and assigns
  // them to GPUs in turn.
  Cpus complex(const Cpus& near, Share share) const {
    const std::map<int, int> lowest = lowest_cpus(topology_, &Cpu::cache);
    std::map<int, Cpus> by_cache;
    for (const Cpu* cpu : near) by_cache[cpu->cache].push_back(cpu);
    std::vector<std::pair<int, Cpus>> caches(by_cache.begin(), by_cache.end());
    std::sort(caches.begin(), caches.end(), [&lowest](const auto& a, const auto& b) {
      if (a.second.size() != b.second.size()) return a.second.size() > b.second.size();
      return lowest.at(a.first) < lowest.at(b.first);
    });
    return caches[share.index % caches.size()].second;
  }

  const Topology& topology_;
  const PlacementRequest& wish_;
  Cpus cpus_;
};

Result<WorkerPlacement> placement(const Cpus& cpus, const Topology& topology, MemoryPolicy memory) {
  WorkerPlacement place;
  std::set<int> nodes;
  for (const Cpu* cpu : cpus) {
    place.cpus.push_back(cpu->cpu);
    nodes.insert(cpu->memory_node);
  }
  std::sort(place.cpus.begin(), place.cpus.end());
  place.cores = static_cast<int>(core_leaders(cpus).size());
  if (memory == MemoryPolicy::None) return place;
  std::set_intersection(nodes.begin(), nodes.end(), topology.memory_nodes.begin(),
                        topology.memory_nodes.end(), std::back_inserter(place.memory_nodes));
  if (!place.memory_nodes.empty()) {
    place.memory = memory;
  } else if (memory == MemoryPolicy::Strict) {
    return refusal("this process may not use the memory beside CPUs " + ranges_text(place.cpus) +
                   " (NUMA node " + ranges_text({nodes.begin(), nodes.end()}) +
                   "); widen its cpuset, or choose --bind-memory=prefer");
  }
  return place;
}

// `cpus_of` returns the CPUs of a local rank.
template <typename CpusOf>
Result<std::vector<WorkerPlacement>> place_all(const CpusOf& cpus_of, const Topology& topology,
                                               const PlacementRequest& wish) {
  std::vector<WorkerPlacement> places;
  for (int local_rank = 0; local_rank < wish.workers; ++local_rank) {
    const Result<Cpus> cpus = cpus_of(local_rank);
    if (!cpus) return cpus.error();
    if (cpus->empty()) {  // no GPU
      places.emplace_back();
      continue;
    }
    Result<WorkerPlacement> place = placement(*cpus, topology, wish.memory);
    if (!place) return place.error();
    places.push_back(*std::move(place));
  }
  return places;
}

// Without GPUs: of n workers, worker r gets the core at position r/n, or the part of the machine
// around it.
Result<std::vector<WorkerPlacement>> place_by_core(const Topology& topology,
                                                   const PlacementRequest& wish) {
  const Cpus cpus = allowed(topology);
  const Cpus cores = core_leaders(cpus);
  const auto workers = static_cast<std::size_t>(wish.workers);
  if (wish.bind_to == BindTo::Core && workers > cores.size()) {
    return refusal(counted(workers, "worker") + " with a core each, and this process may use " +
                   counted(cores.size(), "core") +
                   "; start fewer, or bind to numa, socket or none");
  }
  const auto cpus_of = [&](int local_rank) -> Result<Cpus> {
    const Cpu& at = *cores[static_cast<std::size_t>(local_rank) * cores.size() / workers];
    return those(cpus, [&](const Cpu* cpu) {
      if (wish.bind_to == BindTo::Core) return cpu->core == at.core;
      if (wish.bind_to == BindTo::Socket) return cpu->package == at.package;
      return cpu->memory_node == at.memory_node;
    });
  };
  return place_all(cpus_of, topology, wish);
}

}  // namespace

Result<std::vector<WorkerPlacement>> place_workers(const Topology& topology,
                                                   const PlacementRequest& wish) {
  if (wish.bind_to == BindTo::None)
    return std::vector<WorkerPlacement>(static_cast<std::size_t>(wish.workers));
  if (allowed(topology).empty())
    return refusal("the system reports no CPU that this process may use; leave it out");
  if (wish.bind_to == BindTo::Core || wish.bind_to == BindTo::Socket ||
      wish.bind_to == BindTo::Numa)
    return place_by_core(topology, wish);
  const ByGpu by_gpu(topology, wish);
  if (const Result<void> fits = by_gpu.check(); !fits) return fits.error();
  return place_all([&](int local_rank) { return by_gpu.of_worker(local_rank); }, topology, wish);
}

std::vector<int> fair_threads(const Topology& topology, const std::vector<WorkerPlacement>& places,
                              int usable_cpus) {
  const Cpus cpus = allowed(topology);
  const std::size_t all_cores = core_leaders(cpus).size();
  std::map<int, int> core_of;  // by CPU
  for (const Cpu* cpu : cpus) core_of[cpu->cpu] = cpu->core;
  const auto cores_of = [&core_of](const WorkerPlacement& place) {
    std::set<int> cores;
    for (const int cpu : place.cpus) cores.insert(core_of[cpu]);
    return cores;
  };
  std::map<int, int> workers_on;  // by core
  for (const WorkerPlacement& place : places) {
    for (const int core : cores_of(place)) ++workers_on[core];
  }
  const auto workers = static_cast<double>(std::max<std::size_t>(places.size(), 1));
  std::vector<int> threads;
  for (const WorkerPlacement& place : places) {
    double share = place.cpus.empty() ? static_cast<double>(all_cores) / workers : 0;
    for (const int core : cores_of(place)) share += 1.0 / workers_on[core];
    share = std::min(share, usable_cpus / workers);
    threads.push_back(std::max(1, static_cast<int>(share + 1e-6)));
  }
  return threads;
}

std::string placement_text(const WorkerPlacement& placement) {
  std::string text = "not bound";
  if (!placement.cpus.empty())
    text = "CPUs " + ranges_text(placement.cpus) + " (" + counted(placement.cores, "core") + ")";
  if (placement.memory != MemoryPolicy::None) {
    text += ", memory of NUMA node " + ranges_text(placement.memory_nodes) +
            (placement.memory == MemoryPolicy::Strict ? " alone" : " preferred");
  }
  if (!placement.devices.empty()) text += ", devices " + joined(placement.devices, ",");
  if (placement.omp_threads) text += ", " + counted(*placement.omp_threads, "thread");
  return text;
}

nlohmann::ordered_json placement_json(const std::vector<WorkerPlacement>& placements) {
  using Json = nlohmann::ordered_json;
  if (placements.empty()) return nullptr;
  Json list = Json::array();
  for (std::size_t i = 0; i < placements.size(); ++i) {
    const WorkerPlacement& place = placements[i];
    const bool is_bound = !place.cpus.empty();
    const bool has_nodes = !place.memory_nodes.empty();
    list.push_back(
        Json{{"local_rank", i},
             {"cpus", is_bound ? Json(ranges_text(place.cpus)) : Json(nullptr)},
             {"cores", is_bound ? Json(place.cores) : Json(nullptr)},
             {"memory", to_string(place.memory)},
             {"memory_nodes", has_nodes ? Json(ranges_text(place.memory_nodes)) : Json(nullptr)},
             {"omp_threads", place.omp_threads ? Json(*place.omp_threads) : Json(nullptr)},
             {"devices", place.devices.empty() ? Json(nullptr) : Json(place.devices)}});
  }
  return list;
}

}  // namespace drun
