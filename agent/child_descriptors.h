// edge. Which of our descriptors a child gets: 0, 1, 2 and those that this process was itself
// started with. What drun has opened since reaches no child, marked close-on-exec or not.
//
//   at the start        0 1 2 | the user's | low low low         low: three of ours, to hand over
//   by later               0 1 2 | the user's | low low low | pipes, sockets, pidfds ... what a
//   child copies `--------- below first_of_ours() '
//
// A child that copies the whole table and has exec close it again pays for every descriptor that
// its elders have here: with 256 workers four fifths of what their start took.
//
// Owner:   one a process, made before it opens what children are not to have.
// Thread:  any, one at a time.
// Errors:  is_usable() is false where the kernel or a sandbox has no close_range(2), and where
// /proc
//          is not to be read: children then copy all, and exec closes what is close-on-exec.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "rendezvous/unique_fd.h"

namespace drun::agent {

class ChildDescriptors {
 public:
  ChildDescriptors();

  struct Range {
    unsigned first = 0;
    unsigned last = 0;
  };

  bool is_usable() const { return !ours_.empty(); }
  // What a child is not to have, the highest range first: it has no end.
  std::span<const Range> ours() const { return ours_; }

  // Copies of the three that a child of this table can have; false: errno says why. Requires
  // is_usable().
  bool lay_out(const std::array<int, 3>& fds) const;
  std::array<int, 3> laid_out() const { return {low_[0].get(), low_[1].get(), low_[2].get()}; }
  // Lets go of what was laid out last: a pipe has its end when nobody holds it.
  void clear() const;

 private:
  UniqueFd null_;
  std::array<UniqueFd, 3> low_;
  std::vector<Range> ours_;
};

// In a child that shares its parent's table (CLONE_FILES): gets one of its own, without `ours`.
// Async-signal-safe; false: errno says why.
bool leave_descriptors(std::span<const ChildDescriptors::Range> ours);

}  // namespace drun::agent
