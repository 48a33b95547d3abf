// edge. The implementation of ProcessGroup: checks arguments, runs collectives in order, keeps
// their deadlines, and breaks the group with the first failure.
//
//     healthy --any failure--> broken        (for good; first_cause_ says why)
//
// Order:   a collective gets its number when it has its turn: running_, or, under submitting_, a
//          place in the executor's queue while something asynchronous is not done.
// Failing: 1. a lost connection waits, half a second at most, for the kernel to report the end of a
//          process on this node, or for another rank's cause;
//          2. the cause is put into the store, unless another rank's is there already: the first
//          one wins and every rank repeats it;
//          3. the backend is aborted, which wakes this rank's other threads and is seen by its
//          peers, which do the same. A store that does not answer delays that by kPromptTime
//          only; then the cause is sent again after the abort.
//          So a rank that sees a connection close finds the cause in the store, or else the peer's
//          process has ended.
// Threads: the caller's, for what is synchronous, and for messages it waits for; executor_ for
//          asynchronous collectives, request_threads_ for other messages; the job's watch.
// Destroy: threads, backend, store, hosted store: in this order.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "drun/backend.h"
#include "drun/process_group.h"
#include "rendezvous/job/world.h"
#include "worker_lib/base/threads.h"
#include "worker_lib/core/backends.h"
#include "worker_lib/core/calls.h"
#include "worker_lib/core/cause.h"
#include "worker_lib/core/requests.h"
#include "worker_lib/core/watch.h"
#include "worker_lib/start/peer_processes.h"

namespace drun {
namespace worker {

// What all groups of one connect share.
struct Job {
  WorkerIdentity self;
  std::chrono::milliseconds timeout{0};  // where a call gives none
  BackendChoice backend;
  std::string address = "";  // this rank's
  bool is_debug = false;
  bool rank0_hosts_store = false;
  std::shared_ptr<void> hosted_store = nullptr;  // kept alive only
  PeerProcesses processes = {};
  Watch watch;
};

struct GroupParts {
  std::shared_ptr<Job> job;
  int rank = 0;
  int size = 1;
  std::vector<int> node_of = {0};
  std::vector<int> world_ranks = {0};  // of this group's ranks
  std::uint32_t label = 0;  // tells groups of one process apart, for who looks on; 0: the first
  std::shared_ptr<KeyStore> store = nullptr;  // with this group's prefix; none in a world of one
  std::unique_ptr<Backend> backend = nullptr;
};

// The backend of a group with these parts; `split_off`: of what it is made from. Throws
// BackendFailure or WorkerError.
std::unique_ptr<Backend> connect_backend(const GroupParts& parts, Deadline deadline,
                                         std::shared_ptr<void> split_off = nullptr);

}  // namespace worker

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
  Work start(const Call& call, Timeout timeout);
  int exchange(const worker::Message& message, Timeout timeout);
  Work start(const worker::Message& message, Timeout timeout);
  void monitored_barrier(Timeout timeout, bool names_all);
  std::shared_ptr<void> alloc_shared(std::size_t size_bytes, Timeout timeout);
  // Each rank's numbers, as many as these, in rank order. A collective, but for the order of those.
  std::vector<int> told_by_all(const std::vector<int>& mine, Timeout timeout);
  // Null on ranks that are not among them.
  std::shared_ptr<Group> new_group(const std::vector<int>& ranks, Timeout timeout);

  void destroy();

 private:
  // What an operation is called in errors; made only when needed.
  using Name = std::function<std::string()>;

  struct Limit {
    Deadline deadline{};
    std::chrono::milliseconds time{0};
    std::optional<int> peer = std::nullopt;  // of a message
  };

  // Throws when nothing may be started.
  template <typename Namer>
  Limit admit(const Namer& name, Timeout timeout);
  void check_possible(const Call& call) const;
  void check_possible(const worker::Message& message) const;
  // Runs `action`. An exception becomes the group's failure.
  template <typename Namer, typename Action>
  auto guarded(const Namer& name, const Limit& limit, Action&& action);
  // Runs `action` after all earlier operations.
  template <typename Namer, typename Action>
  void in_turn(const Namer& name, const Limit& limit, Action&& action);
  // nullopt if it cannot be started immediately. Requires that `submitting_` is held.
  std::optional<Work> start_now(const Name& name, const Limit& limit, const Call& call);
  worker::Request::Action finishing(const Name& name, const Limit& limit,
                                    std::shared_ptr<Transfer> transfer);
  // A failure is thrown as the operation's, and breaks nothing.
  void start_thread_of(const Name& name, const std::function<void()>& start);
  // The resources that a group of `ranks` can share with this one.
  std::shared_ptr<void> split_off(const std::string& name, const Limit& limit,
                                  const std::vector<int>& ranks);
  // Puts it behind everything that was started before; `submitting_` is held.
  Work queue(Name name, Limit limit, std::function<void(const Turn& turn)> action);
  // Each with its mark in the page of signs of life (pulse.h).
  void run_now(const Call& call, const Turn& turn);
  std::unique_ptr<Transfer> begin(const Call& call, const Turn& turn);
  std::unique_ptr<Transfer> post(const worker::Message& message);
  // Until every key is set; false: past the deadline. Throws PeerLost for one of `ranks` that has
  // ended and not set its key, the one at the same place.
  bool wait_or_lose(const std::vector<std::string>& keys, const std::vector<int>& ranks,
                    Deadline deadline);
  void wait_for_all(const std::string& prefix, Deadline deadline, bool names_all);

  // Breaks the group if it is not broken yet; returns what to throw.
  WorkerError fail(const std::string& operation, const BackendFailure& failure);
  worker::Cause publish(const worker::Cause& cause);
  // Names the rank whose process has ended, if that is why a connection was lost. Waits for the
  // kernel's report, at most kConfirmTime.
  void confirm(worker::Cause& cause);
  bool has_first_cause();
  // Of `ranks`, the first whose process has ended; waits for one, at most `time`.
  std::optional<int> ended_rank(const std::vector<int>& ranks, std::chrono::milliseconds time);
  void on_end(int rank);
  BackendFailure late(const Limit& limit) const;
  WorkerError error(WorkerError::Kind kind, const std::string& operation,
                    const std::string& message) const;

  worker::GroupParts parts_;
  const int fork_generation_;
  std::mutex submitting_;
  std::timed_mutex running_;
  std::atomic<std::uint32_t> sequence_ = 0;
  std::atomic<int> unfinished_ = 0;  // asynchronous collectives, of those the executor is to run
  int groups_ = 0;                   // made from this one
  int barriers_ = 0;                 // monitored ones
  int tellings_ = 0;                 // over the store
  std::atomic<bool> is_broken_ = false;
  std::mutex failing_;
  std::condition_variable failed_;  // first_cause_ is there
  std::optional<worker::Cause> first_cause_;
  std::mutex ending_;
  std::vector<bool> has_ended_;  // by rank, as far as lifelines have told
  bool is_backend_told_ = false;
  worker::Watch::Id lifelines_ = 0;
  worker::Executor executor_;
  worker::RequestThreads request_threads_;
};

}  // namespace drun
