// edge. Makes hwloc's functions available.
#pragma once

#include "rendezvous/base/result.h"

namespace drun {

// hwloc_linked.cc implements it for a linked hwloc and does nothing; hwloc_late.cc loads the
// library. Call it before any function of hwloc, from one thread at a time. Errors: System, if the
// library cannot be loaded.
Result<void> load_hwloc();

}  // namespace drun
