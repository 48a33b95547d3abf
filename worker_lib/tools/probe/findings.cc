#include "worker_lib/tools/probe/findings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <iterator>
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

std::string bytes_limit_text(const std::optional<std::uint64_t>& limit) {
  return limit ? bytes_text(*limit) : "unlimited";
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

constexpr std::uint64_t kMib = std::uint64_t{1} << 20;
constexpr std::uint64_t kFewDescriptors = 1024;
constexpr std::uint64_t kLittleShm = 64 * kMib;
constexpr double kMuchClock = 1.0;
constexpr double kSlow = 0.5;

constexpr const char* kRaiseLimit = "raise it: ulimit, /etc/security/limits.conf, the service";
constexpr const char* kOpenPorts =
    "open all TCP ports between them, or choose another interface: GLOO_SOCKET_IFNAME";

// The reports, and what was found in them.
class Search {
 public:
  explicit Search(const Reports& reports) : reports_(reports) {}

  void problem(std::vector<int> nodes, std::string what, std::string remedy) {
    add(true, std::move(nodes), std::move(what), std::move(remedy));
  }
  void warning(std::vector<int> nodes, std::string what, std::string remedy) {
    add(false, std::move(nodes), std::move(what), std::move(remedy));
  }
  void add(bool is_problem, std::vector<int> nodes, std::string what, std::string remedy) {
    found_.push_back({is_problem, std::move(nodes), std::move(what), std::move(remedy)});
  }
  std::vector<Finding> take() { return std::move(found_); }

  const Reports& reports() const { return reports_; }
  // Null: it has not reported.
  const NodeFacts* facts_of(int node) const {
    const auto index = static_cast<std::size_t>(node);
    const bool is_known = node >= 0 && index < reports_.size() && reports_[index];
    return is_known ? &reports_[index]->facts : nullptr;
  }
  std::string name(int node) const { return node_name(reports_, node); }
  std::string names(const std::vector<int>& nodes) const { return node_names(reports_, nodes); }

  // --- Loops over what has been reported

  template <typename Action>
  void each_node(Action action) const {
    for (const auto& report : reports_)
      if (report) action(report->facts);
  }
  template <typename Action>
  void each_visit(Action action) const {
    for (const auto& report : reports_) {
      if (!report) continue;
      for (const Visit& visit : report->visits) action(report->facts.node, visit);
    }
  }
  template <typename Action>
  void each_pair(Action action) const {
    for (const auto& report : reports_) {
      if (!report) continue;
      for (const PairRate& pair : report->pairs) action(report->facts.node, pair);
    }
  }

 private:
  const Reports& reports_;
  std::vector<Finding> found_;
};

// --- Nodes that differ from the others in one property

struct Property {
  const char* name = "";  // "nofile", "MTU"
  bool is_problem = false;
  // Only a node that has less than most is reported.
  bool is_less_worse = false;
  // For a number: the fraction of the others' value that is still acceptable.
  double tolerance = 1.0;
  const char* remedy = "";
  std::function<std::string(const NodeFacts&)> text{};  // empty: unknown on that node
  std::function<double(const NodeFacts&)> number{};     // absent: texts are compared
};

// The value that most nodes have; of equally many the largest number, or the last text.
const NodeFacts* usual(const std::vector<const NodeFacts*>& all, const Property& property) {
  std::map<std::string, int> counts;
  for (const NodeFacts* facts : all) ++counts[property.text(*facts)];
  return *std::max_element(all.begin(), all.end(), [&](const auto* left, const auto* right) {
    const std::string left_text = property.text(*left);
    const std::string right_text = property.text(*right);
    if (counts[left_text] != counts[right_text]) return counts[left_text] < counts[right_text];
    return property.number ? property.number(*left) < property.number(*right)
                           : left_text < right_text;
  });
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
void add_differences_in(Search& search, const Property& property) {
  std::vector<const NodeFacts*> all;
  search.each_node([&](const NodeFacts& facts) {
    if (!property.text(facts).empty()) all.push_back(&facts);
  });
  if (all.size() < 2) return;
  const NodeFacts* const most = usual(all, property);
  std::map<std::string, std::vector<int>> others;
  std::vector<int> usual_nodes;
  for (const NodeFacts* facts : all) {
    if (is_as_good(*facts, *most, property))
      usual_nodes.push_back(facts->node);
    else
      others[property.text(*facts)].push_back(facts->node);
  }
  const std::string rest =
      usual_nodes.size() == 1 ? search.name(usual_nodes.front()) : "the others";
  for (const auto& [value, nodes] : others)
    search.add(property.is_problem, nodes,
               search.names(nodes) + (nodes.size() == 1 ? " has " : " have ") + property.name +
                   " " + value + ", " + rest + " " + property.text(*most),
               property.remedy);
}

double number_of(const std::optional<std::uint64_t>& limit) {
  return limit ? static_cast<double>(*limit) : INFINITY;
}
double number_of(std::uint64_t number) { return static_cast<double>(number); }
double number_of(int number) { return number; }

std::string count_text(int count) { return std::to_string(count); }
std::string mtu_text(int mtu) { return mtu == 0 ? "" : std::to_string(mtu); }

// The text or number of one field.
template <typename Field, typename Format>
auto text_of(Field NodeFacts::*field, Format format) {
  return [=](const NodeFacts& facts) { return format(facts.*field); };
}
template <typename Field>
auto number_of(Field NodeFacts::*field) {
  return [=](const NodeFacts& facts) { return number_of(facts.*field); };
}

void add_differences(Search& search) {
  using Facts = NodeFacts;
  const auto same = [](const std::string& text) { return text; };
  std::vector<Property> properties{{"drun", true, false, 1.0, "install the same drun on all nodes",
                                    text_of(&Facts::version, same)}};
  bool has_gpus = false;
  search.each_node([&](const NodeFacts& facts) { has_gpus = has_gpus || facts.gpus > 0; });
  if (has_gpus) {
    properties.push_back({"GPU driver", false, false, 1.0, "install the same driver on all nodes",
                          text_of(&Facts::driver, or_none)});
    properties.push_back({"NCCL", true, false, 1.0,
                          "install the same NCCL on all nodes, or let programs bring their own",
                          text_of(&Facts::nccl, or_none)});
  }
  const Property numbers[] = {
      {"nofile", true, true, 1.0, kRaiseLimit, text_of(&Facts::nofile, limit_text),
       number_of(&Facts::nofile)},
      {"nproc", false, true, 0.5, kRaiseLimit, text_of(&Facts::nproc, limit_text),
       number_of(&Facts::nproc)},
      {"memlock", false, true, 0.5, kRaiseLimit, text_of(&Facts::memlock_bytes, bytes_limit_text),
       number_of(&Facts::memlock_bytes)},
      {"GPUs:", true, true, 1.0, "look at nvidia-smi and CUDA_VISIBLE_DEVICES there",
       text_of(&Facts::gpus, count_text), number_of(&Facts::gpus)},
      {"cores:", false, true, 0.9, "look at its cgroup, taskset, and the cores it has",
       text_of(&Facts::cores, count_text), number_of(&Facts::cores)},
      {"memory:", false, true, 0.9, "is a memory module missing?",
       text_of(&Facts::memory_bytes, bytes_text), number_of(&Facts::memory_bytes)},
      {"/dev/shm of", false, true, 0.5,
       "mount -o remount,size=... /dev/shm, or the container's --shm-size",
       text_of(&Facts::shm_bytes, bytes_text), number_of(&Facts::shm_bytes)},
      {"MTU", false, false, 1.0, "set the same everywhere, switches too: ip link set DEVICE mtu N",
       text_of(&Facts::mtu, mtu_text), number_of(&Facts::mtu)},
  };
  properties.insert(properties.end(), std::begin(numbers), std::end(numbers));
  for (const Property& property : properties) add_differences_in(search, property);
}

// --- Problems between nodes: unreachable nodes, names, slow pairs

// The attempts to reach one node, or those of one node.
struct Tries {
  int all = 0;
  int failed = 0;
  std::string reason{};

  void note(const Visit& visit) {
    ++all;
    if (visit.has_arrived) return;
    ++failed;
    reason = visit.reason;
  }
  bool is_cut_off() const { return all > 1 && failed == all; }
};

std::string place_of(const Search& search, int node) {
  const NodeFacts* const facts = search.facts_of(node);
  if (facts == nullptr) return search.name(node);
  return search.name(node) + " at " + facts->address +
         (facts->network.empty() ? "" : ", " + facts->network);
}

// A node is reported once if all attempts to reach it failed, or all attempts from it; two nodes
// that do not reach each other are one finding.
void add_unreached(Search& search) {
  std::map<int, Tries> to;
  std::map<int, Tries> from;
  std::set<std::pair<int, int>> failed;
  search.each_visit([&](int node, const Visit& visit) {
    to[visit.to].note(visit);
    from[node].note(visit);
    if (!visit.has_arrived) failed.emplace(node, visit.to);
  });
  for (const auto& [node, tries] : to)
    if (tries.is_cut_off())
      search.problem({node}, "no node reaches " + place_of(search, node) + ": " + tries.reason,
                     kOpenPorts);
  for (const auto& [node, tries] : from)
    if (tries.is_cut_off())
      search.problem({node}, search.name(node) + " reaches none of the others: " + tries.reason,
                     kOpenPorts);
  search.each_visit([&](int node, const Visit& visit) {
    if (visit.has_arrived || to[visit.to].is_cut_off() || from[node].is_cut_off()) return;
    const bool is_both_ways = failed.contains({visit.to, node});
    if (is_both_ways && node > visit.to) return;  // in one line
    search.problem({node, visit.to},
                   is_both_ways ? place_of(search, node) + " and " + place_of(search, visit.to) +
                                      " do not reach each other: " + visit.reason
                                : search.name(node) + " does not reach " +
                                      place_of(search, visit.to) + ": " + visit.reason,
                   kOpenPorts);
  });
}

void add_large(Search& search) {
  const auto mtu = [&](int node) {
    const NodeFacts* const facts = search.facts_of(node);
    return facts == nullptr || facts->mtu == 0 ? "?" : std::to_string(facts->mtu);
  };
  search.each_visit([&](int node, const Visit& visit) {
    if (!visit.has_arrived || visit.large_ones_too) return;
    search.problem({node, visit.to},
                   "between " + search.name(node) + " and " + search.name(visit.to) +
                       " small messages arrive, large ones do not (MTU " + mtu(node) + " and " +
                       mtu(visit.to) + ")",
                   "set an MTU that the whole way carries: ip link set DEVICE mtu N");
  });
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

void add_names(Search& search) {
  std::map<std::pair<int, std::string>, std::vector<int>> troubles;
  std::vector<int> late;
  for (const auto& report : search.reports()) {
    if (!report) continue;
    bool is_late = false;
    for (const NameLookup& lookup : report->names) {
      const NodeFacts* const of = search.facts_of(lookup.of);
      is_late = is_late || !lookup.is_done;
      if (of == nullptr || !lookup.is_done) continue;
      const std::string trouble = name_trouble(lookup, *of);
      if (!trouble.empty()) troubles[{lookup.of, trouble}].push_back(report->facts.node);
    }
    if (is_late) late.push_back(report->facts.node);
  }
  for (const auto& [about, by] : troubles)
    search.warning(
        {about.first},
        search.name(about.first) + ": " + about.second + " (on " + search.names(by) + ")",
        "DNS or /etc/hosts there; programs that use names will fail");
  if (!late.empty())
    search.warning(late,
                   "on " + search.names(late) + " the name service does not answer within 5 s",
                   "look at /etc/resolv.conf there");
}

// The rate of each node's best pair. Nodes on one machine share its cores: how fast they are
// together says nothing of a network.
std::map<int, double> best_rates(const Search& search) {
  std::map<int, double> best;
  search.each_pair([&](int node, const PairRate& pair) {
    const NodeFacts* const other = search.facts_of(pair.with);
    if (!pair.problem.empty() || other == nullptr || is_loopback(other->address)) return;
    for (const int each : {node, pair.with}) best[each] = std::max(best[each], pair.gbytes_per_s);
  });
  return best;
}

// A node is slow if its best pair is slower than half of the median node's best pair. Otherwise, a
// pair is slow if it is slower than half of that.
void add_pairs(Search& search) {
  std::set<std::pair<int, int>> told;
  search.each_pair([&](int node, const PairRate& pair) {
    const auto [low, high] = std::minmax(node, pair.with);
    if (pair.problem.empty() || !told.emplace(low, high).second) return;
    search.problem(
        {low, high},
        search.name(low) + " and " + search.name(high) + " cannot work together: " + pair.problem,
        "look at the way between them");
  });
  const std::map<int, double> best = best_rates(search);
  if (best.size() < 3) return;  // nothing to compare with
  std::vector<double> rates;
  rates.reserve(best.size());
  for (const auto& [node, rate] : best) rates.push_back(rate);
  std::sort(rates.begin(), rates.end());
  const double usual = rates[rates.size() / 2];
  const auto is_slow = [&](int node) {
    const auto found = best.find(node);
    return found != best.end() && found->second < kSlow * usual;
  };
  for (const auto& [node, rate] : best)
    if (is_slow(node))
      search.problem({node},
                     search.name(node) + " is slow: " + rate_text(rate) +
                         " with its best neighbor, " + rate_text(usual) + " between others",
                     "look at its network card, cable, and what else runs there");
  search.each_pair([&](int node, const PairRate& pair) {
    const auto [low, high] = std::minmax(node, pair.with);
    if (!pair.problem.empty() || pair.gbytes_per_s >= kSlow * usual || is_slow(low) ||
        is_slow(high) || !told.emplace(low, high).second)
      return;
    search.problem({low, high},
                   "the way between " + search.name(low) + " and " + search.name(high) +
                       " is slow: " + rate_text(pair.gbytes_per_s) + ", " + rate_text(usual) +
                       " between others",
                   "look at cables and switches between them");
  });
}

// --- Problems of single nodes

void add_silent(Search& search) {
  std::vector<int> silent;
  for (std::size_t node = 0; node < search.reports().size(); ++node)
    if (!search.reports()[node]) silent.push_back(static_cast<int>(node));
  if (silent.empty()) return;
  search.problem(silent,
                 search.names(silent) + (silent.size() == 1 ? " has" : " have") +
                     " not told what was found there in time",
                 "is the machine overloaded, or cut off from node 0?");
}

void add_shortages(Search& search) {
  bool is_enough_somewhere = false;  // then the others have been named already
  std::vector<int> all;
  std::vector<int> locked;
  std::vector<int> little_shm;
  search.each_node([&](const NodeFacts& facts) {
    is_enough_somewhere |= number_of(facts.nofile) >= kFewDescriptors;
    all.push_back(facts.node);
    if (facts.has_infiniband && facts.memlock_bytes) locked.push_back(facts.node);
    if (facts.shm_free_bytes < kLittleShm) little_shm.push_back(facts.node);
  });
  if (!all.empty() && !is_enough_somewhere)
    search.problem(all,
                   search.names(all) + ": nofile is under " + std::to_string(kFewDescriptors) +
                       ", and workers hold a connection to every other one",
                   kRaiseLimit);
  if (!locked.empty())
    search.problem(
        locked, search.names(locked) + ": InfiniBand needs locked memory, but memlock is limited",
        "ulimit -l unlimited, LimitMEMLOCK=infinity, or the container's --ulimit memlock");
  if (!little_shm.empty())
    search.warning(little_shm,
                   search.names(little_shm) + ": less than " + bytes_text(kLittleShm) +
                       " free in /dev/shm, which workers of a node share memory through",
                   "empty it, or enlarge it: the container's --shm-size");
  search.each_node([&](const NodeFacts& facts) {
    if (!facts.problem.empty())
      search.problem({facts.node}, search.name(facts.node) + ": " + facts.problem, "");
  });
}

void add_clocks(Search& search) {
  search.each_visit([&](int node, const Visit& visit) {
    const double by = std::abs(visit.clock_ahead_s);
    if (visit.to != 0 || !visit.has_arrived || by - visit.clock_bound_s < kMuchClock) return;
    search.warning({node},
                   "the clock of " + search.name(node) + " is " + time_text(by) +
                       (visit.clock_ahead_s > 0 ? " ahead of" : " behind") +
                       " node 0's: times in logs will not fit together",
                   "start chrony or systemd-timesyncd there");
  });
}

}  // namespace

std::vector<Finding> findings_of(const Reports& reports) {
  Search search(reports);
  add_silent(search);
  add_unreached(search);
  add_large(search);
  add_pairs(search);
  add_names(search);
  add_differences(search);
  add_shortages(search);
  add_clocks(search);
  std::vector<Finding> findings = search.take();
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
