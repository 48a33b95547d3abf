#include "worker_lib/tcp/tcp_mesh.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "worker_lib/mesh/driven_mesh.h"
#include "worker_lib/mesh/matcher.h"
#include "worker_lib/tcp/connections.h"
#include "worker_lib/tcp/frames.h"
#include "worker_lib/tcp/pending_messages.h"
#include "worker_lib/tcp/poller.h"

namespace drun::worker {
namespace tcp {
namespace {

// The messages of one rank: short ones, and long ones that the receiver grants (frames.h).
//
// Owner:   the mesh; the Connections outlive it. Keeps pointers to Sends and Receives from start()
//          until they are done or given up.
// Thread:  one at a time.   Errors: throws BackendFailure.
class Messages final : public FrameHandler {
 public:
  explicit Messages(Connections& connections)
      : connections_(connections), peers_(static_cast<std::size_t>(connections.size())) {
    connections_.deliver_to(*this);
  }

  void start(Send& send) {
    connections_.check_alive();
    connections_.call(send.to);
    if (connections_.is_gone(send.to)) throw connections_.loss_of(send.to);
    Outbox& out = connections_.out(send.to);
    std::size_t& ahead_bytes = peer(send.to).ahead_bytes;
    const std::size_t cost = window_cost(send.size_bytes);
    if (send.size_bytes <= kEagerBytes && ahead_bytes + cost <= kWindowBytes) {
      ahead_bytes += cost;
      out.push_eager(send);
    } else {
      send.number = next_number_++;
      asked_[send.number] = &send;
      out.push_ask(send);
      for (std::size_t lane = 1; lane < lanes_for(send); ++lane) connections_.call(send.to, lane);
    }
    connections_.flush(send.to);
  }

  void start(Receive& receive) {
    connections_.check_alive();
    if (receive.from) connections_.call(*receive.from);
    const std::shared_ptr<Arrival> arrival = matcher_.post(&receive);
    if (!arrival) return;
    const bool fits = receive.accept(arrival->from, arrival->size_bytes);
    if (arrival->number) {
      if (fits) grant(receive, arrival->from, *arrival->number);
      return;
    }
    peer(arrival->from).held_bytes -= window_cost(arrival->size_bytes);
    credit(arrival->from, arrival->size_bytes);
    if (!fits) return;
    if (arrival->got_bytes < arrival->size_bytes) {
      arrival->receive = &receive;
      return;
    }
    finish(receive, *arrival);
  }

  // Throw why it will not be done.
  void check(const Send& send) const {
    connections_.check_alive();
    // One that waits for a grant needs both directions.
    if (connections_.is_gone(send.to) || (send.is_asked && connections_.is_over(send.to)))
      throw connections_.loss_of(send.to);
  }
  void check(const Receive& receive) const {
    receive.check_fit();
    connections_.check_alive();
    if (connections_.is_over(receive.peer())) throw connections_.loss_of(receive.peer());
  }
  // Forget one that is not done.
  // A message that is on its way cannot be taken back without the connection.
  void give_up(Send& send) {
    if (send.is_asked) {
      const auto found = asked_.find(send.number);
      if (found != asked_.end()) found->second = nullptr;
    }
    if (!connections_.out(send.to).take_back(send))
      connections_.end_out(send.to, "a message was given up halfway");
  }

  void give_up(Receive& receive) {
    if (!receive.sender) return matcher_.withdraw(&receive);
    connections_.for_each_payload([&receive](Payload& payload) {
      if (payload.receive == &receive) payload.receive = nullptr, payload.to = nullptr;
      if (payload.arrival && payload.arrival->receive == &receive)
        payload.arrival->receive = nullptr;
    });
    for (auto& [number, granted] : peer(*receive.sender).granted)
      if (granted.receive == &receive) granted.receive = nullptr;
  }

  bool take_frame(int from, const Frame& frame, Payload& payload) override {
    switch (frame.kind) {
      case Frame::Kind::Eager:
        return take_eager(from, frame, payload);
      case Frame::Kind::Ask:
        return take_ask(from, frame);
      case Frame::Kind::Grant:
        return take_grant(from, frame);
      case Frame::Kind::Data:
        return take_data(from, frame, payload);
      case Frame::Kind::Credit:
        break;
    }
    std::size_t& ahead_bytes = peer(from).ahead_bytes;
    if (frame.size_bytes > ahead_bytes) return false;
    ahead_bytes -= frame.size_bytes;
    return true;
  }

  void end_payload(Payload& payload) override {
    if (payload.receive != nullptr && payload.receive->got_bytes == payload.receive->size_bytes)
      payload.receive->is_done = true;
    if (payload.arrival && payload.arrival->receive != nullptr) {
      finish(*payload.arrival->receive, *payload.arrival);
    }
    payload = {};
  }

 private:
  // The destination of a granted message.
  struct Granted {
    Receive* receive = nullptr;  // null: given up
    std::size_t size_bytes = 0;
    std::size_t left_bytes = 0;
  };
  struct Peer {
    std::size_t ahead_bytes = 0;       // of its window that are in use
    std::size_t uncredited_bytes = 0;  // not yet returned as credit
    std::size_t held_bytes = 0;        // of this rank's window: sent, not received yet
    std::unordered_map<std::uint64_t, Granted> granted{};  // by the sender's number
  };

  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  std::size_t lanes_for(const Send& send) const {
    return send.size_bytes < kLeastLaneBytes ? 1 : connections_.lanes_to(send.to);
  }
  bool take_eager(int from, const Frame& frame, Payload& payload) {
    payload.left_bytes = frame.size_bytes;
    if (Receive* const receive = matcher_.meet(from, frame.slot)) {
      credit(from, frame.size_bytes);
      if (!receive->accept(from, frame.size_bytes)) return true;
      payload.receive = receive;
      payload.to = receive->data;
      return true;
    }
    payload.arrival = std::make_shared<Arrival>();
    payload.arrival->from = from;
    payload.arrival->slot = frame.slot;
    payload.arrival->size_bytes = frame.size_bytes;
    if (frame.size_bytes > 0) payload.arrival->data = spares_.take(frame.size_bytes);
    payload.to = payload.arrival->data.get();
    std::size_t& held_bytes = peer(from).held_bytes;
    held_bytes += window_cost(frame.size_bytes);
    return held_bytes <= kWindowBytes && matcher_.keep(payload.arrival);
  }

  bool take_ask(int from, const Frame& frame) {
    if (Receive* const receive = matcher_.meet(from, frame.slot)) {
      if (receive->accept(from, frame.size_bytes)) grant(*receive, from, frame.number);
      return true;
    }
    const auto arrival = std::make_shared<Arrival>();
    arrival->from = from;
    arrival->slot = frame.slot;
    arrival->size_bytes = frame.size_bytes;
    arrival->number = frame.number;
    return matcher_.keep(arrival);
  }

  bool take_grant(int from, const Frame& frame) {
    const auto found = asked_.find(frame.number);
    if (found == asked_.end()) return false;
    Send* const send = found->second;
    if (send != nullptr && send->to != from) return false;
    asked_.erase(found);
    if (send == nullptr) return true;  // canceled: its group informs the receiver
    for (std::size_t lane = 0; lane < lanes_for(*send); ++lane) {
      // A part is in one lane at a time.
      if (!connections_.is_usable(from, lane) ||
          (lane > 0 && send->queued_bytes == send->size_bytes))
        continue;
      connections_.out(from, lane).push_part(*send);
      connections_.flush(from, lane);
    }
    return true;
  }

  bool take_data(int from, const Frame& frame, Payload& payload) {
    auto& granted = peer(from).granted;
    const auto found = granted.find(frame.number);
    if (found == granted.end() || frame.size_bytes > found->second.left_bytes ||
        frame.slot > found->second.size_bytes - frame.size_bytes)
      return false;
    found->second.left_bytes -= frame.size_bytes;
    payload.left_bytes = frame.size_bytes;
    payload.receive = found->second.receive;
    if (payload.receive != nullptr) payload.to = payload.receive->data + frame.slot;
    if (found->second.left_bytes == 0) granted.erase(found);
    return true;
  }

  // All of the early message has arrived.
  void finish(Receive& receive, Arrival& arrival) {
    if (arrival.size_bytes > 0) std::memcpy(receive.data, arrival.data.get(), arrival.size_bytes);
    spares_.give_back(std::move(arrival.data), arrival.size_bytes);
    receive.got_bytes = arrival.size_bytes;
    receive.is_done = true;
  }
  void grant(Receive& receive, int from, std::uint64_t number) {
    peer(from).granted[number] = {&receive, receive.size_bytes, receive.size_bytes};
    connections_.push_first(from, Frame{.kind = Frame::Kind::Grant, .number = number});
  }
  // That rank's window has so much more room.
  void credit(int from, std::size_t size_bytes) {
    std::size_t& uncredited_bytes = peer(from).uncredited_bytes;
    uncredited_bytes += window_cost(size_bytes);
    if (uncredited_bytes < kCreditBytes) return;
    const Frame frame{.kind = Frame::Kind::Credit, .size_bytes = uncredited_bytes};
    uncredited_bytes = 0;
    connections_.push_first(from, frame);
  }

  Connections& connections_;
  std::vector<Peer> peers_;
  SpareBuffers spares_;
  Matcher<Receive*, std::shared_ptr<Arrival>> matcher_{kMostAnnounced};
  std::uint64_t next_number_ = 0;
  std::unordered_map<std::uint64_t, Send*> asked_;  // null: given up
};

}  // namespace
}  // namespace tcp

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
