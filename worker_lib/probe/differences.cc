#include "worker_lib/probe/differences.h"

#include <algorithm>
#include <map>

namespace drun::probe {
namespace {

// The value that most nodes have; of equally many the largest number, or the last text.
const NodeFacts* usual(const std::vector<const NodeFacts*>& all, const Property& property) {
  std::map<std::string, int> counts;
  for (const NodeFacts* facts : all) ++counts[property.text(*facts)];
  const NodeFacts* best = nullptr;
  for (const NodeFacts* facts : all) {
    if (best == nullptr) {
      best = facts;
      continue;
    }
    const int count = counts[property.text(*facts)];
    const int best_count = counts[property.text(*best)];
    const bool is_larger = property.number ? property.number(*facts) > property.number(*best)
                                           : property.text(*facts) > property.text(*best);
    if (count > best_count || (count == best_count && is_larger)) best = facts;
  }
  return best;
}

bool is_as_good(const NodeFacts& facts, const NodeFacts& other, const Property& property) {
  if (property.text(facts) == property.text(other)) return true;
  if (!property.number) return false;
  const double own = property.number(facts);
  const double usual = property.number(other);
  if (own > usual) return property.is_less_worse || usual >= own * property.tolerance;
  return property.tolerance < 1.0 && own >= usual * property.tolerance;
}

}  // namespace

std::vector<Finding> differences(const Reports& reports, const Property& property) {
  std::vector<const NodeFacts*> all;
  for (const auto& report : reports) {
    if (report && !property.text(report->facts).empty()) all.push_back(&report->facts);
  }
  if (all.size() < 2) return {};
  const NodeFacts* const most = usual(all, property);
  std::map<std::string, std::vector<int>> others;
  std::vector<int> usual_nodes;
  for (const NodeFacts* facts : all) {
    if (is_as_good(*facts, *most, property))
      usual_nodes.push_back(facts->node);
    else
      others[property.text(*facts)].push_back(facts->node);
  }
  std::vector<Finding> findings;
  for (const auto& [value, nodes] : others) {
    const std::string rest =
        usual_nodes.size() == 1 ? node_name(reports, usual_nodes.front()) : "the others";
    findings.push_back({.is_problem = property.is_problem,
                        .nodes = nodes,
                        .what = node_names(reports, nodes) +
                                (nodes.size() == 1 ? " has " : " have ") + property.name + " " +
                                value + ", " + rest + " " + property.text(*most),
                        .remedy = property.remedy});
  }
  return findings;
}

}  // namespace drun::probe
