// edge. Connections of druns that have a secret where this one has none, or the other way round:
// each side says so in a line.
// Limits:  the last 64 may take their time to read it and hang up.
// Owner:   Server; close before destruction.
// Thread:  the io_context's only.
// Errors:  none.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "rendezvous/asio.h"
#include "rendezvous/control_connection.h"

namespace drun::rendezvous {

class TurnedAway final : private ControlConnection::Listener {
 public:
  // `is_tls`: it is the one that has a secret. Gives the line for this side's log.
  std::string add(asio::ip::tcp::socket socket, bool is_tls, const std::string& endpoint);
  void close();

 private:
  void on_frame(ControlConnection&, std::string_view) override {}
  void on_end(ControlConnection&, const ConnectionEnd&) override {}

  std::deque<std::shared_ptr<ControlConnection>> connections_;
};

}  // namespace drun::rendezvous
