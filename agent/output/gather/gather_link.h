// edge. The way of this node's lines to the coordinator (--gather-logs): between Output, which has
// them, and Client, which has the connection.
//
// Trips:   each connection is one; streams belong to the trip on which they were opened. When it is
//          over, what had not been taken comes back by on_lost, and the node shows it itself.
// Owner:   Output. The listener's calls come from the loop, or from within push() and give_up().
// Thread:  the io_context's only.   Errors: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "agent/output/gather/line_sender.h"
#include "rendezvous/client.h"

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
  // Drops all, and goes on no trip any more.
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
