// core. The coordinator's collection of lines (--gather-logs): which member may send how many, and
// where they go.
//
// Order:   of one node as its workers wrote them; on_lines_end after its last lines.
// Owner:   Server; the LogSink must outlive it.
// Thread:  the io_context's only.   Errors: none; take() returns false for a member that
//          breaks the rules.
#pragma once

#include <cstddef>
#include <string>

#include "rendezvous/coordinator/round.h"
#include "rendezvous/protocol/line_window.h"

namespace drun::rendezvous {

struct LinesFrom {
  Peer peer = 0;
  int node_rank = 0;
  int rank = 0;
  std::string host{};
  std::string role{};
};

// Where gathered lines go. May not call back from within a call.
class LogSink {
 public:
  // Once they are passed on, Server::lines_taken is to be called.
  virtual void on_lines(const LinesFrom& from, Lines lines) = 0;
  // Nothing comes from that connection any more; only of one that some came from.
  virtual void on_lines_end(Peer peer) = 0;

 protected:
  ~LogSink() = default;
};

class LogCollector {
 public:
  // Without a taker no member may send lines.
  LogCollector(std::size_t window_bytes, LogSink* taker) : ledger_(window_bytes), taker_(taker) {}

  // False: it may not send these.
  bool take(const RoundState& state, Peer peer, Lines lines);
  // The number of bytes to grant now.
  std::size_t taken(Peer peer, std::size_t cost) { return ledger_.taken(peer, cost); }
  void forget(Peer peer);

 private:
  LineLedger ledger_;
  LogSink* taker_;
};

}  // namespace drun::rendezvous
