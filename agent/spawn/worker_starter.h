// edge. Starts the workers of one node, several at a time, without waiting for their exec, so that
// a program on a cold shared file system delays only its own worker.
//
// Shape:   start() .. on_all_started() is one round, unless abandon() is called first.
// Order:   workers begin in the order of their local ranks. Refusals are reported in that order
//          too: one of local rank 3 is reported when ranks 0 to 2 have executed their program or
//          been refused. After a refusal no further worker begins, and the order no longer matters.
// Owner:   Workers, which owns the processes and reports their ends here.
// Thread:  the io_context's only.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/spawn/child_descriptors.h"
#include "agent/spawn/command.h"
#include "agent/spawn/spawn.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

// Starts workers without an exec: as forks of a process that has loaded their program's modules
// already (agent/preload). Used in place of Spawner, worker by worker.
class WarmStarter {
 public:
  // The worker's process exists and is a child of this process; it waits for Start::go(). Absent:
  // it has no process and can be started in the usual way.
  using OnBegun = std::function<void(std::optional<Spawner::Begun>)>;

  virtual ~WarmStarter() = default;

  // `on_begun` is called once, by the io_context, never from within start(). One start at a time.
  // False: start this worker in the usual way; `on_begun` is not called.
  virtual bool start(const Command& command, int local_rank, OnBegun on_begun) = 0;

  // Ends a start that is pending `grace` from now, if there is one. Its `on_begun` is called.
  virtual void cancel(std::chrono::milliseconds grace) = 0;
};

class WorkerStarter {
 public:
  struct Listener {
    virtual ~Listener() = default;
    // The worker's process exists. May be called from within start().
    virtual void on_begun(int local_rank, const Spawned& spawned) = 0;
    // Not executed, and no process is left. EBUSY: children that cannot be killed hold all places.
    virtual void on_refused(int local_rank, const Refusal& refusal) = 0;
    // The program runs, but the kernel rejected its memory policy.
    virtual void on_memory_not_placed(int error_number) = 0;
    // Every worker has executed its program, has ended, or will not begin: the descriptors of the
    // commands are no longer needed. From the io_context.
    virtual void on_all_started() = 0;
  };

  // `most_at_once`: of the workers that are started at the same time, the first ones only.
  WorkerStarter(asio::io_context& io, Listener& listener,
                std::size_t most_at_once = ChildDescriptors::kSlots);
  WorkerStarter(const WorkerStarter&) = delete;
  WorkerStarter& operator=(const WorkerStarter&) = delete;
  ~WorkerStarter();

  // Copies the data that it needs from the commands, but not their descriptors. `warm` starts the
  // workers that it supports (null: none); it must outlive the round.
  void start(std::vector<Command> commands, WarmStarter* warm = nullptr);

  // The process of that worker has ended and was reaped. True: its program was never executed, and
  // on_refused() follows or has been called.
  bool ended(int local_rank);

  // True between clone and exec, when the process has nothing to clean up.
  bool is_starting(int local_rank) const;

  // Begins no more workers; returns the first local rank that never will. A warm start that is
  // pending has a second to end.
  std::size_t stop();
  // After stop(): such a start has no time left.
  void kill();

  // Gives up the pending starts, because their processes cannot be killed.
  void abandon();

 private:
  struct Pending;

  void begin_more();
  void begin_one(int local_rank);
  bool ask_warm(int local_rank);
  void begin_plainly(int local_rank);
  void take(int local_rank, Spawner::Begun begun);
  void watch(int local_rank, Pending& pending);
  void settle(int local_rank);
  void refuse(int local_rank, const Refusal& refusal);
  void report_refusals();
  void report_if_done();

  asio::io_context& io_;
  Listener& listener_;
  const ChildDescriptors descriptors_;
  Spawner spawner_{descriptors_};
  std::vector<std::string> inherited_;
  std::vector<WorkerPlacement> placements_;
  std::vector<Command> commands_;
  std::size_t next_ = 0;             // the first worker that has not begun
  std::map<int, Pending> pending_;   // by local rank
  std::map<int, Refusal> refusals_;  // not reported yet
  bool is_stopped_ = false;          // no further worker begins
  bool is_refused_ = false;          // one refusal has been reported
  bool is_open_ = false;             // from start() to on_all_started()
  WarmStarter* warm_ = nullptr;
  bool is_asked_ = false;  // a start of warm_ is pending
  int round_ = 0;
  bool is_posted_ = false;                                  // begin_more() is posted
  std::shared_ptr<char> alive_ = std::make_shared<char>();  // expired: this object was destroyed
};

}  // namespace drun::agent
