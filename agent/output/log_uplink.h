// core. What workers of this node have written, on its way to the coordinator (--gather-logs): cut
// into messages, sent as far as the coordinator allows, kept until it has passed them on.
//
//   push --> waiting -- next, as far as the window goes --> under way -- granted --> gone
//               +------------------------ close ---------------+---> back to the caller
//
// Order:   first in, first out. The pieces of a long line stand in a row.
// Units:   while is_congested() nothing should be pushed: more than kMostWaitingBytes wait, until
//          no more than kFewWaitingBytes do. Besides, a window is under way.
// Owner:   GatherLink.   Thread: any, one at a time.   Errors: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "agent/output/console.h"
#include "rendezvous/coordinator/log_collector.h"
#include "rendezvous/member/client.h"
#include "rendezvous/protocol/control_message.h"

namespace drun::agent {

inline constexpr std::size_t kMostWaitingBytes = std::size_t{256} << 10;
inline constexpr std::size_t kFewWaitingBytes = std::size_t{64} << 10;

class LineSender {
 public:
  void open(std::size_t window_bytes);
  // Removes and returns the lines that were not granted, oldest first.
  std::vector<rendezvous::Lines> close();

  // `text` goes out with the other fields of `like`; is_end with its last message.
  void push(const rendezvous::Lines& like, std::string_view text);
  // What may go out now, valid until the next call of anything here; null: nothing.
  const rendezvous::Lines* next();
  void granted(std::size_t bytes);

  bool is_congested() const { return is_congested_; }
  bool is_idle() const { return waiting_.empty() && under_way_.empty(); }

 private:
  void add(rendezvous::Lines lines);

  std::size_t window_bytes_ = 0;
  std::size_t waiting_bytes_ = 0;
  std::size_t under_way_bytes_ = 0;
  std::size_t granted_bytes_ = 0;  // not yet a whole message
  bool is_congested_ = false;
  std::deque<rendezvous::Lines> waiting_;
  std::deque<rendezvous::Lines> under_way_;
};

}  // namespace drun::agent

// edge. The way of this node's lines to the coordinator (--gather-logs): between Output, which has
// them, and Client, which has the connection.
//
// Trips:   each connection is one; streams belong to the trip on which they were opened. When it is
//          over, on_lost returns the lines that had not been taken, and the node shows them itself.
// Owner:   Output. The listener's calls come from the loop, or from within push() and give_up().
// Thread:  the io_context's only.   Errors: none.

namespace drun::agent {

class GatherLink final : public rendezvous::Client::LineListener {
 public:
  struct Listener {
    std::function<void()> on_room;  // not congested any more
    std::function<void()> on_idle;  // all has been taken
    std::function<void(const std::vector<rendezvous::Lines>&)> on_lost;
  };

  explicit GatherLink(Listener listener) : listener_(std::move(listener)) {}

  // The trip that streams can take now; absent: none.
  std::optional<std::uint64_t> trip() const { return send_ ? std::optional(trip_) : std::nullopt; }
  bool is_congested() const { return sender_.is_congested(); }
  bool is_idle() const { return sender_.is_idle(); }

  void push(const rendezvous::Lines& like, std::string_view text);
  // Drops all lines; no trip begins any more.
  void give_up();

  void on_lines_wanted(std::size_t window_bytes, Send send) override;
  void on_lines_taken(std::size_t bytes) override;
  void on_lines_lost() override;

 private:
  void send_all();

  Listener listener_;
  LineSender sender_;
  Send send_;  // null: no connection
  std::uint64_t trip_ = 0;
  bool has_given_up_ = false;
};

}  // namespace drun::agent

// edge. The way of this node's lines to the starter of --hosts: a trip of GatherLink's over the
// channel (agent/output/host_channel.h).
//
// Flow:    a window of lines may be under way; what the channel has taken in while it is not
//          congested is granted again. A channel that is gone takes all.
// Owner:   Output, as are the channel and the link, which outlive it.
// Thread:  the io_context's only.   Errors: none.

namespace drun::agent {

class StdoutLines {
 public:
  // `from`: the identity of a worker of this node, by its local rank.
  StdoutLines(asio::io_context& io, Console& channel, GatherLink& link,
              std::function<rendezvous::LinesFrom(int local_rank)> from);

  // Before the first round.
  void start();
  // There is room on the channel again.
  void wake();

 private:
  void send(const rendezvous::Lines& lines);

  asio::io_context& io_;
  Console& channel_;
  GatherLink& link_;
  std::function<rendezvous::LinesFrom(int)> from_;
  std::size_t owed_bytes_ = 0;
  bool is_posted_ = false;
  std::shared_ptr<char> alive_ = std::make_shared<char>();  // tells late handlers that it is gone
};

}  // namespace drun::agent
