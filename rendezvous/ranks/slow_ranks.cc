#include "rendezvous/ranks/slow_ranks.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace drun::rendezvous {
namespace {

constexpr double kNcclLimit = 0.25;
constexpr double kLeastCost = 0.03;    // OwnTime: of the job's time
constexpr double kShareOfLimit = 0.8;  // in each part
constexpr double kShareOfMean = 0.7;   // in each part
constexpr double kTimesVariation = 3;
constexpr double kTimesSpread = 4;
constexpr double kToDeviation = 1.4826;  // from the median absolute deviation
constexpr double kAnotherUnit = 9;       // a rank that counts so much slower counts other steps
constexpr int kShownPermille = 50;
constexpr std::size_t kMostOpen = 4;
constexpr int kMostRoles = 64;  // ranks of further ones are not judged

double at_rank(std::vector<double> values, std::size_t index) {
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(index);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

// With an even number of values, the lower middle one: of two ranks, the faster is the reference.
double median(std::vector<double> values) {
  const std::size_t middle = (values.size() - 1) / 2;
  return at_rank(std::move(values), middle);
}

template <typename Parts>
double mean_of(const Parts& parts) {
  double sum = 0;
  for (const double part : parts) sum += part;
  return sum / static_cast<double>(parts.size());
}

template <typename Parts>
double deviation_of(const Parts& parts) {
  const double mean = mean_of(parts);
  double squares = 0;
  for (const double part : parts) squares += (part - mean) * (part - mean);
  return std::sqrt(squares / static_cast<double>(parts.size()));
}

int percent_of(double share) { return static_cast<int>(std::lround(100 * std::min(share, 1e6))); }

std::string text_of(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", number);
  return text;
}

}  // namespace

void SlowRanks::begin_round(int round, std::vector<Node> nodes) {
  round_ = round;
  nodes_ = std::move(nodes);
  base_ranks_.clear();
  places_.clear();
  std::map<std::string, int> roles;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    base_ranks_.push_back(static_cast<int>(places_.size()));
    for (int local_rank = 0; local_rank < nodes_[i].workers; ++local_rank) {
      int before = 0;
      const RoleShare* share = share_at(nodes_[i].roles, local_rank, before);
      const std::string role = share != nullptr ? share->role : "";
      const int number = roles.emplace(role, static_cast<int>(roles.size())).first->second;
      places_.push_back({static_cast<int>(i), local_rank, number});
    }
  }
  roles_ = std::min(static_cast<int>(roles.size()), kMostRoles);
  last_ = -1;
  count_ = 0;
  open_.clear();
  history_.clear();
  for (Entry& entry : found_) entry.told.is_slow = false;
}

std::vector<SlowRank> SlowRanks::take(int node_rank, const NodeSpeed& speed) {
  std::vector<SlowRank> named;
  const auto node = static_cast<std::size_t>(node_rank);
  if (node >= nodes_.size() || speed.window <= last_ || speed.length.count() <= 0) return named;
  Window& window = open_[speed.window];
  if (window.nodes.empty()) {
    window.nodes.resize(nodes_.size());
    window.amounts.resize(places_.size());
  }
  NodeSpeed& place = window.nodes[node];
  if (place.length.count() > 0) return named;
  place = speed;
  place.amounts.clear();
  ++window.measures.at(static_cast<std::size_t>(speed.measure));
  window.progressed += speed.has_progress ? 1 : 0;
  const std::size_t count =
      std::min(speed.amounts.size(), static_cast<std::size_t>(nodes_[node].workers));
  for (std::size_t i = 0; i < count; ++i)
    window.amounts[static_cast<std::size_t>(base_ranks_[node]) + i] = speed.amounts[i];
  if (++window.reported < nodes_.size()) {
    if (open_.size() > kMostOpen) open_.erase(open_.begin());
    return named;
  }
  const auto most = std::max_element(window.measures.begin() + 1, window.measures.end());
  if (*most > 0) window.measure = static_cast<SpeedMeasure>(most - window.measures.begin());
  for (std::size_t rank = 0; rank < places_.size(); ++rank) {
    const auto its_node = static_cast<std::size_t>(places_[rank].node);
    if (window.nodes[its_node].measure != window.measure) window.amounts[rank] = 0;
  }
  last_ = speed.window;
  ++count_;
  history_.push_back(std::move(window));
  if (history_.size() > kParts * kMostWindowsPerPart) history_.pop_front();
  open_.erase(open_.begin(), open_.upper_bound(last_));
  for (std::size_t each = 1; each <= kMostWindowsPerPart; each *= 2)
    if (count_ % each == 0 && history_.size() >= kParts * each) judge(each, named);
  return named;
}

// The ranks of the role whose time is known in all parts.
std::vector<SlowRanks::Rank> SlowRanks::times_of(SpeedMeasure measure, std::size_t windows_per_part,
                                                 int role) const {
  std::vector<Rank> ranks;
  for (std::size_t rank = 0; rank < places_.size(); ++rank) {
    if (places_[rank].role != role) continue;
    const auto node = static_cast<std::size_t>(places_[rank].node);
    Rank self{.rank = static_cast<int>(rank)};
    bool is_known = true;
    for (std::size_t part = 0; part < kParts && is_known; ++part) {
      double sum = 0;
      double length_ms = 0;
      int known = 0;
      for (std::size_t i = 0; i < windows_per_part; ++i) {
        const Window& each = window(kParts * windows_per_part, part * windows_per_part + i);
        sum += each.amounts[rank];
        length_ms += static_cast<double>(each.nodes[node].length.count());
        known += each.amounts[rank] > 0 ? 1 : 0;
      }
      const bool needs_all = measure == SpeedMeasure::OwnTime;
      is_known = known >= (needs_all ? static_cast<int>(windows_per_part) : 1);
      if (!is_known) break;
      self.times.at(part) = measure == SpeedMeasure::OwnTime ? sum / length_ms
                            : measure == SpeedMeasure::Steps ? length_ms / 1000 / sum
                                                             : sum / known;
    }
    if (is_known) ranks.push_back(self);
  }
  return ranks;
}

void SlowRanks::compare(std::vector<Rank>& ranks, const Limits& limits) {
  if (ranks.size() < 2) return;
  const auto all = [&ranks](const auto& value_of) {
    std::vector<double> values;
    values.reserve(ranks.size());
    for (const Rank& rank : ranks) values.push_back(value_of(rank));
    return values;
  };
  for (std::size_t part = 0; part < kParts; ++part) {
    const double usual = median(all([part](const Rank& rank) { return rank.times.at(part); }));
    for (Rank& rank : ranks) {
      rank.excess.at(part) = rank.times.at(part) / usual - 1;
      rank.cost += (rank.times.at(part) - usual) / kParts;
    }
  }
  for (Rank& rank : ranks) {
    rank.mean = mean_of(rank.excess);
    rank.least = *std::min_element(rank.excess.begin(), rank.excess.end());
  }
  const double variation =
      at_rank(all([](const Rank& rank) { return deviation_of(rank.excess); }), ranks.size() / 2);
  const double usual = median(all([](const Rank& rank) { return rank.mean; }));
  const double spread =
      kToDeviation * median(all([usual](const Rank& rank) { return std::abs(rank.mean - usual); }));
  const double least =
      std::max(limits.excess, std::max(kTimesVariation * variation, kTimesSpread * spread));
  for (Rank& rank : ranks)
    rank.is_slow = rank.mean >= least && rank.mean < kAnotherUnit && rank.cost >= limits.cost &&
                   rank.least >= std::max(kShareOfLimit * limits.excess, kShareOfMean * rank.mean);
}

void SlowRanks::judge(std::size_t windows_per_part, std::vector<SlowRank>& named) {
  const std::size_t windows = kParts * windows_per_part;
  SpeedMeasure measure = SpeedMeasure::None;
  for (std::size_t i = 0; i < windows; ++i) {
    const SpeedMeasure each = window(windows, i).measure;
    if (each == SpeedMeasure::None) continue;
    if (measure != SpeedMeasure::None && each != measure) return;
    measure = each;
  }
  if (measure == SpeedMeasure::None)
    return windows_per_part == 1 ? judge_processors(named) : void();
  for (std::size_t part = 0; part < kParts && measure == SpeedMeasure::OwnTime; ++part) {
    bool has_progress = false;
    for (std::size_t i = 0; i < windows_per_part; ++i)
      has_progress = has_progress ||
                     2 * window(windows, part * windows_per_part + i).progressed > nodes_.size();
    if (!has_progress) return;
  }
  Limits limits;
  if (measure == SpeedMeasure::OwnTime) limits.cost = kLeastCost;
  if (measure == SpeedMeasure::Nccl) limits.excess = kNcclLimit;
  for (int role = 0; role < roles_; ++role) {
    std::vector<Rank> ranks = times_of(measure, windows_per_part, role);
    compare(ranks, limits);
    // Ranks are in order of their nodes.
    for (auto first = ranks.begin(); first != ranks.end();) {
      const int node = places_[static_cast<std::size_t>(first->rank)].node;
      const auto last = std::find_if(first, ranks.end(), [&](const Rank& rank) {
        return places_[static_cast<std::size_t>(rank.rank)].node != node;
      });
      judge_node(node, {first, last}, {measure, windows_per_part, limits}, named);
      first = last;
    }
  }
}

// `ranks`: of one role on the node.
void SlowRanks::judge_node(int node, std::span<const Rank> ranks, const Judged& judged,
                           std::vector<SlowRank>& named) {
  std::vector<const Rank*> slow;
  double sum = 0;
  for (const Rank& rank : ranks) {
    sum += rank.mean;
    if (rank.is_slow) slow.push_back(&rank);
    if (judged.windows_per_part == 1)
      update(node, places_[static_cast<std::size_t>(rank.rank)].local_rank, rank.mean,
             judged.limits);
  }
  const double mean = sum / static_cast<double>(ranks.size());
  if (judged.windows_per_part == 1) update(node, kWholeNode, mean, judged.limits);
  const std::size_t windows = kParts * judged.windows_per_part;
  if (slow.size() >= 2 && 2 * slow.size() > ranks.size()) {
    const Rank& slowest = **std::max_element(
        slow.begin(), slow.end(), [](const Rank* a, const Rank* b) { return a->mean < b->mean; });
    return name({.node = node, .excess = mean},
                evidence_of(judged.measure, slowest) + processors_of(node, windows), named);
  }
  for (const Rank* rank : slow)
    name({.node = node,
          .local_rank = places_[static_cast<std::size_t>(rank->rank)].local_rank,
          .excess = rank->mean},
         evidence_of(judged.measure, *rank) + processors_of(node, windows), named);
}

void SlowRanks::judge_processors(std::vector<SlowRank>& named) {
  std::vector<Rank> nodes;
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    Rank self{.rank = static_cast<int>(node)};
    for (std::size_t part = 0; part < kParts; ++part) {
      const NodeSpeed& told = window(kParts, part).nodes[node];
      const int lost = std::min(told.stolen_permille + told.throttled_permille, 950);
      self.times.at(part) = 1000.0 / (1000 - lost);
    }
    nodes.push_back(self);
  }
  const Limits limits;
  compare(nodes, limits);
  for (const Rank& node : nodes) {
    update(node.rank, kWholeNode, node.mean, limits);
    if (node.is_slow)
      name({.node = node.rank, .excess = node.mean, .by_processor = true},
           "it gets less processor time than it needs" + processors_of(node.rank, kParts), named);
  }
}

SlowRanks::Entry* SlowRanks::entry_of(int node, int local_rank) {
  const Node& self = nodes_[static_cast<std::size_t>(node)];
  const auto found = std::find_if(found_.begin(), found_.end(), [&](const Entry& entry) {
    return entry.told.host == self.host && entry.slot == self.slot &&
           entry.local_rank == local_rank;
  });
  return found == found_.end() ? nullptr : &*found;
}

// A rank is slow until it needs less than half the limit.
void SlowRanks::update(int node, int local_rank, double excess, const Limits& limits) {
  Entry* const entry = entry_of(node, local_rank);
  if (entry == nullptr) return;
  entry->node = node;
  entry->excess = excess;
  if (excess < limits.excess / 2) entry->told.is_slow = false;
}

void SlowRanks::name(Entry entry, const std::string& evidence, std::vector<SlowRank>& named) {
  Entry* const known = entry_of(entry.node, entry.local_rank);
  if (known != nullptr) {
    known->node = entry.node;
    known->excess = entry.excess;
    known->told.is_slow = true;
    if (known->by_processor && !entry.by_processor) {
      known->by_processor = false;
      known->told.evidence = evidence;
    }
    return;
  }
  // A lack of processor time alone says nothing about its ranks.
  const Entry* const its_node = entry_of(entry.node, kWholeNode);
  const bool is_known = its_node != nullptr && its_node->told.is_slow &&
                        (!its_node->by_processor || entry.by_processor);
  if (is_known || found_.size() >= kMostSlowRanks) return;
  const auto node = static_cast<std::size_t>(entry.node);
  entry.slot = nodes_[node].slot;
  entry.told = {.node_rank = entry.node,
                .host = nodes_[node].host,
                .round = round_,
                .percent = percent_of(entry.excess),
                .evidence = evidence};
  if (entry.local_rank != kWholeNode) entry.told.rank = base_ranks_[node] + entry.local_rank;
  named.push_back(entry.told);
  found_.push_back(std::move(entry));
}

std::string SlowRanks::evidence_of(SpeedMeasure measure, const Rank& rank) {
  switch (measure) {
    case SpeedMeasure::OwnTime:
      return "the others wait for it " + std::to_string(percent_of(rank.cost)) + " % of the time";
    case SpeedMeasure::Nccl:
      return "the others wait for it in " + std::to_string(percent_of(mean_of(rank.times) - 1)) +
             " % of NCCL's answers";
    case SpeedMeasure::Steps:
      return "a step takes it " + text_of(mean_of(rank.times)) + " s, " +
             text_of(std::max(mean_of(rank.times) - rank.cost, 0.0)) + " s is usual";
    case SpeedMeasure::None:
      break;
  }
  return "";
}

std::string SlowRanks::processors_of(int node, std::size_t windows) const {
  int stolen = 0;
  int throttled = 0;
  std::size_t hot = 0;
  for (std::size_t i = 0; i < windows; ++i) {
    const NodeSpeed& told = window(windows, i).nodes[static_cast<std::size_t>(node)];
    stolen += told.stolen_permille;
    throttled += told.throttled_permille;
    hot += told.is_hot ? 1 : 0;
  }
  const int count = std::max(1, static_cast<int>(windows));
  std::string text;
  if (stolen >= kShownPermille * count)
    text += "; the hypervisor takes " + std::to_string(stolen / count / 10) +
            " % of its node's processor time";
  if (throttled >= kShownPermille * count)
    text += "; the CPU limit of a cgroup takes " + std::to_string(throttled / count / 10) +
            " % of its node's processor time";
  if (2 * hot > windows) text += "; heat slows its node's processors";
  return text;
}

std::vector<SlowRank> SlowRanks::found() const {
  std::vector<SlowRank> all;
  all.reserve(found_.size());
  for (const Entry& entry : found_) all.push_back(entry.told);
  return all;
}

std::vector<std::pair<int, SlowRank>> SlowRanks::slow_nodes() const {
  std::vector<const Entry*> slow;
  for (const Entry& entry : found_)
    if (entry.told.is_slow && !entry.by_processor) slow.push_back(&entry);
  std::stable_sort(slow.begin(), slow.end(),
                   [](const Entry* a, const Entry* b) { return a->excess > b->excess; });
  std::vector<std::pair<int, SlowRank>> nodes;
  nodes.reserve(slow.size());
  for (const Entry* entry : slow) nodes.emplace_back(entry->node, entry->told);
  return nodes;
}

}  // namespace drun::rendezvous
