// edge. Receives the signals sent to drun (forwarded by the guardian) and turns each into one of
// three requests: terminate, kill now, or forward to the workers.
//
// Rules:   the first termination signal requests an orderly end. A second SIGINT at least 200 ms
//          after the first requests an immediate kill (shells and `timeout` may send one Ctrl-C
//          twice). Other repeated signals are ignored. USR1, USR2 and CONT are forwarded, unless
//          they are in the termination list. Signals that were ignored when drun started stay
//          ignored.
// Owner:   Agent. Keeps the io_context running between start() and stop(). Destroy it after the
//          io_context has run its last handler.
// Thread:  the io_context's only.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "rendezvous/net/asio.h"

namespace drun::agent {

class Signals {
 public:
  struct Listener {
    virtual ~Listener() = default;
    virtual void on_terminate(int signal) = 0;  // once, for the first one
    virtual void on_kill_now() = 0;             // at most once, after on_terminate
    virtual void on_pass_on(int signal) = 0;    // any number of times
  };

  // Silently ignores signals in the list that cannot be caught (SIGKILL).
  Signals(asio::io_context& io, std::vector<int> termination_signals, Listener& listener);
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Also sets SIGPIPE to ignored in this process; spawn restores the default in workers.
  void start();
  void stop();

 private:
  void wait();
  void handle(int signal);

  asio::signal_set signals_;
  std::vector<int> termination_signals_;
  Listener& listener_;
  std::optional<int> first_;
  std::optional<std::chrono::steady_clock::time_point> first_interrupt_;
  bool killing_ = false;
  bool stopped_ = false;
};

}  // namespace drun::agent
