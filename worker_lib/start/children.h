// edge. Processes forked from this program: started, watched and stopped together.
//
// Owner:   kills and reaps whatever is left when it goes.
// Thread:  the one that made it; the kernel kills the children when that thread ends.
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

// How one ended.
struct ChildEnd {
  std::optional<int> exit_code = std::nullopt;
  std::optional<int> signal = std::nullopt;
  std::string words = "";  // what it said with its last breath

  bool is_failure() const { return exit_code != 0; }
};

class Children {
 public:
  Children() = default;
  ~Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  // `body` runs in the child, and gives its exit code; its last words go to `say`, up to 4 KiB.
  // Must not throw.
  using Say = std::function<void(const std::string& words)>;
  void start(const std::function<int(const Say& say)>& body);

  // Until one or more have ended that had not before; which. Empty: `deadline` passed, or none is
  // left.
  using Deadline = std::chrono::steady_clock::time_point;
  std::vector<std::size_t> wait_any(std::optional<Deadline> deadline);
  // Of one that has ended, in the order of start.
  const ChildEnd& end_of(std::size_t child) const { return *children_[child].end; }
  std::size_t size() const { return children_.size(); }
  bool has_ended(std::size_t child) const { return children_[child].end.has_value(); }

  // To all that have not ended.
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
