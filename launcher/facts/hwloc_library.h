// edge. hwloc is there from here on.
// Thread:  one at a time; before the first of its functions is called.
// Errors:  System, when it cannot be loaded; never where it is linked.
#pragma once

#include "rendezvous/base/result.h"

namespace drun {

// Two of these are there: hwloc_linked.cc has nothing to do, hwloc_late.cc loads it.
Result<void> load_hwloc();

}  // namespace drun
