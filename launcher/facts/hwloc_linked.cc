#include "launcher/facts/hwloc_library.h"

namespace drun {

Result<void> load_hwloc() { return {}; }

}  // namespace drun
