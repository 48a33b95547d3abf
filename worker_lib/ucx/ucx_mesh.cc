#include "worker_lib/ucx/ucx_mesh.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "rendezvous/base/unique_fd.h"
#include "worker_lib/base/deadline.h"
#include "worker_lib/base/process.h"
#include "worker_lib/mesh/driven_mesh.h"
#include "worker_lib/mesh/gather_texts.h"
#include "worker_lib/mesh/mesh_backend.h"
#include "worker_lib/tcp/tcp_mesh.h"
#include "worker_lib/ucx/ucx_messages.h"

namespace drun::worker {
namespace ucx {
namespace {

using std::chrono::microseconds;

// How long a waiting thread polls before it sleeps.
constexpr microseconds kPollTime{250};
// UCX's own thread can put off an event to the next progress, without a sign to a thread that
// sleeps.
constexpr std::chrono::milliseconds kMostSleep{10};
// For a thread of UCX that has something to do and needs a core for it.
constexpr microseconds kPause{50};

// Locks:   one mutex protects everything, UCX's worker too. A thread that sleeps has released it.
class UcxMesh final : public DrivenMesh<UcxMesh, Send, Receive> {
 public:
  explicit UcxMesh(const BackendContext& context)
      : has_core_(has_own_core(context)),
        wake_flag_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        messages_(context.rank, context.size) {
    if (!wake_flag_)
      throw BackendFailure(WorkerError::Kind::System, "UCX: cannot wait: " + error_text(errno));
    messages_.set_addresses(gather_texts(context, "ucx", messages_.own_address()));
    if (context.is_lookout) lookout_ = make_tcp_mesh(context);
  }

  std::string name() const override { return "ucx"; }
  int rank() const override { return messages_.rank(); }
  int size() const override { return messages_.size(); }

  void abort() noexcept override {
    {
      const Lock lock(mutex_);
      messages_.abort();
      wake_all();
    }
    if (lookout_) lookout_->abort();
  }
  std::vector<Lifeline> lifelines() const override {
    return lookout_ ? lookout_->lifelines() : std::vector<Lifeline>();
  }
  bool tell_lost(int rank) noexcept override {
    if (rank < 0 || rank >= size()) return true;
    const bool is_end = !lookout_ || lookout_->tell_lost(rank);
    const Lock lock(mutex_);
    messages_.tell_lost(rank, is_end);
    wake_all();
    return is_end;
  }

  // --- As in DrivenMesh

  template <typename Message>
  void start(Message& message) {
    messages_.start(message);
    if (is_asleep_) wake();  // that thread makes progress for it
  }
  template <typename Message>
  void check(const Message& message) const {
    messages_.check(message);
  }
  template <typename Message>
  void give_up(Message& message) noexcept {
    messages_.give_up(message);
    if (messages_.has_ended()) wake_all();
  }
  bool look(Lock&) {
    const bool has_moved = messages_.make_progress();
    if (has_moved && (is_asleep_ || waiting_ > 0)) wake_all();
    return has_moved;
  }
  template <typename IsOver>
  bool drive(Lock& lock, std::optional<int>, IsOver&& is_over, Deadline deadline) {
    const Deadline began = Deadline::clock::now();
    bool is_woken = false;  // by UCX
    while (true) {
      const bool has_moved = look(lock);
      if (is_over()) return true;
      const Deadline now = Deadline::clock::now();
      if (now >= deadline) return false;
      if (now - began < kPollTime) {
        unlocked(lock, [&] {
          if (!has_core_) sched_yield();
        });
      } else if (is_woken && !has_moved) {
        unlocked(lock, [] { std::this_thread::sleep_for(kPause); });
        is_woken = false;
      } else {
        is_woken = sleep(lock, deadline);
      }
    }
  }
  BackendFailure lateness_of(std::optional<int> peer) const { return lateness_of_peer(peer); }

 private:
  template <typename Action>
  static void unlocked(Lock& lock, Action&& action) {
    lock.unlock();
    action();
    lock.lock();
  }
  // Until UCX has something to do, another thread wakes this one, or the time is over. True if it
  // is UCX.
  bool sleep(Lock& lock, Deadline deadline) {
    const Deadline until =
        messages_.next_due(std::min(deadline, Deadline::clock::now() + kMostSleep));
    if (is_asleep_) {
      ++waiting_;
      changed_.wait_until(lock, until);
      --waiting_;
      return false;
    }
    if (!messages_.arm()) return true;
    pollfd descriptors[] = {{.fd = messages_.fd(), .events = POLLIN, .revents = 0},
                            {.fd = wake_flag_.get(), .events = POLLIN, .revents = 0}};
    is_asleep_ = true;
    unlocked(lock, [&] {
      ::poll(descriptors, 2, static_cast<int>(left_until(until).count()));
      std::uint64_t count = 0;
      static_cast<void>(::read(wake_flag_.get(), &count, sizeof count) < 0);
    });
    is_asleep_ = false;
    changed_.notify_all();  // one of them sleeps in poll() now
    return descriptors[0].revents != 0;
  }
  // The thread in poll().
  void wake() const noexcept {
    const std::uint64_t one = 1;
    static_cast<void>(::write(wake_flag_.get(), &one, sizeof one) < 0);
  }
  void wake_all() noexcept {
    if (is_asleep_) wake();
    changed_.notify_all();
  }

  const bool has_core_;
  const UniqueFd wake_flag_;

  // Protected by the mutex:
  std::condition_variable changed_;
  bool is_asleep_ = false;         // a thread is in poll()
  int waiting_ = 0;                // further ones
  std::unique_ptr<Mesh> lookout_;  // null: not asked for; ends after the last message has left
  Messages messages_;
};

}  // namespace
}  // namespace ucx

bool has_ucx() { return true; }

std::unique_ptr<Backend> connect_ucx(const BackendContext& context) {
  return make_mesh_backend(std::make_unique<ucx::UcxMesh>(context), context.is_debug);
}

}  // namespace drun::worker
