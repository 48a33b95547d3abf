// core. What workers of this node have written, on its way to the coordinator (--gather-logs): cut
// into messages, sent as far as the coordinator allows, kept until it has passed them on.
//
//   push --> waiting -- next, as far as the window goes --> under way -- granted --> gone
//               +------------------------ close ---------------+---> back to the caller
//
// Order:   first in, first out. The pieces of a long line stand in a row.
// Units:   while is_congested() nothing should be pushed: more than kMostWaitingBytes wait, until
//          no more than kFewWaitingBytes do. Besides, a window is under way.
// Owner:   GatherLink.   Thread: any, one at a time.   Errors: none.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "rendezvous/control_message.h"

namespace drun::agent {

inline constexpr std::size_t kMostWaitingBytes = std::size_t{256} << 10;
inline constexpr std::size_t kFewWaitingBytes = std::size_t{64} << 10;

class LineSender {
 public:
  void open(std::size_t window_bytes);
  // What was not granted, oldest first; nothing waits or is under way then.
  std::vector<rendezvous::Lines> close();

  // `text` goes out with the other fields of `like`; is_end with its last message.
  void push(const rendezvous::Lines& like, std::string_view text);
  // What may go out now, valid until the next call of anything here; null: nothing.
  const rendezvous::Lines* next();
  void granted(std::size_t bytes);

  bool is_congested() const { return is_congested_; }
  bool is_idle() const { return waiting_.empty() && under_way_.empty(); }

 private:
  void add(rendezvous::Lines lines);

  std::size_t window_bytes_ = 0;
  std::size_t waiting_bytes_ = 0;
  std::size_t under_way_bytes_ = 0;
  std::size_t granted_bytes_ = 0;  // not yet a whole message
  bool is_congested_ = false;
  std::deque<rendezvous::Lines> waiting_;
  std::deque<rendezvous::Lines> under_way_;
};

}  // namespace drun::agent
