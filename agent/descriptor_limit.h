// edge. How many descriptors a process may have. 256 workers' pipes or a thousand members do not
// fit in the 1024 that most systems begin with; workers get what the user had, for programs that
// use select(). Thread: any.
#pragma once

#include <cstdint>
#include <optional>

namespace drun::agent {

// Raises this process's soft limit to its hard one. Gives what it was before; absent when nothing
// was changed.
std::optional<std::uint64_t> raise_descriptor_limit();

}  // namespace drun::agent
