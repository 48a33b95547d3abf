// edge. Starts the workers of one node, several at a time: no exec is waited for, so that a program
// on a cold shared file system stops nothing but its own worker.
//
// Shape:   start() .. on_all_started() is one round, unless abandon() is called first.
// Order:   workers begin in the order of their local ranks. Refusals are reported in that order,
//          too: one of local rank 3 waits until ranks 0 to 2 have executed their program, or been
//          refused. After a refusal no further worker begins, and the order no longer matters.
// Owner:   Workers, which owns the processes and reports their ends here.
// Thread:  the io_context's only.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/process/child_descriptors.h"
#include "agent/process/spawn.h"
#include "agent/process/warm_starter.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

class WorkerStarter {
 public:
  struct Listener {
    virtual ~Listener() = default;
    // Its process exists. May come from inside start().
    virtual void on_begun(int local_rank, const Spawned& spawned) = 0;
    // Its program was not executed, and no process of it is left. May come from inside start().
    virtual void on_refused(int local_rank, const Refusal& refusal) = 0;
    // Its program runs, but the kernel would not place its memory.
    virtual void on_memory_not_placed(int error_number) = 0;
    // Every worker has executed its program, has ended, or will not begin: the descriptors of the
    // commands are no longer needed. From the io_context.
    virtual void on_all_started() = 0;
  };

  WorkerStarter(asio::io_context& io, Listener& listener);
  WorkerStarter(const WorkerStarter&) = delete;
  WorkerStarter& operator=(const WorkerStarter&) = delete;
  ~WorkerStarter();

  // Keeps what it needs of the commands and of what they borrow, but not their descriptors.
  // `warm` starts the workers that it can; null: none. It outlives the round.
  void start(std::vector<Command> commands, WarmStarter* warm = nullptr);

  // The process of that worker has ended and was reaped. True: its program was never executed, and
  // on_refused() follows or has been called.
  bool ended(int local_rank);

  // Between clone and exec: it has nothing to clean up.
  bool is_starting(int local_rank) const;

  // Begins no more workers; returns the first local rank that never will.
  std::size_t stop();

  // Forgets the starts that are not over: their processes cannot be killed.
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
  std::size_t next_ = 0;             // the first that has not begun
  std::map<int, Pending> pending_;   // by local rank
  std::map<int, Refusal> refusals_;  // not reported yet
  bool is_stopped_ = false;          // no further worker begins
  bool is_refused_ = false;          // one refusal has been reported
  bool is_open_ = false;             // from start() to on_all_started()
  WarmStarter* warm_ = nullptr;
  bool is_asked_ = false;  // warm_ is about to answer
  int round_ = 0;
  bool is_posted_ = false;                                  // begin_more() is
  std::shared_ptr<char> alive_ = std::make_shared<char>();  // tells late handlers that it is gone
};

}  // namespace drun::agent
