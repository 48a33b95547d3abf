#include "launcher/placement/placement_text.h"

#include <cstddef>
#include <nlohmann/json.hpp>

namespace drun {

std::string placement_text(const WorkerPlacement& placement) {
  std::string text = "not bound";
  if (!placement.cpus.empty()) {
    text = "CPUs " + ranges_text(placement.cpus) + " (" + std::to_string(placement.cores) +
           (placement.cores == 1 ? " core)" : " cores)");
  }
  if (placement.memory != MemoryPolicy::None) {
    text += ", memory of NUMA node " + ranges_text(placement.memory_nodes) +
            (placement.memory == MemoryPolicy::Strict ? " alone" : " preferred");
  }
  const char* separator = ", devices ";
  for (const std::string& device : placement.devices) {
    text += separator + device;
    separator = ",";
  }
  if (placement.omp_threads) {
    text += ", " + std::to_string(*placement.omp_threads) +
            (*placement.omp_threads == 1 ? " thread" : " threads");
  }
  return text;
}

nlohmann::ordered_json placement_json(const std::vector<WorkerPlacement>& placements) {
  using Json = nlohmann::ordered_json;
  if (placements.empty()) return nullptr;
  Json list = Json::array();
  for (std::size_t i = 0; i < placements.size(); ++i) {
    const WorkerPlacement& place = placements[i];
    const bool is_bound = !place.cpus.empty();
    const bool has_nodes = !place.memory_nodes.empty();
    list.push_back(
        Json{{"local_rank", i},
             {"cpus", is_bound ? Json(ranges_text(place.cpus)) : Json(nullptr)},
             {"cores", is_bound ? Json(place.cores) : Json(nullptr)},
             {"memory", to_string(place.memory)},
             {"memory_nodes", has_nodes ? Json(ranges_text(place.memory_nodes)) : Json(nullptr)},
             {"omp_threads", place.omp_threads ? Json(*place.omp_threads) : Json(nullptr)},
             {"devices", place.devices.empty() ? Json(nullptr) : Json(place.devices)}});
  }
  return list;
}

}  // namespace drun
