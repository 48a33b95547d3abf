// edge. The connections of one rank and the messages on them (frames.h). Implements TcpMesh.
//
// Callers: connections that have not identified themselves are limited. Beyond that, callers wait
//          in the kernel's queue, and the silent ones before them are disconnected after
//          kHelloTime. A caller whose Hello, and proof if one is required, has arrived is never
//          disconnected.
// Locks:   one mutex protects everything. A thread that waits for a message handles the events of
//          all messages. Other waiting threads sleep on a condition variable meanwhile.
// Owner:   keeps pointers to Sends and Receives from start() until they are done or abandoned.
// Thread:  any.   Errors: throws BackendFailure; System if this process has no descriptor for a
//          connection that it needs.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "drun/backend.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_lib/tcp/frames.h"
#include "worker_lib/tcp/job_key.h"
#include "worker_lib/tcp/matcher.h"
#include "worker_lib/tcp/outbox.h"
#include "worker_lib/tcp/sockets.h"

struct epoll_event;

namespace drun::worker::tcp {

class Engine {
 public:
  // Returns when the addresses of all ranks are known; for a lookout, when it is connected to all.
  explicit Engine(const BackendContext& context);

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Whether large messages to some ranks use several connections. The same on all ranks.
  bool has_lanes() const { return has_lanes_; }

  void start(Send& send);
  void start(Receive& receive);
  void wait(Send& send, Deadline deadline);
  int wait(Receive& receive, Deadline deadline);
  // Whether wait() would return or throw at once. Handles pending events.
  bool would_end(const Send& send);
  bool would_end(const Receive& receive);
  void give_up(Send& send) noexcept;
  void give_up(Receive& receive) noexcept;
  void abort() noexcept;
  void tell_lost(int rank) noexcept;
  std::vector<Lifeline> lifelines() const;

 private:
  // One incoming connection.
  struct Incoming {
    UniqueFd fd{};
    std::uint32_t id = 0;
    int from = -1;  // -1: not known yet
    std::size_t lane = 0;
    bool has_sent_frames = false;
    // Set while a proof is awaited:
    std::optional<Hello> hello{};
    Proof proof{};  // the right one
    HelloBytes head{};
    std::size_t head_bytes = 0;  // of the hello, the proof, or a frame's head
    std::size_t left_bytes = 0;  // of a payload
    // The message of the payload; if both are null, it is dropped.
    Receive* receive = nullptr;
    std::shared_ptr<Arrival> arrival{};
    char* to = nullptr;  // where the rest of the payload goes
  };
  // One outgoing connection.
  struct Lane {
    Outbox out{};
    bool waits_to_write = false;
    Hello hello{};
    std::string answer{};  // of the called rank, as far as it has arrived
  };
  struct Peer {
    Place place{};
    std::array<Lane, kMostLanes> lanes{};
    std::size_t lane_count = 1;  // to be used for large messages

    Outbox& out() { return lanes[0].out; }
    const Outbox& out() const { return lanes[0].out; }
    std::size_t ahead_bytes = 0;                // of its window that are in use
    std::size_t uncredited_bytes = 0;           // not yet returned as credit
    std::size_t held_bytes = 0;                 // of this rank's window: sent, not received yet
    std::array<bool, kMostLanes> has_called{};  // it has, or had, this connection to this rank
    int open_count = 0;                         // of its connections
    std::uint32_t in_id = 0;                    // of the first one
    bool is_over = false;                       // it sends nothing more
    bool is_told_lost = false;
    std::optional<Deadline> over_at{};
    std::string why{};
  };
  // A caller that has not identified itself.
  struct Stranger {
    std::uint32_t id = 0;
    Deadline until{};  // may be disconnected afterwards
  };
  // The destination of a granted message.
  struct Granted {
    Receive* receive = nullptr;  // null: abandoned
    std::size_t size_bytes = 0;
    std::size_t left_bytes = 0;
  };

  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  void find_all(Deadline deadline);
  void call_all(Deadline deadline);
  void call(int rank, std::size_t lane = 0);
  void watch(int fd, std::uint32_t events, std::uint64_t token, bool is_new) const;
  void unwatch(int fd) const;

  // Out.
  void push_first(int rank, const Frame& frame);
  void flush(int rank, std::size_t lane = 0);
  void close(Lane& lane) const;
  void take_answer(int rank, std::size_t lane);
  void end_lane(int rank, std::size_t lane, const std::string& why);
  void end_out(int rank, const std::string& why);
  std::size_t lanes_for(const Send& send);
  void credit(int rank, std::size_t size_bytes);

  // In.
  void take_callers();
  void pause_accepting(Deadline until, std::string lack = {});
  void resume_accepting();
  void read(std::uint32_t id);
  bool take(Incoming& in, std::string_view bytes);
  bool take_hello(Incoming& in);
  bool challenge(Incoming& in, const Hello& hello);
  bool admit(Incoming& in, const Hello& hello);
  bool take_frame(Incoming& in);
  bool take_eager(Incoming& in, const Frame& frame);
  bool take_ask(Incoming& in, const Frame& frame);
  bool take_grant(const Incoming& in, const Frame& frame);
  bool take_data(Incoming& in, const Frame& frame);
  void end_payload(Incoming& in);
  void end_in(std::uint32_t id, const std::string& why);
  void await_end(int rank);
  void end_over(int rank);

  bool accept(Receive& receive, int from, std::size_t size_bytes) const;
  void grant(Receive& receive, int from, std::uint64_t number);

  // Waiting.
  template <typename IsOver>
  bool drive(std::optional<int> peer, IsOver&& is_over, Deadline deadline);
  template <typename IsOver>
  bool poll(IsOver&& is_over);
  void yield_core(std::unique_lock<std::mutex>& lock);
  void look(int timeout_ms, std::unique_lock<std::mutex>& lock);
  void handle(const epoll_event& event);
  void end_late_peers();
  int sleep_ms(Deadline deadline) const;
  void ring() const noexcept;
  void check_alive() const;
  bool is_lost(const Send& send) const;
  bool is_lost(const Receive& receive) const;
  static std::optional<int> peer_of(const Receive& receive) {
    return receive.sender ? receive.sender : receive.from;
  }
  BackendFailure loss_of(std::optional<int> rank) const;
  BackendFailure lateness_of(std::optional<int> rank) const;

  const int rank_;
  const int size_;
  const std::shared_ptr<KeyStore> store_;
  const bool is_lookout_;
  bool has_lanes_ = false;
  bool has_core_ = false;                // the ranks of this node have a core each
  const std::optional<JobKey> job_key_;  // absent: no proofs
  UniqueFd epoll_;
  UniqueFd bell_;
  Listening listener_;
  Place own_{};

  std::mutex mutex_;  // of all that follows
  std::condition_variable changed_;
  bool is_driven_ = false;
  int waiting_ = 0;
  std::chrono::microseconds spin_time_{20};  // adapts; see yield_core()
  bool is_aborted_ = false;
  std::optional<BackendFailure> own_failure_;  // found while working for all messages
  std::vector<Peer> peers_;
  int ending_ = 0;  // of them: over_at
  std::uint32_t next_id_ = 0;
  std::unordered_map<std::uint32_t, Incoming> incoming_;
  std::deque<Stranger> strangers_;  // oldest first
  std::size_t rejected_ = 0;        // callers without a valid hello or proof
  std::optional<Deadline>
      accept_at_;     // set: accepting is paused until then, or until there is room
  std::string lack_;  // why no connection can be accepted; empty: no reason
  Matcher matcher_{kMostAnnounced};
  std::uint64_t next_number_ = 0;
  std::unordered_map<std::uint64_t, Send*> asked_;  // null: abandoned
  std::unordered_map<int, std::unordered_map<std::uint64_t, Granted>> granted_;
  // Small, since it is copied once more: for heads and short messages.
  std::vector<char> buffer_ = std::vector<char>(std::size_t{8} << 10);
};

}  // namespace drun::worker::tcp
