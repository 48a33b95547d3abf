#include "worker_lib/probe/link_findings.h"

#include <algorithm>
#include <map>
#include <set>

#include "worker_lib/probe/words.h"

namespace drun::probe {
namespace {

constexpr double kSlow = 0.5;

constexpr const char* kOpenPorts =
    "open all TCP ports between them, or choose another interface: GLOO_SOCKET_IFNAME";

const NodeFacts* facts_of(const Reports& reports, int node) {
  const auto index = static_cast<std::size_t>(node);
  return node >= 0 && index < reports.size() && reports[index] ? &reports[index]->facts : nullptr;
}

struct Tries {
  int all = 0;
  int failed = 0;
  std::string reason;
};

void note(Tries& tries, const Visit& visit) {
  ++tries.all;
  if (visit.has_arrived) return;
  ++tries.failed;
  tries.reason = visit.reason;
}

bool is_cut_off(const std::map<int, Tries>& tries, int node) {
  const auto found = tries.find(node);
  return found != tries.end() && found->second.failed == found->second.all &&
         found->second.failed > 0;
}

std::string place_of(const Reports& reports, int node) {
  const NodeFacts* const facts = facts_of(reports, node);
  if (facts == nullptr) return node_name(reports, node);
  return node_name(reports, node) + " at " + facts->address +
         (facts->network.empty() ? "" : ", " + facts->network);
}

// True also where it has not tried, or not told.
bool reaches(const Reports& reports, int from, int to) {
  const auto index = static_cast<std::size_t>(from);
  if (index >= reports.size() || !reports[index]) return true;
  const auto& visits = reports[index]->visits;
  return std::none_of(visits.begin(), visits.end(),
                      [to](const Visit& visit) { return visit.to == to && !visit.has_arrived; });
}

void add_unreached(std::vector<Finding>& findings, const Reports& reports) {
  std::map<int, Tries> to;
  std::map<int, Tries> from;
  for (const auto& report : reports) {
    if (!report) continue;
    for (const Visit& visit : report->visits) {
      note(to[visit.to], visit);
      note(from[report->facts.node], visit);
    }
  }
  for (const auto& [node, tries] : to) {
    if (tries.all < 2 || !is_cut_off(to, node)) continue;
    findings.push_back({.is_problem = true,
                        .nodes = {node},
                        .what = "nobody reaches " + place_of(reports, node) + ": " + tries.reason,
                        .remedy = kOpenPorts});
  }
  for (const auto& [node, tries] : from) {
    if (tries.all < 2 || !is_cut_off(from, node)) continue;
    findings.push_back(
        {.is_problem = true,
         .nodes = {node},
         .what = node_name(reports, node) + " reaches none of the others: " + tries.reason,
         .remedy = kOpenPorts});
  }
  for (const auto& report : reports) {
    if (!report) continue;
    const int node = report->facts.node;
    for (const Visit& visit : report->visits) {
      const bool is_told = (to[visit.to].all > 1 && is_cut_off(to, visit.to)) ||
                           (from[node].all > 1 && is_cut_off(from, node));
      if (visit.has_arrived || is_told) continue;
      const bool is_both_ways = !reaches(reports, visit.to, node);
      if (is_both_ways && node > visit.to) continue;  // in one line
      findings.push_back(
          {.is_problem = true,
           .nodes = {node, visit.to},
           .what = is_both_ways ? place_of(reports, node) + " and " + place_of(reports, visit.to) +
                                      " do not reach each other: " + visit.reason
                                : node_name(reports, node) + " does not reach " +
                                      place_of(reports, visit.to) + ": " + visit.reason,
           .remedy = kOpenPorts});
    }
  }
}

std::string mtu_text(const NodeFacts* facts) {
  return facts == nullptr || facts->mtu == 0 ? "?" : std::to_string(facts->mtu);
}

void add_large(std::vector<Finding>& findings, const Reports& reports) {
  for (const auto& report : reports) {
    if (!report) continue;
    for (const Visit& visit : report->visits) {
      if (!visit.has_arrived || visit.large_ones_too) continue;
      const int node = report->facts.node;
      findings.push_back(
          {.is_problem = true,
           .nodes = {node, visit.to},
           .what = "between " + node_name(reports, node) + " and " + node_name(reports, visit.to) +
                   " small messages arrive, large ones do not (MTU " + mtu_text(&report->facts) +
                   " and " + mtu_text(facts_of(reports, visit.to)) + ")",
           .remedy = "set an MTU that the whole way carries: ip link set DEVICE mtu N"});
    }
  }
}

bool is_loopback(const std::string& address) {
  return address == "::1" || address.starts_with("127.");
}

std::string first_label(const std::string& name) { return name.substr(0, name.find('.')); }

// What is wrong with it; empty: nothing.
std::string name_trouble(const NameLookup& lookup, const NodeFacts& of) {
  if (is_loopback(of.address)) return "";
  const auto& found = lookup.addresses;
  if (found.empty()) return "its name " + of.host + " is not known";
  if (std::find(found.begin(), found.end(), of.address) == found.end())
    return "its name " + of.host + " leads to " + found.front() + ", but it is at " + of.address;
  if (lookup.name_back.empty()) return "its address " + of.address + " leads to no name";
  if (first_label(lookup.name_back) != first_label(of.host))
    return "its address " + of.address + " leads to the name " + lookup.name_back;
  return "";
}

void add_names(std::vector<Finding>& findings, const Reports& reports) {
  std::map<std::pair<int, std::string>, std::vector<int>> troubles;
  std::vector<int> late;
  for (const auto& report : reports) {
    if (!report) continue;
    bool is_late = false;
    for (const NameLookup& lookup : report->names) {
      const NodeFacts* const of = facts_of(reports, lookup.of);
      is_late = is_late || !lookup.is_done;
      if (of == nullptr || !lookup.is_done) continue;
      const std::string trouble = name_trouble(lookup, *of);
      if (!trouble.empty()) troubles[{lookup.of, trouble}].push_back(report->facts.node);
    }
    if (is_late) late.push_back(report->facts.node);
  }
  for (const auto& [about, by] : troubles)
    findings.push_back({.nodes = {about.first},
                        .what = node_name(reports, about.first) + ": " + about.second + " (on " +
                                node_names(reports, by) + ")",
                        .remedy = "DNS or /etc/hosts there; programs that use names will fail"});
  if (late.empty()) return;
  findings.push_back(
      {.nodes = late,
       .what = "on " + node_names(reports, late) + " the name service does not answer within 5 s",
       .remedy = "look at /etc/resolv.conf there"});
}

// Nodes on one machine share its cores: how fast they are together says nothing of a network.
bool is_on_network(const Reports& reports, int node) {
  const NodeFacts* const facts = facts_of(reports, node);
  return facts != nullptr && !is_loopback(facts->address);
}

std::map<int, double> best_rates(const Reports& reports) {
  std::map<int, double> best;
  for (const auto& report : reports) {
    if (!report) continue;
    for (const PairRate& pair : report->pairs) {
      if (!pair.problem.empty() || !is_on_network(reports, pair.with)) continue;
      for (const int node : {report->facts.node, pair.with})
        best[node] = std::max(best[node], pair.gbytes_per_s);
    }
  }
  return best;
}

void add_failed_pairs(std::vector<Finding>& findings, const Reports& reports) {
  std::set<std::pair<int, int>> told;
  for (const auto& report : reports) {
    if (!report) continue;
    for (const PairRate& pair : report->pairs) {
      const auto [low, high] = std::minmax(report->facts.node, pair.with);
      if (pair.problem.empty() || !told.emplace(low, high).second) continue;
      findings.push_back({.is_problem = true,
                          .nodes = {low, high},
                          .what = node_name(reports, low) + " and " + node_name(reports, high) +
                                  " cannot work together: " + pair.problem,
                          .remedy = "look at the way between them"});
    }
  }
}

void add_slow(std::vector<Finding>& findings, const Reports& reports) {
  const double usual = usual_rate(reports);
  const std::map<int, double> best = best_rates(reports);
  if (best.size() < 3) return;  // nothing to compare with
  const auto is_slow = [&](int node) {
    const auto found = best.find(node);
    return found != best.end() && found->second < kSlow * usual;
  };
  for (const auto& [node, rate] : best) {
    if (!is_slow(node)) continue;
    findings.push_back({.is_problem = true,
                        .nodes = {node},
                        .what = node_name(reports, node) + " is slow: " + rate_text(rate) +
                                " with its best neighbour, " + rate_text(usual) + " between others",
                        .remedy = "look at its network card, cable, and what else runs there"});
  }
  std::set<std::pair<int, int>> told;
  for (const auto& report : reports) {
    if (!report) continue;
    for (const PairRate& pair : report->pairs) {
      const auto [low, high] = std::minmax(report->facts.node, pair.with);
      if (!pair.problem.empty() || pair.gbytes_per_s >= kSlow * usual || is_slow(low) ||
          is_slow(high) || !told.emplace(low, high).second)
        continue;
      findings.push_back({.is_problem = true,
                          .nodes = {low, high},
                          .what = "the way between " + node_name(reports, low) + " and " +
                                  node_name(reports, high) +
                                  " is slow: " + rate_text(pair.gbytes_per_s) + ", " +
                                  rate_text(usual) + " between others",
                          .remedy = "look at cables and switches between them"});
    }
  }
}

}  // namespace

double usual_rate(const Reports& reports) {
  std::vector<double> rates;
  for (const auto& [node, rate] : best_rates(reports)) rates.push_back(rate);
  if (rates.empty()) return 0;
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() / 2];
}

void add_link_findings(std::vector<Finding>& findings, const Reports& reports) {
  add_unreached(findings, reports);
  add_large(findings, reports);
  add_failed_pairs(findings, reports);
  add_slow(findings, reports);
  add_names(findings, reports);
}

}  // namespace drun::probe
