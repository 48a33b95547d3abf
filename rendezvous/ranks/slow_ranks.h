// core. Finds ranks and nodes that are slower than the others, from one report of each node every
// 10 s. Part of the coordinator's state (round.h).
//
// Principle: in synchronous training every rank makes the same number of steps. The slow rank is
//            the one that arrives last in the collectives: it waits least, so its own time (outside
//            calls) per window is the longest. Steps tell ranks apart only in asynchronous jobs.
// Rule:      over six successive parts of a period (6 windows, 12, 24 or 48), a rank is slow if
//            - it needs on average 10 % more time than the median of its role (NCCL: 25 %, because
//              its answers only show who is behind at a moment),
//            - in each part, it needs at least 8 % and 0.7 of the average more, so that a
//            checkpoint,
//              an evaluation or a disturbance of less than a minute does not count,
//            - the average is 3 times the usual variation between parts, and 4 times the usual
//              spread between ranks, so that an uneven distribution of work does not count,
//            - it costs the job at least 3 % of its time.
//            Longer periods find slow ranks where a step takes longer than a window, or varies
//            much. Parts without an operation of most workers are not judged.
// Nodes:     if most ranks of a node are slow, the node is named. If nothing is known about the
//            workers, a node is slow if it lacks 10 % more of its processor time than the median.
// Cost:      O(ranks) per window. Memory: 48 numbers per rank.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/job/slow_rank.h"
#include "rendezvous/job/world.h"

namespace drun::rendezvous {

class SlowRanks {
 public:
  struct Node {
    std::string host{};
    int slot = 0;
    int workers = 1;
    std::vector<RoleShare> roles{};  // covers all workers
  };

  // Drops the reports of the round before. `nodes`: of the new round, by node rank.
  void begin_round(int round, std::vector<Node> nodes);

  // Takes a node's report. Returns the ranks and nodes that it shows to be slow for the first time
  // in the job. Reports of a window that was judged before are ignored.
  std::vector<SlowRank> take(int node_rank, const NodeSpeed& speed);

  // All that were named in this job, in order of time.
  std::vector<SlowRank> found() const;
  // The text about each node that is slow now, or has a slow rank, slowest first. Nodes that only
  // lack processor time are not included.
  std::vector<std::pair<int, SlowRank>> slow_nodes() const;

 private:
  static constexpr std::size_t kParts = 6;
  static constexpr std::size_t kMostWindowsPerPart = 8;
  using Parts = std::array<double, kParts>;

  struct Place {
    int node = 0;
    int local_rank = 0;
    int role = 0;
  };
  struct Window {
    SpeedMeasure measure = SpeedMeasure::None;
    std::size_t reported = 0;
    std::array<std::size_t, 4> measures{};  // how many nodes have each
    std::size_t progressed = 0;             // nodes
    std::vector<int> amounts{};             // by rank
    std::vector<NodeSpeed> nodes{};         // without amounts
  };
  // A rank of the round whose time is known in all parts.
  struct Rank {
    int rank = 0;
    Parts times{};  // relative to the same work
    Parts excess{};
    double mean = 0;   // of the excess
    double least = 0;  // excess of a part
    double cost = 0;   // the mean difference of the times
    bool is_slow = false;
  };
  static constexpr int kWholeNode = -1;
  struct Entry {
    SlowRank told{};
    int slot = 0;
    int node = 0;  // its rank in this round
    int local_rank = kWholeNode;
    double excess = 0;  // now
    bool by_processor = false;
  };
  struct Limits {
    double excess = 0.10;
    double cost = 0;
  };
  struct Judged {
    SpeedMeasure measure = SpeedMeasure::None;
    std::size_t windows_per_part = 1;
    Limits limits{};
  };

  void judge(std::size_t windows_per_part, std::vector<SlowRank>& named);
  void judge_node(int node, std::span<const Rank> ranks, const Judged& judged,
                  std::vector<SlowRank>& named);
  void judge_processors(std::vector<SlowRank>& named);
  std::vector<Rank> times_of(SpeedMeasure measure, std::size_t windows_per_part, int role) const;
  static void compare(std::vector<Rank>& ranks, const Limits& limits);
  Entry* entry_of(int node, int local_rank);
  void update(int node, int local_rank, double excess, const Limits& limits);
  void name(Entry entry, const std::string& evidence, std::vector<SlowRank>& named);
  static std::string evidence_of(SpeedMeasure measure, const Rank& rank);
  std::string processors_of(int node, std::size_t windows) const;
  const Window& window(std::size_t windows, std::size_t index) const {
    return history_[history_.size() - windows + index];
  }

  int round_ = 0;
  std::vector<Node> nodes_;
  std::vector<int> base_ranks_;  // of each node
  std::vector<Place> places_;    // of each rank
  int roles_ = 0;
  int last_ = -1;  // the last window that was judged
  std::size_t count_ = 0;
  std::map<int, Window> open_;  // by number
  std::deque<Window> history_;
  std::vector<Entry> found_;
};

}  // namespace drun::rendezvous
