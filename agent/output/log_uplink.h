// edge. The path of this node's lines to the coordinator (--gather-logs) or to the launcher of
// --hosts.
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
#include "rendezvous/member/client.h"
#include "rendezvous/protocol/control_message.h"
#include "rendezvous/server/log_collector.h"

namespace drun::agent {

// --- Queue: cuts workers' lines into messages, sends as much as the receiver allows, and keeps
// them until the receiver has passed them on.
//
//   push --> waiting -- next, as far as the window goes --> under way -- granted --> gone
//               +------------------------ close ---------------+---> back to the caller
//
// First in, first out; the pieces of a long line are consecutive. While is_congested(), push
// nothing more: this is the case from more than kMostWaitingBytes until at most kFewWaitingBytes
// wait. One window is under way in addition.

inline constexpr std::size_t kMostWaitingBytes = std::size_t{256} << 10;
inline constexpr std::size_t kFewWaitingBytes = std::size_t{64} << 10;

class LineSender {
 public:
  void open(std::size_t window_bytes);
  // Removes and returns the lines that were not granted, oldest first.
  std::vector<rendezvous::Lines> close();

  // Sends `text` with the other fields of `like`; is_end is set on its last message only.
  void push(const rendezvous::Lines& like, std::string_view text);
  // The message that can be sent now, or null. Valid until the next call of any method.
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

// --- Link between Output, which has the lines, and Client, which has the connection
//
// Each connection is a trip, identified by a number; a stream belongs to the trip during which it
// was opened. When the trip ends, on_lost returns the lines that the receiver has not passed on,
// and the node shows them itself. The listener is called from the loop, or from within push() and
// give_up(). Output owns it.

class GatherLink final : public rendezvous::Client::LineListener {
 public:
  struct Listener {
    std::function<void()> on_room;  // not congested any more
    std::function<void()> on_idle;  // everything has been passed on
    std::function<void(const std::vector<rendezvous::Lines>&)> on_lost;
  };

  explicit GatherLink(Listener listener) : listener_(std::move(listener)) {}

  // The current trip; absent: no connection.
  std::optional<std::uint64_t> trip() const { return send_ ? std::optional(trip_) : std::nullopt; }
  bool is_congested() const { return sender_.is_congested(); }
  bool is_idle() const { return sender_.is_idle(); }

  void push(const rendezvous::Lines& like, std::string_view text);
  // Drops all lines; no trip starts any more.
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

// --- Lines to the launcher of --hosts: a trip of GatherLink over the channel (host_channel.h)
//
// One window of lines can be under way. Bytes that the channel accepts while it is not congested
// are granted again. A failed channel grants everything.
// Output owns it, the channel and the link; the latter two must outlive it.

class StdoutLines {
 public:
  // `from`: the identity of a worker of this node, by local rank.
  StdoutLines(asio::io_context& io, Console& channel, GatherLink& link,
              std::function<rendezvous::LinesFrom(int local_rank)> from);

  // Call before the first round.
  void start();
  // The channel has room again.
  void wake();

 private:
  void send(const rendezvous::Lines& lines);

  asio::io_context& io_;
  Console& channel_;
  GatherLink& link_;
  std::function<rendezvous::LinesFrom(int)> from_;
  std::size_t owed_bytes_ = 0;
  bool is_posted_ = false;
  std::shared_ptr<char> alive_ = std::make_shared<char>();  // expired: this object was destroyed
};

}  // namespace drun::agent
