#include "agent/nccl_ras/ras_report.h"

#include <algorithm>

namespace drun::agent::ras {

std::optional<std::size_t> kind_of(Report& report, const std::string& name) {
  const auto found = std::find(report.kinds.begin(), report.kinds.end(), name);
  if (found != report.kinds.end())
    return static_cast<std::size_t>(std::distance(report.kinds.begin(), found));
  if (report.kinds.size() >= kMostKinds) return std::nullopt;
  report.kinds.push_back(name);
  return report.kinds.size() - 1;
}

void add_lost(Report& report, const Lost& lost) {
  const auto found =
      std::find_if(report.lost.begin(), report.lost.end(),
                   [&lost](const Lost& each) { return each.process == lost.process; });
  if (found != report.lost.end())
    found->is_dead = found->is_dead || lost.is_dead;
  else if (report.lost.size() < kMostLost)
    report.lost.push_back(lost);
}

}  // namespace drun::agent::ras
