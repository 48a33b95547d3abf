#include "worker_lib/tools/probe/findings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <set>
#include <utility>

namespace drun::probe {
namespace {

// Three digits that mean something, no more.
std::string short_number(double value) {
  std::array<char, 32> text{};
  const double size = std::abs(value);
  const int decimals = size >= 100 || size == 0 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  std::string number = text.data();
  if (number.find('.') == number.npos) return number;
  number.erase(number.find_last_not_of('0') + 1);
  if (number.ends_with('.')) number.pop_back();
  return number;
}

}  // namespace

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return short_number(value) + " " + kUnits[unit];
}

std::string limit_text(const std::optional<std::uint64_t>& limit) {
  return limit ? std::to_string(*limit) : "unlimited";
}

std::string rate_text(double gbytes_per_s) { return short_number(gbytes_per_s) + " GB/s"; }

std::string time_text(double seconds) {
  const double size = std::abs(seconds);
  if (size < 1e-3) return short_number(std::round(seconds * 1e6)) + " us";
  if (size < 1) return short_number(seconds * 1e3) + " ms";
  return short_number(seconds) + " s";
}

std::string clock_text(double ahead_s, double bound_s) {
  if (std::abs(ahead_s) <= bound_s) return "within " + time_text(bound_s);
  return (ahead_s > 0 ? "+" : "") + time_text(ahead_s) + " +-" + time_text(bound_s);
}

std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

std::string node_name(const Reports& reports, int node) {
  const auto index = static_cast<std::size_t>(node);
  const std::string name = "node " + std::to_string(node);
  const bool is_known = index < reports.size() && reports[index];
  if (!is_known || reports[index]->facts.host.empty()) return name;
  return name + " (" + reports[index]->facts.host + ")";
}

std::string node_names(const Reports& reports, const std::vector<int>& nodes) {
  if (nodes.size() == 1) return node_name(reports, nodes.front());
  if (nodes.size() == reports.size()) return "all nodes";
  std::string text = "nodes";
  for (std::size_t i = 0; i < nodes.size();) {
    std::size_t last = i;
    while (last + 1 < nodes.size() && nodes[last + 1] == nodes[last] + 1) ++last;
    text += (i == 0 ? " " : ", ") + std::to_string(nodes[i]);
    if (last > i) text += (last == i + 1 ? ", " : "-") + std::to_string(nodes[last]);
    i = last + 1;
  }
  return text;
}

namespace {

// --- Nodes that differ from the others in one property

struct Property {
  std::string name{};  // "nofile", "MTU"
  bool is_problem = false;
  // Only a node that has less than most is reported.
  bool is_less_worse = false;
  // For a number: the fraction of the others' value that is still acceptable.
  double tolerance = 1.0;
  std::string remedy{};
  std::function<std::string(const NodeFacts&)> text{};  // empty: unknown on that node
  std::function<double(const NodeFacts&)> number{};     // absent: texts are compared
};

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

// One finding per value that differs from the most frequent one.
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

// --- Problems between nodes: unreachable nodes, names, slow pairs

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

// A node is reported once if all attempts to reach it failed, or all attempts from it.
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
                        .what = "no node reaches " + place_of(reports, node) + ": " + tries.reason,
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

// The problem with it; empty: none.
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

// The rate of the median node's best pair; 0 without pairs.
double usual_rate(const Reports& reports) {
  std::vector<double> rates;
  for (const auto& [node, rate] : best_rates(reports)) rates.push_back(rate);
  if (rates.empty()) return 0;
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() / 2];
}

// A node is slow if its best pair is slower than half of the median node's best pair. Otherwise, a
// pair is slow if it is slower than half of that.
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
                                " with its best neighbor, " + rate_text(usual) + " between others",
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

void add_link_findings(std::vector<Finding>& findings, const Reports& reports) {
  add_unreached(findings, reports);
  add_large(findings, reports);
  add_failed_pairs(findings, reports);
  add_slow(findings, reports);
  add_names(findings, reports);
}

// --- Problems of single nodes

constexpr std::uint64_t kMib = std::uint64_t{1} << 20;
constexpr std::uint64_t kFewDescriptors = 1024;
constexpr std::uint64_t kLittleShm = 64 * kMib;
constexpr double kMuchClock = 1.0;

constexpr const char* kRaiseLimit = "raise it: ulimit, /etc/security/limits.conf, the service";

template <typename Judge>
void each_node(const Reports& reports, Judge judge) {
  for (const auto& report : reports) {
    if (report) judge(report->facts);
  }
}

double limit(const std::optional<std::uint64_t>& value) {
  return value ? static_cast<double>(*value) : INFINITY;
}

std::vector<Property> limits() {
  return {
      {.name = "nofile",
       .is_problem = true,
       .is_less_worse = true,
       .remedy = kRaiseLimit,
       .text = [](const NodeFacts& facts) { return limit_text(facts.nofile); },
       .number = [](const NodeFacts& facts) { return limit(facts.nofile); }},
      {.name = "nproc",
       .is_less_worse = true,
       .tolerance = 0.5,
       .remedy = kRaiseLimit,
       .text = [](const NodeFacts& facts) { return limit_text(facts.nproc); },
       .number = [](const NodeFacts& facts) { return limit(facts.nproc); }},
      {.name = "memlock",
       .is_less_worse = true,
       .tolerance = 0.5,
       .remedy = kRaiseLimit,
       .text =
           [](const NodeFacts& facts) {
             return facts.memlock_bytes ? bytes_text(*facts.memlock_bytes) : "unlimited";
           },
       .number = [](const NodeFacts& facts) { return limit(facts.memlock_bytes); }},
  };
}

std::vector<Property> hardware() {
  return {
      {.name = "GPUs:",
       .is_problem = true,
       .is_less_worse = true,
       .remedy = "look at nvidia-smi and CUDA_VISIBLE_DEVICES there",
       .text = [](const NodeFacts& facts) { return std::to_string(facts.gpus); },
       .number = [](const NodeFacts& facts) { return facts.gpus; }},
      {.name = "cores:",
       .is_less_worse = true,
       .tolerance = 0.9,
       .remedy = "look at its cgroup, taskset, and the cores it has",
       .text = [](const NodeFacts& facts) { return std::to_string(facts.cores); },
       .number = [](const NodeFacts& facts) { return facts.cores; }},
      {.name = "memory:",
       .is_less_worse = true,
       .tolerance = 0.9,
       .remedy = "is a memory module missing?",
       .text = [](const NodeFacts& facts) { return bytes_text(facts.memory_bytes); },
       .number = [](const NodeFacts& facts) { return static_cast<double>(facts.memory_bytes); }},
      {.name = "/dev/shm of",
       .is_less_worse = true,
       .tolerance = 0.5,
       .remedy = "mount -o remount,size=... /dev/shm, or the container's --shm-size",
       .text = [](const NodeFacts& facts) { return bytes_text(facts.shm_bytes); },
       .number = [](const NodeFacts& facts) { return static_cast<double>(facts.shm_bytes); }},
      {.name = "MTU",
       .is_less_worse = false,
       .remedy = "set the same everywhere, switches too: ip link set DEVICE mtu N",
       .text =
           [](const NodeFacts& facts) {
             return facts.mtu == 0 ? std::string() : std::to_string(facts.mtu);
           },
       .number = [](const NodeFacts& facts) { return facts.mtu; }},
  };
}

std::vector<Property> software(bool has_gpus) {
  std::vector<Property> properties{{.name = "drun",
                                    .is_problem = true,
                                    .remedy = "install the same drun on all nodes",
                                    .text = [](const NodeFacts& facts) { return facts.version; }}};
  if (!has_gpus) return properties;
  properties.push_back({.name = "GPU driver",
                        .remedy = "install the same driver on all nodes",
                        .text = [](const NodeFacts& facts) { return or_none(facts.driver); }});
  properties.push_back(
      {.name = "NCCL",
       .is_problem = true,
       .remedy = "install the same NCCL on all nodes, or let programs bring their own",
       .text = [](const NodeFacts& facts) { return or_none(facts.nccl); }});
  return properties;
}

void add_differences(std::vector<Finding>& findings, const Reports& reports) {
  bool has_gpus = false;
  each_node(reports, [&](const NodeFacts& facts) { has_gpus = has_gpus || facts.gpus > 0; });
  for (const auto& properties : {software(has_gpus), limits(), hardware()}) {
    for (const Property& property : properties) {
      const auto found = differences(reports, property);
      findings.insert(findings.end(), found.begin(), found.end());
    }
  }
}

// A line about the nodes that share one finding.
template <typename Is>
void add_common(std::vector<Finding>& findings, const Reports& reports, Is is, Finding finding) {
  each_node(reports, [&](const NodeFacts& facts) {
    if (is(facts)) finding.nodes.push_back(facts.node);
  });
  if (finding.nodes.empty()) return;
  finding.what = node_names(reports, finding.nodes) + ": " + finding.what;
  findings.push_back(std::move(finding));
}

void add_shortages(std::vector<Finding>& findings, const Reports& reports) {
  bool is_enough_somewhere = false;  // then the others have been named already
  each_node(reports, [&](const NodeFacts& facts) {
    is_enough_somewhere |= limit(facts.nofile) >= kFewDescriptors;
  });
  add_common(findings, reports, [&](const NodeFacts&) { return !is_enough_somewhere; },
             {.is_problem = true,
              .what = "nofile is under " + std::to_string(kFewDescriptors) +
                      ", and workers hold a connection to every other one",
              .remedy = kRaiseLimit});
  add_common(
      findings, reports,
      [](const NodeFacts& facts) { return facts.has_infiniband && facts.memlock_bytes; },
      {.is_problem = true,
       .what = "InfiniBand needs locked memory, but memlock is limited",
       .remedy =
           "ulimit -l unlimited, LimitMEMLOCK=infinity, or the container's --ulimit memlock"});
  add_common(findings, reports,
             [](const NodeFacts& facts) { return facts.shm_free_bytes < kLittleShm; },
             {.what = "less than " + bytes_text(kLittleShm) +
                      " free in /dev/shm, which workers of a node share memory through",
              .remedy = "empty it, or enlarge it: the container's --shm-size"});
  each_node(reports, [&](const NodeFacts& facts) {
    if (facts.problem.empty()) return;
    findings.push_back({.is_problem = true,
                        .nodes = {facts.node},
                        .what = node_name(reports, facts.node) + ": " + facts.problem,
                        .remedy = ""});
  });
}

void add_clocks(std::vector<Finding>& findings, const Reports& reports) {
  for (const auto& report : reports) {
    if (!report) continue;
    for (const Visit& visit : report->visits) {
      if (visit.to != 0 || !visit.has_arrived) continue;
      if (std::abs(visit.clock_ahead_s) - visit.clock_bound_s < kMuchClock) continue;
      const double by = std::abs(visit.clock_ahead_s);
      findings.push_back({.nodes = {report->facts.node},
                          .what = "the clock of " + node_name(reports, report->facts.node) +
                                  " is " + time_text(by) +
                                  (visit.clock_ahead_s > 0 ? " ahead of" : " behind") +
                                  " node 0's: times in logs will not fit together",
                          .remedy = "start chrony or systemd-timesyncd there"});
    }
  }
}

void add_silent(std::vector<Finding>& findings, const Reports& reports) {
  std::vector<int> silent;
  for (std::size_t node = 0; node < reports.size(); ++node) {
    if (!reports[node]) silent.push_back(static_cast<int>(node));
  }
  if (silent.empty()) return;
  findings.push_back({.is_problem = true,
                      .nodes = silent,
                      .what = node_names(reports, silent) +
                              (silent.size() == 1 ? " has" : " have") +
                              " not told what was found there in time",
                      .remedy = "is the machine overloaded, or cut off from node 0?"});
}

}  // namespace

std::vector<Finding> findings_of(const Reports& reports) {
  std::vector<Finding> findings;
  add_silent(findings, reports);
  add_link_findings(findings, reports);
  add_differences(findings, reports);
  add_shortages(findings, reports);
  add_clocks(findings, reports);
  std::stable_sort(findings.begin(), findings.end(), [](const auto& left, const auto& right) {
    return left.is_problem && !right.is_problem;
  });
  return findings;
}

int node_at_fault(const Finding& finding) {
  if (finding.nodes.empty() || finding.nodes.size() > 2) return 0;
  return finding.nodes.back();
}

bool has_problem(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.is_problem; });
}

std::vector<Finding> findings_about(int node, const std::vector<Finding>& findings) {
  constexpr std::size_t kFew = 2;
  std::vector<Finding> own;
  for (const Finding& finding : findings) {
    const auto& nodes = finding.nodes;
    if (nodes.size() > kFew || std::find(nodes.begin(), nodes.end(), node) == nodes.end()) continue;
    own.push_back(finding);
  }
  return own;
}

}  // namespace drun::probe
