#include "agent/ras/place.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace drun::agent::ras {
namespace {

const std::string* value_of(const std::vector<EnvironmentEntry>& entries, std::string_view name) {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [name](const auto& entry) { return entry.first == name; });
  return found == entries.end() ? nullptr : &found->second;
}

const std::string* value_of(const WorkerSpec& spec, std::string_view name) {
  for (const ProgramSpec& program : spec.programs)
    if (const std::string* value = value_of(program.environment, name)) return value;
  return value_of(spec.environment, name);
}

}  // namespace

Wish wish_of(const WorkerSpec& spec) {
  Wish wish;
  const std::string* enabled = value_of(spec, kEnableVariable);
  wish.is_off = enabled != nullptr && *enabled == "0";
  const std::string* address = value_of(spec, kAddressVariable);
  wish.names_place = address != nullptr;
  if (address == nullptr) return wish;
  const Result<Endpoint> place = parse_endpoint(*address, 0);
  if (place && place->port != 0) wish.place = *place;
  return wish;
}

bool gives_place(const AgentSpec& spec) {
  const Wish wish = wish_of(spec.worker);
  return spec.hang_timeout.count() > 0 && !wish.is_off && !wish.names_place;
}

}  // namespace drun::agent::ras
