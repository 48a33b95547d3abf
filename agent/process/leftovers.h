// edge. Finds, signals and reaps the job's processes that are not workers: descendants of workers,
// including those whose parents have exited and which this process adopted.
//
// Every child of this process belongs to the job, except those given up as unkillable and the
// spared one.
// Owner: Workers.   Thread: the io_context's only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "agent/process/descendants.h"
#include "agent/process/proc.h"

namespace drun::agent {

struct Leftover {
  int pid = 0;
  std::string name;         // /proc/<pid>/comm; empty if it could not be read
  std::optional<int> rank;  // RANK in its environment
  std::string reason;       // of an unkillable one: why it still exists
  bool operator==(const Leftover&) const = default;
};

// At most 20 processes are listed; all are counted.
struct LeftoverList {
  std::vector<Leftover> listed;
  std::size_t count = 0;
  bool operator==(const LeftoverList&) const = default;
};

// The processes that outlived their workers, by what happened to them. `terminated` and `kept` are
// filled only in rounds in which every worker returned 0.
struct Leftovers {
  LeftoverList terminated;  // were sent SIGTERM or SIGKILL
  LeftoverList kept;        // left running, as LeftoverPolicy::Keep requires
  LeftoverList unkillable;  // still exist long after SIGKILL
  bool operator==(const Leftovers&) const = default;
};

// "pid 7 (bg.sh, rank 0)"
std::string to_string(const Leftover& process);

// "pid 7 (bg.sh, rank 0), pid 8 (bg.sh, rank 1) and 3 more"
std::string to_string(const LeftoverList& processes);

class Orphans {
 public:
  using IsWorker = std::function<bool(int pid)>;

  // Starts a new round: forgets all processes except those given up.
  void begin();

  // This process group is a worker's. Its members are signaled as a group if /proc cannot be read
  // completely.
  void note_group(int group) { groups_.insert(group); }

  // True once /proc could not be read completely: from then on, processes that have left the
  // workers' groups are neither found nor stopped.
  bool is_blind() const { return is_blind_; }

  // The members of this process group have been signaled and are not signaled again. They are
  // never reported as leftover processes.
  void mark_group(int group) { signaled_groups_.insert(group); }
  // The workers' groups have just been signaled. `begin`: ticks_since_boot() before the first one.
  void note_group_signals(std::uint64_t begin) {
    group_signals_ = {.begin = begin, .end = ticks_since_boot()};
  }

  // Sends `signal`, then SIGCONT, to each descendant that has not been signaled yet. `is_cleanup`:
  // every worker succeeded, so the processes found are reported as terminated.
  void signal_once(int signal, bool is_cleanup);

  // A worker has died of the stop signal that its marked group got. From now on, signal_missed()
  // looks at what is left of its group.
  void note_stopped(int group) { leaderless_groups_.insert(group); }

  // Sends `signal` to processes that their group's signal has missed because they began just after
  // it: a program that creates a child may block signals until the child exists (posix_spawn(3),
  // shells, Python), and then dies of the signal, which the child has not got. Only adopted members
  // of groups of note_stopped() count, since a child of a living process may belong to its cleanup.
  // Cheap if these groups have no members. Call it when a child has ended.
  void signal_missed(int signal);

  // Sends `signal` to each descendant that handles it, including workers. False if that cannot be
  // known.
  bool notify(int signal);

  // Sends SIGKILL to each descendant, including workers. `is_cleanup` as above.
  void kill_all(bool is_cleanup);

  // Reaps exited children that are not workers (a worker is reaped by its Process). True if no
  // child is left, apart from those given up.
  bool reap(const IsWorker& is_worker);

  // The descendants that are alive now, except those in marked groups.
  LeftoverList running();

  // Excludes this child, which is not part of the job and ends by itself. 0: none.
  void spare(int pid) { spared_ = pid; }

  // Declares all remaining processes unkillable: reports them, and never waits for them again.
  void give_up();

  // The processes that were terminated and given up in this round.
  const Leftovers& leftovers() const { return leftovers_; }

 private:
  // Identifies a process: its pid, and when it began.
  using ProcessId = std::pair<int, std::uint64_t>;

  bool kill_found(bool is_cleanup);  // true if it found a process not killed before
  bool note_whole(const Descendants& found);
  std::vector<int> not_looked_at() const;

  std::unordered_set<int> groups_;
  bool is_blind_ = false;
  std::unordered_set<int> signaled_groups_;
  struct Ticks {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  Ticks group_signals_;
  std::unordered_set<int> leaderless_groups_;
  std::set<ProcessId> signaled_;
  std::set<ProcessId> killed_;
  int spared_ = 0;
  std::vector<int> given_up_;  // children of this process; their descendants are given up too
  Leftovers leftovers_;
};

}  // namespace drun::agent
