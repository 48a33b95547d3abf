// edge. The connections of one rank to all others (frames.h): opens, accepts and closes them, and
// detects the ends of other ranks. A FrameHandler gets what arrives.
//
// Callers: connections that have not identified themselves are limited. Beyond that, callers wait
//          in the kernel's queue, and the silent ones before them are disconnected after
//          kHelloTime. A caller whose Hello, and proof if one is required, has arrived is never
//          disconnected.
// Ends:    a connection ends with its rank's process. Data may wait in it for any time, as a rank
//          that computes does not read, and so it tells nothing about the other host. A rank that
//          is called therefore calls back, and keepalive on the side that sends nothing ends the
//          connections to a host that is gone, or cut off, within 30 s.
// Owner:   the mesh, with the Poller that it waits on.
// Thread:  one at a time.
// Errors:  throws BackendFailure; System if this process has no descriptor for a connection that it
//          needs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "drun/backend.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_lib/mesh/message.h"
#include "worker_lib/tcp/frames.h"
#include "worker_lib/tcp/job_key.h"
#include "worker_lib/tcp/outbox.h"
#include "worker_lib/tcp/pending_messages.h"
#include "worker_lib/tcp/poller.h"
#include "worker_lib/tcp/sockets.h"

namespace drun::worker::tcp {

class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  // Sets the payload if the frame has one. False: the frame breaks the protocol.
  virtual bool take_frame(int from, const Frame& frame, Payload& payload) = 0;
  // All of the payload has arrived.
  virtual void end_payload(Payload& payload) = 0;
};

class Connections {
 public:
  // Returns when the addresses of all ranks are known.
  Connections(const BackendContext& context, const Poller& poller);
  // Call it before any other function.
  void deliver_to(FrameHandler& frames) { frames_ = &frames; }

  int rank() const { return rank_; }
  int size() const { return size_; }

  // --- Outgoing connections. Large messages to a rank on another node use several, its lanes; of
  // those, only the first is needed

  std::size_t lanes_to(int rank) const { return peer(rank).lane_count; }
  // Makes the connection to that rank, unless there is or was one.
  void call(int rank, std::size_t lane = 0);
  void call_all();
  // A rank that call_all() has not reached yet, and that has not refused either; with a job key,
  // also one that has not called this rank, so that none waits for a rank that has returned.
  std::optional<int> unanswered() const;
  Outbox& out(int rank, std::size_t lane = 0) { return peer(rank).lanes[lane].out; }
  // Whether frames leave on this lane now.
  bool is_usable(int rank, std::size_t lane);
  // Sends what is in the Outbox, as far as the kernel accepts it.
  void flush(int rank, std::size_t lane = 0);
  // Sends a frame before those that have not begun. Makes the connection if there is none.
  void push_first(int rank, const Frame& frame);
  // Closes all connections to that rank. Frames that have not reached it may be lost.
  void end_out(int rank, const std::string& why);

  // --- Events

  void handle(Poller::Source source, std::uint32_t events);
  // Reads what has arrived from that rank and sends what waits for it, without asking the Poller.
  // False: it has not connected yet.
  bool poll(int rank);
  // Call it after events, and at next_due().
  void do_what_is_due();
  // At most `latest`.
  Deadline next_due(Deadline latest) const;
  // Whether, since the last call, an event that a waiting thread expects may have been handled: the
  // kernel has accepted frames that were queued before, or a rank has ended.
  bool take_changes() { return std::exchange(has_changed_, false); }
  // In all connections, since the beginning.
  std::uint64_t received_bytes() const { return received_bytes_; }
  template <typename Action>
  void for_each_payload(Action&& action) {
    for (auto& [id, in] : incoming_) action(in.payload);
  }

  // --- Ends

  void abort() noexcept;
  // As Backend's.
  bool tell_lost(int rank) noexcept;
  bool is_aborted() const { return is_aborted_; }
  // Throws if all messages of this rank have failed.
  void check_alive() const;
  // Nothing more can be sent to that rank.
  bool is_gone(int rank) const { return peer(rank).lanes[0].out.state() == Outbox::State::Gone; }
  // Nothing more arrives from that rank; absent: from any.
  bool is_over(std::optional<int> rank) const;
  // Why a message with that rank, or with any, has failed, or is not done at its deadline.
  BackendFailure loss_of(std::optional<int> rank) const;
  BackendFailure lateness_of(std::optional<int> rank) const;
  BackendFailure lateness_of_call(int rank) const;
  // Empty unless the context asks for a lookout.
  std::vector<Lifeline> lifelines() const;

 private:
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
    Payload payload{};
    // When the kernel may have left its mode for interactive connections.
    Deadline interactive_until{};
  };
  struct Lane {
    Outbox out{};
    bool waits_to_write = false;
    Hello hello{};
    std::string answer{};  // of the called rank, as far as it has arrived
  };
  struct Peer {
    Place place{};
    std::array<Lane, kMostLanes> lanes{};
    std::size_t lane_count = 1;                 // to be used for large messages
    std::array<bool, kMostLanes> has_called{};  // it has, or had, this connection to this rank
    int open_count = 0;                         // of its connections
    std::uint32_t in_id = 0;                    // of the first one
    bool is_over = false;                       // it sends nothing more
    std::optional<Deadline> over_at{};
    PeerEnd end{};
  };
  // A caller that has not identified itself.
  struct Stranger {
    std::uint32_t id = 0;
    Deadline until{};  // may be disconnected afterwards
  };

  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  void exchange_places(const BackendContext& context);
  Poller::Source source_of(int rank, std::size_t lane) const;

  // As call(rank). A failure becomes that of all messages.
  void call_back(int rank) noexcept;
  // `error`: of a connection to or from that rank.
  void note(int rank, int error);
  void close(Lane& lane) const;
  void take_answer(int rank, std::size_t lane);
  // `error`: 0 if the rank has closed the connection.
  void end_lane(int rank, std::size_t lane, int error);
  void end_lane(int rank, std::size_t lane, const std::string& why);

  void take_callers();
  void pause_accepting(Deadline until, std::string lack = {});
  void resume_accepting();
  void read(std::uint32_t id);
  static void keep_interactive(Incoming& in);
  bool take(Incoming& in, std::string_view bytes);
  void take_payload(Incoming& in, std::size_t bytes);
  bool take_hello(Incoming& in);
  bool challenge(Incoming& in, const Hello& hello);
  bool admit(Incoming& in, const Hello& hello);
  bool take_frame(Incoming& in);
  void end_in(std::uint32_t id, const std::string& why);
  void await_end(int rank);
  void end_over(int rank);

  const int rank_;
  const int size_;
  const bool is_lookout_;
  const std::optional<JobKey> job_key_;  // absent: no proofs
  const Poller& poller_;
  FrameHandler* frames_ = nullptr;
  Listening listener_;
  Place own_{};
  bool is_aborted_ = false;
  std::optional<BackendFailure> own_failure_;  // found while working for all messages
  std::vector<Peer> peers_;
  int ending_ = 0;  // of them: over_at
  bool has_changed_ = false;
  std::uint32_t next_id_ = 0;
  std::unordered_map<std::uint32_t, Incoming> incoming_;
  std::deque<Stranger> strangers_;  // oldest first
  std::uint64_t received_bytes_ = 0;
  std::size_t rejected_ = 0;  // callers without a valid hello or proof
  // Set: accepting is paused until then, or until there is room.
  std::optional<Deadline> accept_at_;
  std::string lack_;  // why no connection can be accepted; empty: no reason
  // Small, since it is copied once more: for heads and short messages.
  std::vector<char> buffer_ = std::vector<char>(std::size_t{8} << 10);
};

}  // namespace drun::worker::tcp
