// core. Flow control for the workers' lines that members send to the coordinator (--gather-logs).
// The window is large enough to keep a fast reader busy, and small enough to bound the memory on
// both sides if the reader stops.
//
// Flow:    a member may have one window of unacknowledged lines. The coordinator grants bytes again
//          once it has passed lines on to its console. Other messages need no grant and do not wait
//          for lines.
// Units:   bytes as counted by cost_bytes(): the text of a message plus kLineMessageBytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "rendezvous/protocol/control_message.h"

namespace drun::rendezvous {

inline constexpr std::size_t kLineMessageBytes = 128;  // the cost of a message without text
inline constexpr std::size_t kMostLinesTextBytes = std::size_t{64} << 10;

// The window of each member: 1 MiB, and less in a large job, so that all windows together need at
// most 64 MiB (or 64 KiB each).
constexpr std::size_t line_window_bytes(int node_count) {
  constexpr std::size_t kAll = std::size_t{64} << 20;
  constexpr std::size_t kSmallest = std::size_t{64} << 10;
  constexpr std::size_t kLargest = std::size_t{1} << 20;
  const auto nodes = static_cast<std::size_t>(std::max(1, node_count));
  return std::clamp(kAll / nodes, kSmallest, kLargest);
}

// The longest text of one message: a quarter of a window, so that a member can send the next
// message before all earlier ones are acknowledged.
constexpr std::size_t most_text_bytes(std::size_t window_bytes) {
  return std::clamp(window_bytes / 4, kLineMessageBytes + 1,
                    kMostLinesTextBytes + kLineMessageBytes) -
         kLineMessageBytes;
}

inline std::size_t cost_bytes(const Lines& lines) { return kLineMessageBytes + lines.text.size(); }

// The coordinator's account of the lines of all members.
class LineLedger {
 public:
  explicit LineLedger(std::size_t window_bytes) : window_bytes_(window_bytes) {}

  // Lines were received. Returns false if they exceed the member's window.
  bool accept(std::uint64_t peer, std::size_t cost) {
    Account& account = accounts_[peer];
    if (cost > window_bytes_ || account.waiting + account.owed > window_bytes_ - cost) return false;
    account.waiting += cost;
    return true;
  }
  // Lines were passed on. Returns the bytes to grant now: a quarter of a window at a time, or all
  // once no lines of that member wait; 0: none yet.
  std::size_t taken(std::uint64_t peer, std::size_t cost) {
    const auto found = accounts_.find(peer);
    if (found == accounts_.end()) return 0;
    Account& account = found->second;
    account.waiting -= std::min(cost, account.waiting);
    account.owed += cost;
    const bool is_due = account.waiting == 0 || account.owed >= window_bytes_ / 4;
    return is_due ? std::exchange(account.owed, 0) : 0;
  }
  // Removes a member. Returns whether it has sent any lines.
  bool forget(std::uint64_t peer) { return accounts_.erase(peer) > 0; }

 private:
  struct Account {
    std::size_t waiting = 0;
    std::size_t owed = 0;
  };

  const std::size_t window_bytes_;
  std::unordered_map<std::uint64_t, Account> accounts_;
};

}  // namespace drun::rendezvous
