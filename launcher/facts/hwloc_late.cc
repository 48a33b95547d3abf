// Every function of hwloc that drun calls. If one is missing here, the linker reports no error but
// links hwloc as a dependency again; the test of drun's library dependencies detects it.

#include <hwloc.h>

#include "launcher/facts/topology.h"
#include "rendezvous/base/late_library.h"

#define DRUN_HWLOC_FUNCTIONS(X)          \
  X(hwloc_bitmap_alloc)                  \
  X(hwloc_bitmap_and)                    \
  X(hwloc_bitmap_dup)                    \
  X(hwloc_bitmap_free)                   \
  X(hwloc_bitmap_isset)                  \
  X(hwloc_bitmap_weight)                 \
  X(hwloc_get_cpubind)                   \
  X(hwloc_get_obj_by_depth)              \
  X(hwloc_get_type_depth)                \
  X(hwloc_obj_type_is_dcache)            \
  X(hwloc_topology_destroy)              \
  X(hwloc_topology_get_allowed_cpuset)   \
  X(hwloc_topology_get_allowed_nodeset)  \
  X(hwloc_topology_get_topology_cpuset)  \
  X(hwloc_topology_get_topology_nodeset) \
  X(hwloc_topology_init)                 \
  X(hwloc_topology_load)                 \
  X(hwloc_topology_set_flags)            \
  X(hwloc_topology_set_io_types_filter)  \
  X(hwloc_topology_set_synthetic)

DRUN_HWLOC_FUNCTIONS(DRUN_LATE_FUNCTION)

namespace drun {
static_assert(HWLOC_API_VERSION >> 16 == 2);

Result<void> load_hwloc() {
  static constexpr LateFunction kFunctions[] = {DRUN_HWLOC_FUNCTIONS(DRUN_LATE_ENTRY)};
  return load_late("libhwloc.so.15", kFunctions,
                   "places of workers need hwloc 2: install libhwloc15");
}

}  // namespace drun
