#include "launcher/facts/topology.h"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>

namespace drun {
namespace {

struct Destroy {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Machine = std::unique_ptr<hwloc_topology, Destroy>;

struct Free {
  void operator()(hwloc_bitmap_s* bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, Free>;

Machine new_machine() {
  hwloc_topology_t topology = nullptr;
  return Machine(hwloc_topology_init(&topology) == 0 ? topology : nullptr);
}

// Skip I/O devices: on Debian, hwloc needs a plug-in for them that is seldom installed.
bool load(const Machine& machine) {
  hwloc_topology_set_io_types_filter(machine.get(), HWLOC_TYPE_FILTER_KEEP_NONE);
  return hwloc_topology_load(machine.get()) == 0;
}

int number_of(hwloc_obj_t object) { return static_cast<int>(object->logical_index); }

// The memory node with the fewest CPUs among those around this CPU, then the first: high-bandwidth
// and far memory have higher numbers than ordinary memory.
int nearest_node(const Machine& machine, hwloc_obj_t pu) {
  hwloc_obj_t nearest = nullptr;
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(machine.get(), HWLOC_OBJ_NUMANODE, node)) != nullptr) {
    if (!hwloc_bitmap_isset(node->cpuset, pu->os_index)) continue;
    if (nearest == nullptr ||
        hwloc_bitmap_weight(node->cpuset) < hwloc_bitmap_weight(nearest->cpuset))
      nearest = node;
  }
  return nearest == nullptr ? 0 : static_cast<int>(nearest->os_index);
}

// If the machine reports no package or cache, one is assumed per machine or memory node; if it
// reports no core, each CPU is one.
Cpu cpu_of(const Machine& machine, hwloc_obj_t pu) {
  Cpu cpu{.cpu = static_cast<int>(pu->os_index),
          .core = number_of(pu),
          .memory_node = nearest_node(machine, pu)};
  bool has_core = false;
  std::optional<int> cache;
  for (hwloc_obj_t around = pu->parent; around != nullptr; around = around->parent) {
    if (around->type == HWLOC_OBJ_CORE) {
      cpu.core = number_of(around);
      has_core = true;
    }
    if (around->type == HWLOC_OBJ_PACKAGE) cpu.package = number_of(around);
    // Combine level and number: on some machines only part of the cores have an L3.
    if (hwloc_obj_type_is_dcache(around->type))
      cache = static_cast<int>(around->attr->cache.depth) << 24 | number_of(around);
  }
  if (!has_core) cpu.core = number_of(pu);
  cpu.cache = cache.value_or(-1 - cpu.memory_node);
  return cpu;
}

Topology topology_of(const Machine& machine, hwloc_const_bitmap_t allowed_cpus,
                     hwloc_const_bitmap_t allowed_nodes) {
  Topology topology;
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(machine.get(), HWLOC_OBJ_PU, object)) != nullptr) {
    topology.cpus.push_back(cpu_of(machine, object));
    topology.cpus.back().is_allowed = hwloc_bitmap_isset(allowed_cpus, object->os_index) != 0;
  }
  while ((object = hwloc_get_next_obj_by_type(machine.get(), HWLOC_OBJ_NUMANODE, object)) !=
         nullptr) {
    if (hwloc_bitmap_isset(allowed_nodes, object->os_index))
      topology.memory_nodes.push_back(static_cast<int>(object->os_index));
  }
  std::sort(topology.memory_nodes.begin(), topology.memory_nodes.end());
  return topology;
}

}  // namespace

__attribute__((weak)) Result<void> load_hwloc() { return {}; }

Result<Topology> read_topology() {
  if (Result<void> loaded = load_hwloc(); !loaded) return loaded.error();
  const Machine machine = new_machine();
  if (machine == nullptr) return system_error("read the machine's topology", ENOMEM);
  // Include CPUs that this process may not use: torchrun counts cores by all their CPUs.
  hwloc_topology_set_flags(machine.get(), HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  if (!load(machine)) return system_error("read the machine's topology", errno);
  const Bitmap cpus(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(machine.get())));
  const Bitmap bound(hwloc_bitmap_alloc());
  if (!cpus || !bound) return system_error("read the machine's topology", ENOMEM);
  if (hwloc_get_cpubind(machine.get(), bound.get(), HWLOC_CPUBIND_THREAD) != 0)
    return system_error("read this process's affinity", errno);
  hwloc_bitmap_and(cpus.get(), cpus.get(), bound.get());
  return topology_of(machine, cpus.get(), hwloc_topology_get_allowed_nodeset(machine.get()));
}

Result<Topology> read_synthetic_topology(const std::string& description) {
  if (Result<void> loaded = load_hwloc(); !loaded) return loaded.error();
  const Machine machine = new_machine();
  if (machine == nullptr || hwloc_topology_set_synthetic(machine.get(), description.c_str()) != 0 ||
      !load(machine))
    return Error{ErrorCode::Usage, "hwloc does not take \"" + description + "\""};
  return topology_of(machine, hwloc_topology_get_topology_cpuset(machine.get()),
                     hwloc_topology_get_topology_nodeset(machine.get()));
}

}  // namespace drun
