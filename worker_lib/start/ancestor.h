// edge. Which process this one descends from.
// Thread: any.
#pragma once

#include <optional>
#include <string_view>

namespace drun::worker {

// The process id of the nearest ancestor whose program has this name (the first 15 bytes of it:
// proc(5), comm). Absent: none has, or /proc does not say.
std::optional<int> ancestor_named(std::string_view program);

}  // namespace drun::worker
