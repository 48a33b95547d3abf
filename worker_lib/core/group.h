// edge. The implementation of ProcessGroup: checks arguments, runs collectives in order, keeps
// their deadlines, and breaks the group with the first failure.
//
//     healthy --any failure--> broken        (for good; first_cause_ says why)
//
// Order:   a collective gets its number at its turn: when it locks running_, or, if another one is
//          running or pending, when it is queued under submitting_. No thread waits for another
//          rank while it holds submitting_. Collectives that the backend starts itself, such as on
//          GPUs, are not ordered with the others.
// Failing: see failure.h.
// Threads: the caller's for the operations that it waits for; those of the job's Progress for
//          others, and to complete what the backend has started; the job's watch.
// Destroy: requests, backend, store, hosted store, in this order.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "drun/backend.h"
#include "drun/process_group.h"
#include "worker_lib/core/calls.h"
#include "worker_lib/core/failure.h"
#include "worker_lib/core/join.h"

namespace drun {

class ProcessGroup::Group {
 public:
  using Timeout = ProcessGroup::Timeout;

  explicit Group(worker::GroupParts parts);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const worker::GroupParts& parts() const { return parts_; }
  worker::Place place() const { return {parts_.rank, parts_.size}; }

  void run(const Call& call, Timeout timeout);
  // `counts`: kept until the operation is done.
  Work start(const Call& call, Timeout timeout, std::shared_ptr<const void> counts = nullptr);
  int exchange(const MessageCall& message, Timeout timeout);
  Work start(const MessageCall& message, Timeout timeout);
  std::vector<Work> start(const std::vector<MessageCall>& batch, Timeout timeout);
  // Of an operation that is started now.
  Deadline deadline(Timeout timeout) const;
  void monitored_barrier(Timeout timeout, bool names_all);
  std::shared_ptr<void> alloc_shared(std::size_t size_bytes, Timeout timeout);
  // Exchanges numbers, the same count on each rank; returns all in rank order. Every rank must call
  // it.
  std::vector<int> told_by_all(const std::vector<int>& mine, Timeout timeout);
  // Null on ranks that are not in `ranks`.
  std::shared_ptr<Group> new_group(const std::vector<int>& ranks, Timeout timeout);
  // Null on ranks without a color.
  std::shared_ptr<Group> split(std::optional<int> color, int key, Timeout timeout);

  // Whether no operation is running or pending.
  bool is_idle();

  // No effect in a forked child: what the group shares belongs to the parent process.
  void destroy();

 private:
  // The text for an operation in errors; made only if needed.
  using Name = std::function<std::string()>;

  struct Limit {
    Deadline deadline{};
    std::chrono::milliseconds time{0};
    std::optional<int> peer = std::nullopt;        // of a message
    std::shared_ptr<const void> counts = nullptr;  // of its call
  };

  // Throws if no operation can be started.
  template <typename Namer>
  Limit admit(const Namer& name, Timeout timeout);
  // Counts an asynchronous operation among the pending ones during its lifetime.
  using Pending = std::shared_ptr<void>;
  // Throws if too many are pending.
  template <typename Namer>
  Pending pend(const Namer& name);
  void check_possible(const Call& call) const;
  void check_possible(const MessageCall& message) const;
  // Runs `action`. An exception becomes the group's failure.
  template <typename Namer, typename Action>
  auto guarded(const Namer& name, const Limit& limit, Action&& action);
  // Runs `action` after all earlier operations.
  template <typename Namer, typename Action>
  void in_turn(const Namer& name, const Limit& limit, Action&& action);
  // A started operation, a Call or a MessageCall. Finishes its Transfer.
  template <typename What>
  class Started;
  // The Work of a started message.
  Work watched(const MessageCall& message, const Limit& limit, Pending pending,
               const std::shared_ptr<Transfer>& transfer);
  // Call it before an operation that a thread of the requests may have to run. Throws the
  // operation's error, without breaking the group, if no thread can be started.
  void need_thread(const Name& name);
  // One of the groups that are created together, each with its own color.
  struct Subgroup {
    std::string name;  // of the operation
    std::optional<int> color = std::nullopt;
    std::vector<int> ranks = {};  // of that color
  };
  std::shared_ptr<Group> create(const Subgroup& subgroup, const Limit& limit);
  // Queues it after all operations started before. Requires that `submitting_` is held.
  Work queue(Name name, Limit limit, std::function<void(const Turn& turn)> action);
  // These record the operation in the heartbeat page (pulse.h).
  void run_now(const Call& call, const Turn& turn);
  std::unique_ptr<Transfer> begin(const Call& call, const Turn& turn);
  std::unique_ptr<Transfer> post(const MessageCall& message);
  std::vector<std::unique_ptr<Transfer>> post(const std::vector<MessageCall>& batch);
  // Runs an action at the store. Its errors get the operation's name, and do not break the group.
  template <typename Action>
  void at_store(const std::string& name, Action&& action);
  // Waits until every key is set; false if the deadline passes. keys[i] belongs to ranks[i]: throws
  // PeerLost if that rank has ended without setting it, and Broken once the group has failed.
  // `prefix`: of all keys of the operation.
  bool wait_or_lose(const std::string& prefix, const std::vector<std::string>& keys,
                    const std::vector<int>& ranks, Deadline deadline);
  // On rank 0: until every other rank has set its key.
  void wait_for_all(const std::string& prefix, Deadline deadline, bool names_all);
  // On other ranks: until rank 0 has set its key, "all".
  void wait_for_first(const std::string& prefix, Deadline deadline);
  void forget(const std::string& key);

  // Breaks the group unless it is broken already. Returns the error to throw.
  WorkerError fail(const std::string& operation, const BackendFailure& failure);
  void on_end(int rank);
  // Requires that the group has failed.
  BackendFailure broken();
  BackendFailure late(const Limit& limit) const;
  WorkerError error(WorkerError::Kind kind, const std::string& operation,
                    const std::string& message, std::optional<int> peer = std::nullopt) const;

  worker::GroupParts parts_;
  const int fork_generation_;
  std::mutex submitting_;
  std::timed_mutex running_;
  std::atomic<std::uint32_t> sequence_ = 0;
  std::atomic<int> unfinished_ = 0;       // queued collectives that are not done
  std::atomic<std::size_t> pending_ = 0;  // asynchronous operations
  int groups_ = 0;                        // created from this one
  int barriers_ = 0;                      // monitored ones
  int tellings_ = 0;                      // exchanges of numbers over the store
  worker::GroupFailure failure_;
  bool is_backend_told_ = false;
  worker::Watch::Id lifelines_ = 0;
  std::unique_ptr<worker::GroupRequests> requests_;
};

}  // namespace drun
