// edge. Finds, signals and reaps the job's processes that are not workers: descendants of workers,
// including those whose parents have exited and which this process adopted.
//
// Every child of this process belongs to the job, except those given up as unkillable and the
// spared one.
// Owner: Workers.   Thread: the io_context's only.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

namespace drun::agent {

struct ProcessStat;

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

  // Sends `signal`, then SIGCONT, to each descendant that has not been signaled yet. `is_cleanup`:
  // every worker succeeded, so the processes found are reported as terminated.
  void signal_once(int signal, bool is_cleanup);

  // Sends `signal` to each descendant that handles it, including workers.
  void notify(int signal);

  // Sends SIGKILL to each descendant, including workers. `is_cleanup` as above.
  void kill_all(bool is_cleanup);

  // Reaps exited children that are not workers (a worker is reaped by its Process). True if no
  // child is left, apart from those given up.
  bool reap(const IsWorker& is_worker);

  // The descendants that are alive now, except those in marked groups.
  LeftoverList running() const;

  // Excludes this child, which is not part of the job and ends by itself. 0: none.
  void spare(int pid) { spared_ = pid; }

  // Declares all remaining processes unkillable: reports them, and never waits for them again.
  void give_up();

  // The processes that were terminated and given up in this round.
  const Leftovers& leftovers() const { return leftovers_; }

 private:
  bool kill_found(bool is_cleanup);  // true if it found a process not killed before

  std::unordered_set<int> groups_;
  bool is_blind_ = false;
  std::unordered_set<int> signaled_groups_;
  std::unordered_set<int> signaled_;
  std::unordered_set<int> killed_;
  std::vector<int> not_looked_at() const;

  int spared_ = 0;
  std::vector<int> given_up_;  // children of this process; their descendants are given up too
  Leftovers leftovers_;
};

}  // namespace drun::agent
