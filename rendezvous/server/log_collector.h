// core. The coordinator's collection of workers' lines (--gather-logs): limits how much each member
// may send, and passes the lines to a LogSink, which must outlive it.
//
// Order:   a node's lines arrive as its workers wrote them; on_lines_end follows its last lines.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "rendezvous/coordinator/round_events.h"
#include "rendezvous/protocol/line_window.h"

namespace drun::rendezvous {

struct LinesFrom {
  Peer peer = 0;
  int node_rank = 0;
  int rank = 0;
  std::string host{};
  std::string role{};
};

// Receives the gathered lines. Must not call back from within a call.
class LogSink {
 public:
  // The sink calls Server::lines_taken once it has passed them on.
  virtual void on_lines(const LinesFrom& from, Lines lines) = 0;
  // No more lines follow from that connection. Called only if it has sent lines.
  virtual void on_lines_end(Peer peer) = 0;

 protected:
  ~LogSink() = default;
};

struct RoundState;

class LogCollector {
 public:
  // `sink`: null if members must not send lines.
  LogCollector(std::size_t window_bytes, LogSink* sink) : ledger_(window_bytes), sink_(sink) {}

  // Returns false if the member breaks the rules.
  bool take(const RoundState& state, Peer peer, Lines lines);
  // The number of bytes to grant now.
  std::size_t taken(Peer peer, std::size_t cost) { return ledger_.taken(peer, cost); }
  void forget(Peer peer);

 private:
  LineLedger ledger_;
  LogSink* sink_;
};

}  // namespace drun::rendezvous
