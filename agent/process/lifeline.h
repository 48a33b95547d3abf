// edge. The connection from the launcher of a remote agent, on the agent's standard input. Lines of
// text replace signals, and the end of the file ends the job.
//
//   "signal N"     end the job in order, as after signal N
//   "kill"         end the job at once
//   "pass N"       forward USR1, USR2 or CONT to the workers
//   "input N"      N bytes for rank 0's standard input follow this line
//   "input end"    rank 0's standard input ends
//   other lines    ignored, also empty ones
//   end of file    as SIGHUP; so is a read error
//
// Silence: the launcher sends a line (possibly empty) every kLifelineTick. If none arrives within
//          kLifelineSilence, its machine or the network is gone; this counts as the end of the
//          file.
// Elastic: in an elastic job the other nodes continue, and a SIGHUP of the coordinator would end
//          it. The end of the file therefore kills this process and all that it has started
//          (guardian.h), and the other nodes see a lost node.
// Calls:   as described at Signals::Listener, except that on_terminate may be called by both.
// Owner:   Agent. Keeps the io_context running between start() and stop(). Destroy it after the
//          io_context has run its last handler.
// Thread:  the io_context's only.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "agent/process/signals.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

inline constexpr std::chrono::seconds kLifelineTick{10};
inline constexpr std::chrono::seconds kLifelineSilence{60};

class Lifeline {
 public:
  class Input {
   public:
    virtual void on_input(std::string_view bytes) = 0;  // in any pieces
    virtual void on_input_end() = 0;

   protected:
    ~Input() = default;
  };

  // Reads a duplicate of `fd`. `pending`: bytes already read from it.
  Lifeline(asio::io_context& io, int fd, std::string pending, Signals::Listener& listener,
           std::chrono::milliseconds silence = kLifelineSilence);
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

  // Call before start(). Without it, input for rank 0 is dropped.
  Lifeline& give_input_to(Input& input) {
    workers_input_ = &input;
    return *this;
  }
  Lifeline& kill_at_end(bool is_elastic) {
    kills_at_end_ = is_elastic;
    return *this;
  }
  // Call before start(). Handles what `stopped`, with the same descriptor, has read but not
  // handled.
  Lifeline& continue_after(const Lifeline& stopped) {
    held_ = stopped.held_;
    input_left_bytes_ = stopped.input_left_bytes_;
    return *this;
  }
  void start();
  void stop();
  // The end of the input has been reported, not necessarily by the file's end.
  bool has_ended() const { return has_ended_; }

 private:
  void wait();
  void restart_silence_timer();
  void read();
  void on_bytes(std::string_view bytes);
  void handle(std::string_view line);
  void end();

  UniqueFd fd_;
  asio::posix::stream_descriptor input_;
  asio::steady_timer silence_timer_;
  std::chrono::milliseconds silence_;
  std::string held_;
  Signals::Listener& listener_;
  Input* workers_input_ = nullptr;
  std::size_t input_left_bytes_ = 0;  // bytes of input that still follow
  bool kills_at_end_ = false;
  bool is_stopped_ = false;
  bool has_ended_ = false;
  bool is_killing_ = false;
};

}  // namespace drun::agent
