// edge. Signals that drun itself gets (forwarded by the guardian), turned into three kinds of wish.
//
// Rules:   the first termination signal asks for an orderly end; a second SIGINT at least 200 ms
//          after the first SIGINT asks for a kill now (shells and `timeout` may send one Ctrl-C
//          twice); repeated others change nothing. USR1, USR2 and CONT are passed on, unless they
//          are in the termination list. Signals that were ignored when drun started stay ignored.
// Owner:   Agent. Between start() and stop() it keeps the io_context running; it is destroyed after
//          the io_context has run its last handler.
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
    virtual void on_terminate(int signal) = 0;  // once, the first
    virtual void on_kill_now() = 0;             // once at most, after on_terminate
    virtual void on_pass_on(int signal) = 0;    // any number of times
  };

  // A signal that cannot be caught (SIGKILL) is left out of the list silently.
  Signals(asio::io_context& io, std::vector<int> termination_signals, Listener& listener);
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Also ignores SIGPIPE from here on (spawn gives workers the default back).
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
