// edge. The connection to the starter of this agent on another machine, on standard input: lines of
// text take the place of signals, and the end of the file ends the job.
//
// Silence: the other end sends a line every kLifelineTick, if only an empty one. A machine or
// network
//          that is gone sends nothing: after kLifelineSilence that counts as the end of the file.
//
//   "signal N"   end in order, as by signal N          "kill"     and at once
//   "pass N"     USR1, USR2 or CONT for the workers     end of file, or an error: as SIGHUP
//   "input N"    N bytes for rank 0's standard input    "input end"  and no more
//                follow this line
//
// Elastic: the other nodes of such a job continue, and a signal to the coordinator would end it. So
// the end of the file kills this process, and with it all that it has started
//          (guardian.h): the others see a node that is lost.
//
// Shape:   other lines, empty ones among them, mean nothing. What Signals promises of its listener
//          holds here, but that on_terminate may come from both.
// Owner:   Agent. Between start() and stop() it keeps the io_context running; destroyed after the
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

  // Reads a duplicate of `fd`; `pending` are bytes that were read from it before.
  Lifeline(asio::io_context& io, int fd, std::string pending, Signals::Listener& listener,
           std::chrono::milliseconds silence = kLifelineSilence);
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

  // Before start(); without it such bytes are dropped.
  Lifeline& give_input_to(Input& input) {
    workers_input_ = &input;
    return *this;
  }
  Lifeline& die_with_it(bool is_elastic) {
    kills_ = is_elastic;
    return *this;
  }
  void start();
  void stop();

 private:
  void wait();
  void await_sound();
  void read();
  void take(std::string_view bytes);
  void obey(std::string_view line);
  void end();

  UniqueFd fd_;
  asio::posix::stream_descriptor input_;
  asio::steady_timer patience_;
  std::chrono::milliseconds silence_;
  std::string held_;
  Signals::Listener& listener_;
  Input* workers_input_ = nullptr;
  std::size_t input_left_bytes_ = 0;  // that follow, and are no lines
  bool kills_ = false;
  bool is_stopped_ = false;
  bool is_killing_ = false;
};

}  // namespace drun::agent
