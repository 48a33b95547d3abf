// edge. The descriptors of children. Limits those that a child inherits to 0, 1, 2 and those with
// which this process was started: descriptors that drun opened later reach no child, close-on-exec
// or not. Others are passed in messages.
//
//   at the start        0 1 2 | the user's | low low low ...     low: ours, one slot for each child
//   by later            0 1 2 | the user's | low low low ... |   that is being started: a socket
//   a child copies `---------------------------------------' |   for its 0, 1 and 2
//                                                 pipes, sockets, pidfds ...
//
// A child shares our table when it is cloned (CLONE_FILES). Its first system call gives it a copy
// that holds only the low descriptors. If a child copied the whole table and had exec close it
// again, it would pay for every descriptor of the workers before it: with 256 workers, four fifths
// of the time to start them.
//
// Owner:   one per process, created before it opens descriptors that children must not have.
// Thread:  any, one at a time.
// Errors:  is_usable() is false where the kernel or a sandbox has no close_range(2), and where
//          /proc cannot be read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "rendezvous/base/unique_fd.h"

namespace drun::agent {

// --- The limit on descriptors. 256 workers' pipes or a thousand members do not fit in the 1024
// that most systems start with. Workers get the user's limit, for programs that use select().

// Raises this process's soft limit to its hard limit. Returns the previous one; absent if nothing
// was changed.
std::optional<std::uint64_t> raise_descriptor_limit();

// --- The descriptors of children

class ChildDescriptors {
 public:
  // Children that can be between clone and exec at one time. With a few descriptors of the user's,
  // they fit the 64 for which the kernel allocates no table.
  static constexpr std::size_t kSlots = 12;

  explicit ChildDescriptors(std::size_t slots = kSlots);

  struct Range {
    unsigned first = 0;
    unsigned last = 0;
  };

  bool is_usable() const { return !slots_.empty(); }
  std::size_t slot_count() const { return slots_.size(); }

  // The descriptors that the child of this slot must not have. The highest range, which has no end,
  // is first.
  std::span<const Range> ours(std::size_t slot) const { return slots_[slot].ours; }
  // Puts a copy of the socket into the slot. On failure returns false and sets errno.
  bool lay_out(std::size_t slot, int socket) const;
  // The copy, under the number that it has in the child, too. Close-on-exec.
  int laid_out(std::size_t slot) const { return slots_[slot].low.get(); }
  // Closes the slot's copy. A socket only reaches its end when every copy is closed.
  void clear(std::size_t slot) const { lay_out(slot, null_.get()); }

 private:
  struct Slot {
    UniqueFd low;
    std::vector<Range> ours;
  };

  UniqueFd null_;
  std::vector<Slot> slots_;
};

// Closes these descriptors of this process, on kernels without close_range(2) too.
void close_descriptors(unsigned first, unsigned last);

// In a child that shares its parent's table: replaces it by a copy without `ours`. Makes raw system
// calls only. Returns 0 or an errno.
int leave_descriptors(std::span<const ChildDescriptors::Range> ours);

// --- Passing descriptors to another process, in a message over a socket (SCM_RIGHTS)
//
// A copy made by dup(2) has to be closed again, and closing a file flushes it: on a network file
// system that hangs, close(2) and dup3(2) wait. A descriptor in a message is not a copy of that
// kind; closing the socket does not wait for a file system.

// Connected sockets that keep the bounds of messages, close-on-exec.
struct SocketPair {
  UniqueFd ours;  // non-blocking
  UniqueFd theirs;
};
std::optional<SocketPair> socket_pair();

inline constexpr std::size_t kMostPassed = 5;

// Sends `text`, which must not be empty, with at most kMostPassed descriptors. Does not wait.
// Returns 0 or an errno.
int send_descriptors(int socket, std::string_view text, std::span<const int> fds);

// Receives the next message's three descriptors, close-on-exec. Waits for it. Makes one raw system
// call, so that a child between clone and exec can use it (raw_syscall.h). Returns 0 or an errno.
int receive_descriptors(int socket, std::array<int, 3>& fds);

}  // namespace drun::agent
