// edge. One nonblocking communicator of NCCL, and the stream that its operations are done on.
//
//     connecting -> open <--> busy -> closed        (closed: by close(), for good)
//                      any failure -> failed -> closed
//
// Blocks:  a nonblocking communicator says "in progress" and may not be used until it no longer
//          does; so a thread that starts something waits for that, until the deadline, close() or
//          a lost rank.
// Thread:  any; what is started in one after the other is done in that order. close() from any, at
//          any time after the CancelToken has been raised, or when nothing is going on.
// Errors:  BackendFailure: Timeout; PeerLost for a rank told lost or what NCCL calls a remote
//          error; Broken when the CancelToken was raised; System with NCCL's own words.
// Owner:   the backend; the CancelToken outlives it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "drun/backend.h"
#include "worker_lib/nccl/cancel.h"
#include "worker_lib/nccl/gpu.h"

namespace drun::worker {

// A wait: for which operation, and until when.
struct Awaited {
  std::uint32_t sequence = 0;              // of a collective; 0: something else
  std::optional<int> peer = std::nullopt;  // the only other rank that matters
  Deadline deadline{};
};

class Communicator {
 public:
  struct RankInfo {
    int rank = 0;
    int size = 1;
  };
  // Issues operations; returns what NCCL said.
  using Action = std::function<nccl::Result(nccl::Comm comm, cuda::Stream stream)>;

  // Connects to the other ranks that have the same id.
  static std::unique_ptr<Communicator> connect(std::shared_ptr<const Gpu> gpu, CancelToken& stop,
                                               const nccl::UniqueId& id, RankInfo seat,
                                               const Awaited& awaited);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::shared_ptr<const Gpu>& gpu() const { return gpu_; }

  // Runs the work that `action` issues after `after` and all earlier work. Returns the event at its
  // end.
  Event start(const Event& after, const Awaited& awaited, const Action& action);
  // Waits for the event that start() returned.
  void wait(const Event& end, const Awaited& awaited);

  // A collective: the ranks that give a key get a new line together, in the order of their keys;
  // the others get null. Requires can_split(). Returns when this line can be used again.
  std::unique_ptr<Communicator> split(std::optional<int> key, const Awaited& awaited);
  bool can_split() const { return api_.split != nullptr; }
  // From then on, instead of the one it began with. While nothing is going on.
  void use_cancel_token(CancelToken& stop) { stop_ = &stop; }

  // Aborts what is in progress; otherwise what has been sent arrives. Bounded in time, also while
  // another thread is stuck in a call of NCCL's. The second call does nothing.
  void close() noexcept;

 private:
  Communicator(std::shared_ptr<const Gpu> gpu, CancelToken& stop);

  // Waits until comm_ is no longer in progress.
  void settle(nccl::Result said, const Awaited& awaited);
  void check_for_errors(const Awaited& awaited);
  void need_open() const;
  bool finalize(nccl::Comm comm) const noexcept;
  BackendFailure failure(nccl::Result result, const Awaited& awaited) const;
  template <typename Done>
  void look_until(const Awaited& awaited, Done&& is_done);

  const std::shared_ptr<const Gpu> gpu_;
  const nccl::Api& api_;
  CancelToken* stop_;
  const OwnStream stream_;
  std::timed_mutex using_;  // the communicator
  std::atomic<nccl::Comm> comm_ = nullptr;
  // ncclCommSplit returns before a thread of NCCL stores the new communicator here, on ranks
  // without a key too (there null). That thread has ended when comm_ is no longer in progress, or
  // is gone.
  nccl::Comm child_ = nullptr;
  std::atomic<bool> has_failed_ = false;
  std::atomic<int> unfinished_ = 0;
};

// "NCCL's", with its number.
BackendFailure nccl_failure(nccl::Result result, nccl::Comm comm, const std::string& what);

}  // namespace drun::worker
