// core. The coordinator's work on the stacks of the job's workers. It collects the nodes'
// answers as bytes, and leaves their meaning to this interface: it merges the answers, and finds
// the ranks that have hung. agent/hang implements it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/job/rank_ranges.h"

namespace drun {

struct HangVerdict {
  RankRanges culprits{};  // some or all of the suspects; empty: no hang
  bool are_all = false;   // the cause is unknown, and all silent ranks are named
  // The number of the operation that all ranks have begun; passed to the next call in this round.
  std::optional<std::uint64_t> begun_by_all{};
  std::string words{};  // "last ended all_reduce #811, not in one", or why there is no hang
  bool operator==(const HangVerdict&) const = default;
};

// The answers to one query.
class StackAnswers {
 public:
  virtual ~StackAnswers() = default;

  // A node's answer, and the ranks of its workers. Returns false if it is malformed or about other
  // ranks.
  virtual bool add(const RankRange& ranks, std::string_view answer) = 0;
  // "node 3 (host3): no answer in 10 s"
  virtual void add_note(const std::string& note) = 0;
  // All of them as one answer, of bounded size.
  virtual std::string merged() = 0;
  // The same as text, for a report; at most 30 KiB.
  virtual std::string text() = 0;
  // `suspects`: ranks that were reported as silent. Those that are active again do not count.
  virtual HangVerdict judge(const RankRanges& suspects,
                            std::optional<std::uint64_t> begun_by_all) const = 0;
};

using MakeStackAnswers = std::unique_ptr<StackAnswers> (*)();

}  // namespace drun
