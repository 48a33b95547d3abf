#include "worker_lib/tcp/tcp_mesh.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker_lib/mesh/driven_mesh.h"
#include "worker_lib/mesh/mesh_backend.h"
#include "worker_lib/tcp/connections.h"
#include "worker_lib/tcp/messages.h"
#include "worker_lib/tcp/poller.h"

namespace drun::worker {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// How long a rank polls before it sleeps: first without yielding the core, then yielding it. An
// exchange of short messages takes 6 to 20 us, waking a sleeping rank up to 50 us.
constexpr microseconds kLeastSpinTime{2};
constexpr microseconds kMostSpinTime{100};
constexpr microseconds kPollTime{250};
// While it polls, it reads the connection of the rank that it waits for, and checks all others this
// rarely.
constexpr int kPollsPerLook = 8;

class TcpMesh final : public DrivenMesh<TcpMesh, tcp::Send, tcp::Receive> {
 public:
  explicit TcpMesh(const BackendContext& context)
      : has_core_(has_own_core(context)),
        has_lanes_(std::count(context.node_of.begin(), context.node_of.end(),
                              context.node_of.front()) < context.size),
        connections_(context, poller_),
        messages_(connections_) {
    if (context.is_lookout) connect_all(context.deadline);
  }

  std::string name() const override { return "tcp"; }
  int rank() const override { return connections_.rank(); }
  int size() const override { return connections_.size(); }

  // Pieces that need no grant, even if their size is rounded up; or that use all lanes.
  std::size_t piece_bytes(std::size_t part_bytes) const override {
    const bool uses_lanes = has_lanes_ && part_bytes >= 4 * tcp::kLeastLaneBytes;
    return uses_lanes ? 2 * tcp::kLeastLaneBytes : tcp::kEagerBytes - 512;
  }

  void abort() noexcept override {
    {
      const std::lock_guard lock(mutex_);
      connections_.abort();
    }
    wake_all();
  }
  std::vector<Lifeline> lifelines() const override { return connections_.lifelines(); }
  bool tell_lost(int rank) noexcept override {
    if (rank < 0 || rank >= size()) return true;
    bool is_end = true;
    {
      const std::lock_guard lock(mutex_);
      is_end = connections_.tell_lost(rank);
    }
    wake_all();
    return is_end;
  }

  // --- As in DrivenMesh

  template <typename Message>
  void start(Message& message) {
    messages_.start(message);
    wake_affected();
  }
  template <typename Message>
  void check(const Message& message) const {
    messages_.check(message);
  }
  template <typename Message>
  void give_up(Message& message) {
    messages_.give_up(message);
    wake_affected();
  }
  void look(Lock& lock) {
    if (!is_driven_) handle_events(0, lock);
  }
  template <typename IsOver>
  bool drive(Lock& lock, std::optional<int> peer, IsOver&& is_over, Deadline deadline) {
    if (is_over()) return true;
    Deadline idle_since = Deadline::clock::now();
    int polls = 0;
    for (Deadline now = idle_since; now < deadline && !is_over(); now = Deadline::clock::now()) {
      if (is_driven_) {
        ++waiting_;
        changed_.wait_until(lock, deadline);
        --waiting_;
        continue;
      }
      const bool sleeps = now - idle_since >= kPollTime;
      const bool polls_peer = !sleeps && peer && ++polls % kPollsPerLook != 0;
      const std::uint64_t received_bytes = connections_.received_bytes();
      if (!polls_peer || !connections_.poll(*peer))
        handle_events(sleeps ? sleep_ms(deadline) : 0, lock);
      if (!sleeps && (!has_core_ || now - idle_since >= spin_time_)) yield_core(lock);
      // A large message takes longer than kPollTime to arrive. Where ranks share a core, another
      // one should get it meanwhile.
      if (has_core_ && connections_.received_bytes() != received_bytes)
        idle_since = Deadline::clock::now();
    }
    return is_over();
  }
  BackendFailure lateness_of(std::optional<int> peer) const {
    return connections_.lateness_of(peer);
  }

 private:
  // Returns when every connection has been made or refused, and begun with a Hello; with a job key,
  // when each rank has answered all others.
  void connect_all(Deadline deadline) {
    Lock lock(mutex_);
    connections_.call_all();
    const auto are_done = [this] { return !connections_.unanswered(); };
    if (!drive(lock, std::nullopt, are_done, deadline))
      throw connections_.lateness_of_call(*connections_.unanswered());
  }

  // Handles all pending events. Sleeps without the lock.
  void handle_events(int timeout_ms, Lock& lock) {
    struct Driving {
      explicit Driving(TcpMesh& driven) : mesh(driven) { mesh.is_driven_ = true; }
      Driving(const Driving&) = delete;
      Driving& operator=(const Driving&) = delete;
      ~Driving() {
        mesh.is_driven_ = false;
        if (mesh.waiting_ > 0) mesh.changed_.notify_all();
      }
      TcpMesh& mesh;
    };
    const Driving driving(*this);
    tcp::Poller::Events events{};
    if (timeout_ms > 0) lock.unlock();
    const std::size_t count = poller_.wait(events, timeout_ms);
    if (timeout_ms > 0) lock.lock();
    for (std::size_t i = 0; i < count && !connections_.is_aborted(); ++i) {
      const tcp::Poller::Source source = tcp::Poller::source_of(events[i]);
      if (source.kind == tcp::Poller::Source::Kind::WakeFlag) {
        poller_.reset_wake_flag();
      } else {
        connections_.handle(source, events[i].events);
      }
    }
    connections_.do_what_is_due();
  }

  // Rounded up.
  int sleep_ms(Deadline deadline) const {
    const auto left =
        std::chrono::ceil<milliseconds>(connections_.next_due(deadline) - Deadline::clock::now());
    return static_cast<int>(std::clamp<milliseconds::rep>(left.count(), 0, 60'000));
  }

  // If another thread has run meanwhile, it was the other rank, which shares this core and should
  // get it sooner, or a program that keeps the core for milliseconds and should get it later.
  void yield_core(Lock& lock) {
    lock.unlock();
    const Deadline began = Deadline::clock::now();
    sched_yield();
    const auto took = Deadline::clock::now() - began;
    lock.lock();
    if (took > 10 * kMostSpinTime) {
      spin_time_ = kMostSpinTime;
    } else if (took > kLeastSpinTime) {
      spin_time_ = std::max(kLeastSpinTime, spin_time_ / 2);
    }
  }

  // Another thread may sleep until one of its messages can be sent.
  void wake_affected() {
    if (is_driven_ && connections_.take_changes()) wake_all();
  }

  void wake_all() noexcept {
    poller_.wake();
    changed_.notify_all();
  }

  const bool has_core_;
  const bool has_lanes_;  // large messages to some ranks use several connections
  const tcp::Poller poller_{};

  // Protected by the mutex:
  std::condition_variable changed_;
  bool is_driven_ = false;
  int waiting_ = 0;
  microseconds spin_time_{20};  // adapts
  tcp::Connections connections_;
  tcp::Messages messages_;
};

}  // namespace

std::unique_ptr<Mesh> make_tcp_mesh(const BackendContext& context) {
  return std::make_unique<TcpMesh>(context);
}

std::unique_ptr<Backend> connect_tcp(const BackendContext& context) {
  return make_mesh_backend(make_tcp_mesh(context), context.is_debug);
}

}  // namespace drun::worker
