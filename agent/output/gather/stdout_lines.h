// edge. The way of this node's lines to the starter of --hosts: a trip of GatherLink's over the
// channel (agent/host_channel.h).
//
// Flow:    a window of lines may be under way; what the channel has taken in while it is not
//          congested is granted again. A channel that is gone takes all.
// Owner:   Output, as are the channel and the link, which outlive it.
// Thread:  the io_context's only.   Errors: none.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "agent/output/console.h"
#include "agent/output/gather/gather_link.h"
#include "rendezvous/lines/line_desk.h"

namespace drun::agent {

class StdoutLines {
 public:
  // `from`: who a worker of this node is now, by its local rank.
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
