#include "agent/nccl_ras/ras_position.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace drun::agent::ras {
namespace {

constexpr std::size_t kMostStrangers = 4;  // named, of processes that are not this node's
constexpr std::size_t kMostSentences = 8;

// Of one kind of operations in one communicator.
struct Spread {
  std::uint64_t least = 0;
  std::uint64_t most = 0;
  std::uint64_t second = 0;  // the least of those that are above `least`
};

struct Place {
  bool is_behind = false;
  bool is_ahead = false;
};
using Places = std::map<std::pair<int, std::string>, Place>;  // by pid and host

void count(std::optional<Spread>& spread, std::uint64_t value) {
  if (!spread) {
    spread = Spread{value, value, value};
  } else if (value < spread->least) {
    spread->second = std::exchange(spread->least, value);
  } else if (value > spread->least) {
    spread->second = spread->second == spread->least ? value : std::min(spread->second, value);
    spread->most = std::max(spread->most, value);
  }
}

using Spreads = std::array<std::optional<Spread>, kMostKinds>;
Spreads spreads_of(const Communicator& communicator) {
  Spreads spreads;
  for (const Rank& rank : communicator.ranks)
    for (std::size_t kind = 0; kind < kMostKinds; ++kind)
      if (rank.counts[kind]) count(spreads[kind], *rank.counts[kind]);
  for (const RankGroup& crowd : communicator.crowds) count(spreads[crowd.kind], crowd.count);
  return spreads;
}

// "AllReduce": "all_reduce". Before 2.26 NCCL counts all together.
std::string operation_name(const std::string& kind) {
  std::string name;
  for (const char c : kind) {
    const bool is_upper = std::isupper(static_cast<unsigned char>(c)) != 0;
    if (is_upper && !name.empty()) name += '_';
    name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name == "collective" ? "operation" : name;
}

std::string lag_words(const Communicator& communicator, const std::string& kind,
                      std::uint64_t count, const Spread& spread) {
  const std::string operation = operation_name(kind);
  std::string words =
      count == 0 ? "has begun no " + operation : "is at " + operation + " " + std::to_string(count);
  words += " in a communicator";
  if (communicator.size > 0) words += " of " + std::to_string(communicator.size);
  const bool are_level = count == spread.least && spread.second == spread.most;
  words += are_level ? ", the others " : ", others ";
  if (count == 0) words += "are ";
  return words + (are_level ? "at " : "at up to ") + std::to_string(spread.most);
}

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  return (hash ^ value) * 0x100000001B3;  // FNV-1a, by eight bytes
}

class Finder {
 public:
  Finder(const Report& report, const Own& own) : report_(report), own_(own) {
    for (std::size_t i = 0; i < own.pids.size(); ++i)
      for (const int pid : own.pids[i])
        if (pid > 0) local_ranks_.emplace(pid, i);
    positions_.resize(own.pids.size());
    gaps_.resize(own.pids.size());
  }

  std::vector<RankPosition> positions() {
    for (const Communicator& communicator : report_.communicators) take(communicator);
    for (const Lost& lost : report_.lost) take(lost);
    const bool has_root = has_lost_ || std::any_of(places_.begin(), places_.end(), [](auto& each) {
                            return each.second.is_behind && !each.second.is_ahead;
                          });
    for (const auto& [key, place] : places_) {
      const auto own = local_rank_of({.pid = key.first, .host = key.second});
      if (!own || positions_[*own].stand == NcclPosition::Behind) continue;
      const bool is_behind = place.is_behind && (!place.is_ahead || !has_root);
      positions_[*own].stand = is_behind ? NcclPosition::Behind : NcclPosition::Ahead;
    }
    return std::move(positions_);
  }

  std::optional<std::size_t> local_rank_of(const Process& process) const {
    const auto found = local_ranks_.find(process.pid);
    if (found == local_ranks_.end() || !own_.addresses.contains(process.host)) return std::nullopt;
    return found->second;
  }

 private:
  void take(const Communicator& communicator) {
    const Spreads spreads = spreads_of(communicator);
    for (const Rank& rank : communicator.ranks) {
      const auto own = local_rank_of(rank.process);
      if (own) positions_[*own].is_known = true;
      for (std::size_t kind = 0; kind < kMostKinds; ++kind) {
        if (!rank.counts[kind]) continue;
        place(rank.process, *rank.counts[kind], *spreads[kind]);
        if (own) take_own(*own, communicator, kind, *rank.counts[kind], *spreads[kind]);
      }
    }
  }

  void take(const Lost& lost) {
    has_lost_ = true;
    const auto own = local_rank_of(lost.process);
    if (!own) return;
    positions_[*own].is_known = true;
    positions_[*own].stand = NcclPosition::Behind;
    positions_[*own].words = lost.is_dead ? "is taken for dead" : "does not answer";
  }

  void place(const Process& process, std::uint64_t value, const Spread& spread) {
    if (spread.least == spread.most || process.pid == 0) return;
    Place& place = places_[{process.pid, process.host}];
    place.is_behind = place.is_behind || value < spread.most;
    place.is_ahead = place.is_ahead || value > spread.least;
  }

  void take_own(std::size_t local_rank, const Communicator& communicator, std::size_t kind,
                std::uint64_t value, const Spread& spread) {
    RankPosition& position = positions_[local_rank];
    for (const char c : communicator.hash)
      position.progress = mixed(position.progress, static_cast<unsigned char>(c));
    position.progress = mixed(mixed(position.progress, value), spread.least);
    if (spread.most - value <= gaps_[local_rank]) return;
    gaps_[local_rank] = spread.most - value;
    position.words = lag_words(communicator, report_.kinds[kind], value, spread);
  }

  const Report& report_;
  const Own& own_;
  std::map<int, std::size_t> local_ranks_{};  // by pid
  std::vector<RankPosition> positions_{};
  std::vector<std::uint64_t> gaps_{};  // by local rank, the widest so far
  Places places_{};
  bool has_lost_ = false;
};

std::string sentence(const RankRanges& ranks, std::string words) {
  constexpr std::pair<std::string_view, std::string_view> kPlurals[] = {
      {"is ", "are "}, {"has ", "have "}, {"does ", "do "}};
  for (const auto& [one, many] : kPlurals) {
    if (count_of(ranks) < 2 || !words.starts_with(one)) continue;
    words.replace(0, one.size(), many);
    break;
  }
  return "NCCL: " + ranks_text(ranks) + " " + words;
}

std::vector<std::string> sentences(const std::vector<RankPosition>& positions, int base_rank) {
  std::map<std::string, RankRanges> alike;
  for (std::size_t i = 0; i < positions.size(); ++i)
    if (positions[i].stand == NcclPosition::Behind && !positions[i].words.empty())
      add_rank(alike[positions[i].words], base_rank + static_cast<int>(i));
  std::vector<std::string> notes;
  for (const auto& [words, ranks] : alike)
    if (notes.size() < kMostSentences) notes.push_back(sentence(ranks, words));
  return notes;
}

// The largest communicator, when none of its ranks is behind.
std::optional<std::string> level_words(const Report& report) {
  const auto largest = std::max_element(
      report.communicators.begin(), report.communicators.end(),
      [](const Communicator& one, const Communicator& other) { return one.size < other.size; });
  if (largest == report.communicators.end() || !report.lost.empty()) return std::nullopt;
  if (largest->size < 2 || std::ssize(largest->ranks) != largest->size) return std::nullopt;
  std::uint64_t operations = 0;
  for (const auto& spread : spreads_of(*largest)) {
    if (spread && spread->least != spread->most) return std::nullopt;
    if (spread) operations += spread->most;
  }
  return "NCCL: all ranks of a communicator of " + std::to_string(largest->size) + " have begun " +
         std::to_string(operations) + " operations";
}

}  // namespace

Findings find(const Report& report, const Own& own, int base_rank) {
  Finder finder(report, own);
  Findings findings;
  findings.positions = finder.positions();
  findings.notes = sentences(findings.positions, base_rank);
  std::size_t strangers = 0;
  for (const Lost& lost : report.lost) {
    if (finder.local_rank_of(lost.process) || ++strangers > kMostStrangers) continue;
    findings.notes.push_back("NCCL: process " + std::to_string(lost.process.pid) + " on " +
                             (lost.process.host.empty() ? "a node" : lost.process.host) +
                             (lost.is_dead ? " is taken for dead" : " does not answer"));
  }
  // From one node only: each node has asked at another moment.
  const auto level = base_rank == 0 ? level_words(report) : std::nullopt;
  if (level) findings.notes.push_back(*level);
  return findings;
}

}  // namespace drun::agent::ras
