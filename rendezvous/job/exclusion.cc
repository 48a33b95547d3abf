#include "rendezvous/job/exclusion.h"

#include <algorithm>

namespace drun::rendezvous {
namespace {

constexpr std::size_t kMostKept = 1024;

auto find(const Exclusions& exclusions, const AgentId& id) {
  return std::find_if(exclusions.nodes.begin(), exclusions.nodes.end(),
                      [&id](const auto& entry) { return entry.id == id; });
}

}  // namespace

int count_failure(Exclusions& exclusions, const AgentId& id) {
  if (exclusions.last_at_fault != id) exclusions.failures_in_a_row = 0;
  exclusions.last_at_fault = id;
  return ++exclusions.failures_in_a_row;
}

bool inherit_left_out(Exclusions& exclusions, const AgentId& id, LeftOut told) {
  if (is_left_out(exclusions, id)) return false;
  if (exclusions.nodes.size() >= kMostKept) exclusions.nodes.erase(exclusions.nodes.begin());
  exclusions.nodes.push_back({id, std::move(told)});
  return true;
}

void leave_out(Exclusions& exclusions, const AgentId& id, LeftOut told) {
  inherit_left_out(exclusions, id, std::move(told));
  exclusions.last_at_fault.reset();
  exclusions.failures_in_a_row = 0;
}

std::string left_out_reason(int failures, int most) {
  const std::string rounds =
      failures == 1 ? "a round" : std::to_string(failures) + " rounds in a row";
  return "its workers were the first to fail in " + rounds +
         " (--exclude-after=" + std::to_string(most) + ")";
}

bool is_left_out(const Exclusions& exclusions, const AgentId& id) {
  return find(exclusions, id) != exclusions.nodes.end();
}

std::optional<Error> exclusion_objection(const Exclusions& exclusions, const AgentId& id) {
  const auto found = find(exclusions, id);
  if (found == exclusions.nodes.end()) return std::nullopt;
  return Error{ErrorCode::Refused, "it was left out of this job: " + found->told.reason +
                                       "; look at that machine, and let it into the next job"};
}

std::vector<LeftOut> all_left_out(const Exclusions& exclusions) {
  std::vector<LeftOut> all;
  all.reserve(exclusions.nodes.size());
  for (const auto& entry : exclusions.nodes) all.push_back(entry.told);
  return all;
}

}  // namespace drun::rendezvous
