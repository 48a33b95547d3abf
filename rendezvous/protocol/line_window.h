// core. How much of the workers' lines that go to the coordinator (--gather-logs) may be under way:
// so much that a fast reader is never waited for, and so little that a reader who has stopped costs
// neither side more than a known amount of memory.
//
// Flow:    a member may have lines of one window under way; what the coordinator has passed on to
//          its console it grants again. Other messages need no grant, and never wait for lines.
// Units:   bytes as cost_bytes() counts them: a message's text, and something for the message.
// Owner:   LineLedger: the coordinator's, for all its members.
// Thread:  any, one at a time.   Errors: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "rendezvous/protocol/control_message.h"

namespace drun::rendezvous {

inline constexpr std::size_t kLineMessageBytes = 128;  // that a message costs without any text
inline constexpr std::size_t kMostLinesTextBytes = std::size_t{64} << 10;

// Of each member of a job: 1 MiB, less in a large one, so that all of them need no more than 64 MiB
// (or 64 KiB each).
std::size_t line_window_bytes(int node_count);

// The longest text of one message: a quarter of a window, so that one can always go out before all
// that is under way has been taken.
std::size_t most_text_bytes(std::size_t window_bytes);

std::size_t cost_bytes(const Lines& lines);

class LineLedger {
 public:
  explicit LineLedger(std::size_t window_bytes) : window_bytes_(window_bytes) {}

  // Lines have been received. False: more than that member may send.
  bool accept(std::uint64_t peer, std::size_t cost);
  // They have been passed on. Returns the bytes to grant now: a quarter of a window at a time, or
  // all once nothing of that member waits; 0: nothing yet.
  std::size_t taken(std::uint64_t peer, std::size_t cost);
  // Whether it had ever sent any.
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
