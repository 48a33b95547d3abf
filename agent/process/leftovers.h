// edge. The job's processes that are not workers: the workers' descendants, including those that
// lost their parents and were adopted by this process. Finds, signals and reaps them.
//
// Every child of this process belongs to the job, except those given up as unkillable.
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
  std::optional<int> rank;  // of the worker that it belongs to, by its environment
  std::string reason;       // of an unkillable one: why it still exists
  bool operator==(const Leftover&) const = default;
};

// At most 20 processes are listed; all are counted.
struct LeftoverList {
  std::vector<Leftover> listed;
  std::size_t count = 0;
  bool operator==(const LeftoverList&) const = default;
};

// What became of the processes that outlived their workers. `terminated` and `kept` are about
// rounds in which every worker returned 0.
struct Leftovers {
  LeftoverList terminated;  // were sent SIGTERM or SIGKILL
  LeftoverList kept;        // are still running, as the policy asks
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

  // A new round: forgets all but the processes that were given up.
  void begin();

  // A worker leads this group: what is left of it can be signalled where /proc shows nothing.
  void note_group(int group) { groups_.insert(group); }

  // Once true, processes that have left the workers' groups are neither found nor stopped.
  bool is_blind() const { return is_blind_; }

  // The members of this process group have been signalled and are not signalled again. They are
  // never reported as leftover processes.
  void mark_group(int group) { signalled_groups_.insert(group); }

  // The signal, then SIGCONT, to each descendant that has not been signalled yet. `is_cleanup`:
  // every worker succeeded, so what is found is reported as terminated.
  void signal_once(int signal, bool is_cleanup);

  // The signal to each descendant, workers included, that handles it.
  void notify(int signal);

  // SIGKILL to each descendant, workers included. `is_cleanup` as above.
  void kill_all(bool is_cleanup);

  // Reaps exited children that are not workers (a worker is reaped by its Process). True if no
  // child is left, apart from those given up.
  bool reap(const IsWorker& is_worker);

  // The descendants that are alive now, except those in marked groups.
  LeftoverList running() const;

  // This child is no part of the job and ends by itself; 0: there is none.
  void spare(int pid) { spared_ = pid; }

  // The processes that are alive now are unkillable: reports them, and never waits for them again.
  void give_up();

  // The processes that were terminated and given up in this round.
  const Leftovers& leftovers() const { return leftovers_; }

 private:
  bool kill_found(bool is_cleanup);  // true if there was a process not killed before

  std::unordered_set<int> groups_;
  bool is_blind_ = false;
  std::unordered_set<int> signalled_groups_;
  std::unordered_set<int> signalled_;
  std::unordered_set<int> killed_;
  std::vector<int> not_looked_at() const;

  int spared_ = 0;
  std::vector<int> given_up_;  // children of this process; their descendants are given up too
  Leftovers leftovers_;
};

}  // namespace drun::agent
