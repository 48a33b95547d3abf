// edge. Child processes forked from this program, which are started, watched and stopped together.
//
// The destructor kills and reaps all remaining children.
// Thread:  the thread that created it; the kernel kills the children when that thread ends.
// Errors:  WorkerError (System).
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/unique_fd.h"

namespace drun::worker {

// The end of one child.
struct ChildEnd {
  std::optional<int> exit_code = std::nullopt;
  std::optional<int> signal = std::nullopt;
  std::string words = "";  // its final message (Children::Say); empty: none

  bool is_failure() const { return exit_code != 0; }
};

class Children {
 public:
  Children() = default;
  ~Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  // Starts a child that runs `body` and exits with its result. `body` must not throw. It can call
  // `say` once to pass a final message of up to 4 KiB to the parent.
  using Say = std::function<void(const std::string& words)>;
  void start(const std::function<int(const Say& say)>& body);

  // Waits until at least one more child has ended, and returns the indexes of those. Empty if the
  // deadline has passed or no child is left.
  using Deadline = std::chrono::steady_clock::time_point;
  std::vector<std::size_t> wait_any(std::optional<Deadline> deadline);
  // The end of a child that has ended. Children are numbered in the order of start.
  const ChildEnd& end_of(std::size_t child) const { return *children_[child].end; }
  std::size_t size() const { return children_.size(); }
  bool has_ended(std::size_t child) const { return children_[child].end.has_value(); }

  // Sends a signal to all running children.
  void signal_all(int number);
  bool is_any_left() const;

 private:
  struct Child {
    UniqueFd pidfd;
    UniqueFd words;
    std::optional<ChildEnd> end;
  };
  void reap(Child& child);

  std::vector<Child> children_;
};

}  // namespace drun::worker
