// edge. The job's processes that are not workers: workers' children, and those of them who lost
// their parents and were adopted by this process. Signals them, reaps them, says when none is left.
//
// Rule:    every child of this process is the job's, but those given up as unkillable.
// Owner:   Workers.   Thread: the io_context's only.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

namespace drun::agent {

struct Leftover {
  int pid = 0;
  std::string name;  // /proc/<pid>/comm; empty when it could not be read
  bool operator==(const Leftover&) const = default;
};

// What a round left behind. The lists are bounded to 20 entries, the counts are not.
struct Leftovers {
  std::vector<Leftover> stopped;  // ran on when all workers had ended, and were told to go by us
  std::size_t stopped_count = 0;
  std::vector<Leftover> unkillable;  // still there long after SIGKILL
  std::size_t unkillable_count = 0;
  bool operator==(const Leftovers&) const = default;
};

class Orphans {
 public:
  using IsWorker = std::function<bool(int pid)>;

  // A new round: forgets what was signalled and found, not what was given up.
  void begin();

  // A worker leads this group: what is left of it can be signalled where /proc shows nothing.
  void note_group(int group) { groups_.insert(group); }

  // Once true, processes that have left the workers' groups are neither found nor stopped.
  bool is_blind() const { return is_blind_; }

  // This process group has had the signal as a whole; its members are not signalled again.
  void mark_group(int group) { signalled_groups_.insert(group); }

  // The signal, then CONT, to each descendant that has not had its signal yet. `are_leftovers`: no
  // worker runs any more, so those found now are noted.
  void signal_once(int signal, bool are_leftovers);

  // KILL to each descendant, workers included. Those never signalled before are noted.
  void kill_all(bool are_leftovers);

  // Reaps ended children that are no workers (workers are reaped by their Process). True when no
  // child is left, but those given up.
  bool reap(const IsWorker& is_worker);

  // What still lives is noted as unkillable, and no longer waited for.
  void give_up();

  const Leftovers& leftovers() const { return leftovers_; }

 private:
  bool kill_found(bool are_leftovers);  // true when there was somebody not killed before

  std::unordered_set<int> groups_;
  bool is_blind_ = false;
  std::unordered_set<int> signalled_groups_;
  std::unordered_set<int> signalled_;
  std::unordered_set<int> killed_;
  std::vector<int> given_up_;  // children of ours; what is below them is given up too
  Leftovers leftovers_;
};

}  // namespace drun::agent
