#include "worker_lib/nccl/communicator.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "worker_lib/nccl/library.h"

namespace drun::worker {
namespace {

using Kind = WorkerError::Kind;
using Clock = std::chrono::steady_clock;

// Operations that a rank took part in before it ended are done within this time.
constexpr std::chrono::milliseconds kAfterwards{30};

std::string awaited_text(const Awaited& awaited) {
  if (awaited.sequence != 0) return "collective number " + std::to_string(awaited.sequence);
  if (awaited.peer)
    return "the message between this rank and rank " + std::to_string(*awaited.peer);
  return awaited.what;
}

// One wait: determines the interval between two polls.
class Backoff {
 public:
  void wait(CancelToken& stop) const {
    using std::chrono::microseconds;
    constexpr microseconds kEager{100};
    constexpr microseconds kLeast{20};
    constexpr microseconds kMost{1000};
    const auto waited = std::chrono::duration_cast<microseconds>(Clock::now() - began_);
    if (waited < kEager) {
      sched_yield();
    } else {
      stop.pause(std::clamp(waited / 8, kLeast, kMost));
    }
  }

 private:
  const Deadline began_ = Clock::now();
};

}  // namespace

BackendFailure nccl_failure(nccl::Result result, nccl::Comm comm, const std::string& what) {
  const nccl::Api& api = need_nccl();
  const char* const general = api.get_error_string(result);
  const char* const last = api.get_last_error(comm);
  std::string message = "NCCL " + nccl_version() + ": " + what + ": " +
                        (general == nullptr ? "unknown error" : general) + " (" +
                        std::to_string(result) + ")";
  if (last != nullptr && *last != '\0') message += ": " + std::string(last);
  return {result == nccl::kRemoteError ? Kind::PeerLost : Kind::System, std::nullopt, message};
}

Communicator::Communicator(std::shared_ptr<const Gpu> gpu, CancelToken& stop)
    : api_(need_nccl()), stream_(gpu), owner_(std::move(gpu), stop) {}

// --- Connecting

std::unique_ptr<Communicator> Communicator::connect(std::shared_ptr<const Gpu> gpu,
                                                    CancelToken& stop, const nccl::UniqueId& id,
                                                    RankInfo self, const Awaited& awaited) {
  std::unique_ptr<Communicator> communicator(new Communicator(std::move(gpu), stop));
  const Current current(*communicator->gpu());
  CommOwner::Lock lock = communicator->owner_.lock();
  nccl::Config config;
  config.blocking = 0;
  nccl::Comm comm = nullptr;
  const nccl::Result result =
      communicator->api_.init_rank(&comm, self.size, id, self.rank, &config);
  communicator->owner_.take(comm);
  if (comm == nullptr) throw nccl_failure(result, nullptr, awaited_text(awaited));
  communicator->settle(result, awaited);
  if (!communicator->can_split()) return communicator;
  lock.unlock();
  return communicator->split(0, self.rank, awaited);
}

std::unique_ptr<Communicator> Communicator::split(std::optional<int> color, int key,
                                                  const Awaited& awaited) {
  const CommOwner::Lock lock = owner_.lock();
  owner_.need_open();
  const Current current(*gpu());
  std::unique_ptr<Communicator> part(color ? new Communicator(gpu(), owner_.stop()) : nullptr);
  const std::atomic_ref<nccl::Comm> child(owner_.child());
  child = nullptr;
  const nccl::Result result = call(awaited, [&](nccl::Comm comm, cuda::Stream) {
    nccl::Config config;
    config.blocking = 1;
    return api_.split(comm, color.value_or(nccl::kNoColor), key, &owner_.child(), &config);
  });
  // NCCL 2.18 to 2.30 return success while a nonblocking communicator is in progress (src/init.cc,
  // ncclCommSplit): the state must be asked for in any case.
  settle(result == nccl::kSuccess ? nccl::kInProgress : result, awaited);
  if (!part) return nullptr;
  look_until(awaited, [&] { return child.load() != nullptr; });
  part->owner_.take(child.exchange(nullptr));
  part->is_blocking_ = true;
  const CommOwner::Lock part_lock = part->owner_.lock();
  part->settle(nccl::kInProgress, awaited);
  return part;
}

void Communicator::settle(nccl::Result result, const Awaited& awaited) {
  try {
    owner_.need_open();  // close() may have aborted it while NCCL was being called
    if (result == nccl::kInProgress) {
      look_until(awaited, [&] {
        result = state();
        return result != nccl::kInProgress;
      });
    }
    if (result != nccl::kSuccess) throw failure(result, awaited);
  } catch (const BackendFailure&) {
    owner_.note_failure();
    throw;
  }
}

nccl::Result Communicator::state() const {
  nccl::Result state = nccl::kSuccess;
  const nccl::Result asked = api_.get_async_error(owner_.get(), &state);
  return asked == nccl::kSuccess ? state : asked;
}

// --- Operations

Event Communicator::start(std::span<Event> after, const Awaited& awaited, const Action& action) {
  const CommOwner::Lock lock = owner_.lock();
  owner_.need_open();
  const Current current(*gpu());
  for (const Event& each : after) each.make_wait(stream_.get());
  owner_.note_start();
  settle(call(awaited, action), awaited);
  Event end = std::move(after.front());
  end.record(stream_.get());
  return end;
}

nccl::Result Communicator::call(const Awaited& awaited, const Action& action) {
  if (!is_blocking_) return action(owner_.get(), stream_.get());
  return owner_.call([this, &awaited] { check_wait(awaited); },
                     [this, &action](nccl::Comm comm) { return action(comm, stream_.get()); });
}

void Communicator::wait(const Event& end, const Awaited& awaited) {
  const Current current(*gpu());
  look_until(awaited, [&] { return look(end, awaited); });
}

bool Communicator::would_return(const Event& end, const Awaited& awaited) {
  try {
    const Current current(*gpu());
    if (look(end, awaited) || owner_.stop().is_raised()) return true;
    check_lost(awaited);
    return false;
  } catch (const BackendFailure&) {
    return true;
  }
}

bool Communicator::look(const Event& end, const Awaited& awaited) {
  const bool is_reached = end.is_reached();
  check_for_errors(awaited);
  // An aborted operation reaches its event too, but is not done.
  if (is_reached) owner_.stop().check();
  return is_reached;
}

void Communicator::check_for_errors(const Awaited& awaited) {
  const CommOwner::Lock lock = owner_.try_lock();
  if (!lock.owns_lock() || owner_.get() == nullptr || has_exit_begun())
    return;  // the thread that uses it gets its errors
  const nccl::Result result = state();
  if (result != nccl::kSuccess && result != nccl::kInProgress) throw failure(result, awaited);
}

void Communicator::check_lost(const Awaited& awaited) const {
  const std::optional<int> rank = owner_.stop().lost_rank(awaited.peer, kAfterwards);
  if (!rank || Clock::now() - awaited.since < kAfterwards) return;
  throw BackendFailure(
      Kind::PeerLost, rank,
      "lost rank " + std::to_string(*rank) + " before " + awaited_text(awaited) + " was done");
}

void Communicator::check_wait(const Awaited& awaited) const {
  owner_.stop().check();
  check_lost(awaited);
  if (Clock::now() < awaited.deadline) return;
  throw BackendFailure(
      Kind::Timeout, awaited.peer,
      awaited_text(awaited) +
          " was not done in time; another rank is late, stuck or has made other calls");
}

BackendFailure Communicator::failure(nccl::Result result, const Awaited& awaited) const {
  BackendFailure failure = nccl_failure(result, owner_.get(), awaited_text(awaited));
  failure.peer = awaited.peer;
  return failure;
}

template <typename Done>
void Communicator::look_until(const Awaited& awaited, Done&& is_done) {
  std::optional<Backoff> pace;
  try {
    while (!is_done()) {
      check_wait(awaited);
      if (!pace) pace.emplace();
      pace->wait(owner_.stop());
    }
  } catch (...) {
    owner_.note_failure();
    throw;
  }
}

}  // namespace drun::worker
