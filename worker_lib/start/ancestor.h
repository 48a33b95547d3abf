// edge. Finds an ancestor of this process. Thread: any.
#pragma once

#include <optional>
#include <string_view>

namespace drun::worker {

// The process id of the nearest ancestor whose program has this name (its first 15 bytes: proc(5),
// comm). Absent if there is none, or /proc cannot be read.
std::optional<int> ancestor_named(std::string_view program);

}  // namespace drun::worker
