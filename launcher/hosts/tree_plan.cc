#include "launcher/hosts/tree_plan.h"

#include <algorithm>

#include "launcher/hosts/pool.h"

namespace drun::hosts {
namespace {

// The least that squared is enough.
std::size_t root_of(std::size_t hosts) {
  std::size_t root = 1;
  while (root * root < hosts) ++root;
  return root;
}

}  // namespace

std::vector<std::vector<std::size_t>> branches_of(std::size_t hosts, std::optional<int> wished) {
  if (!wished && hosts <= kMostDirectHosts) return {};
  const std::size_t count = wished ? static_cast<std::size_t>(*wished) : root_of(hosts);
  if (count >= hosts) return {};
  std::vector<std::vector<std::size_t>> branches(count);
  for (std::size_t host = 0; host < hosts; ++host) branches[host * count / hosts].push_back(host);
  return branches;
}

std::string branches_text(const HostPlan& plan) {
  std::string text = std::to_string(plan.branches.size()) + " branches: ";
  for (std::size_t i = 0; i < plan.branches.size(); ++i) {
    if (i == kMostShownHosts) return text + ", ...";
    const auto& branch = plan.branches[i];
    text += (i == 0 ? "" : ", ") + plan.nodes[branch.front()].name + " (" +
            std::to_string(branch.size() - 1) + " behind it)";
  }
  return text;
}

}  // namespace drun::hosts
