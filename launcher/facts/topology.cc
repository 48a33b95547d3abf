#include "launcher/facts/topology.h"

#include <algorithm>
#include <cstddef>

namespace drun {

std::vector<Gpu> gpus_named(const std::vector<std::string>& names, const std::vector<Gpu>& gpus) {
  const bool is_one_node =
      !gpus.empty() && std::all_of(gpus.begin(), gpus.end(), [&](const Gpu& g) {
        return g.memory_node == gpus.front().memory_node;
      });
  const Gpu unknown{.memory_node = is_one_node ? gpus.front().memory_node : std::nullopt};
  std::vector<Gpu> named;
  for (const std::string& name : names) {
    const bool is_number =
        !name.empty() && name.size() < 6 && name.find_first_not_of("0123456789") == name.npos;
    const std::string uuid =
        name.starts_with("MIG-GPU-") ? name.substr(4, name.find('/') - 4) : name;
    // `gpus` may also contain MIG instances, with their UUIDs, after the GPUs.
    const bool is_uuid = uuid.starts_with("GPU-") || uuid.starts_with("MIG-");
    const Gpu* found = nullptr;
    for (std::size_t i = 0; i < gpus.size() && found == nullptr; ++i) {
      const bool is_it =
          is_number ? i == std::stoul(name) : is_uuid && gpus[i].uuid.starts_with(uuid);
      if (is_it) found = &gpus[i];
    }
    named.push_back(found == nullptr ? unknown : *found);
  }
  return named;
}

}  // namespace drun
