// core. The branches of a job over ssh: the starter logs in to the first host of each, from where
// the others of the branch are logged in to (--ssh-tree).
// Thread:  any.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "launcher/hosts/host_plan.h"

namespace drun::hosts {

// More hosts than these are a tree unless told otherwise.
inline constexpr std::size_t kMostDirectHosts = 64;

// `hosts` in order, in so many parts as wished, as even as can be; without a wish about as many
// branches as each has hosts. Empty: no tree.
std::vector<std::vector<std::size_t>> branches_of(std::size_t hosts, std::optional<int> wished);

// "8 branches: node01 (7 behind it), ...".
std::string branches_text(const HostPlan& plan);

}  // namespace drun::hosts
