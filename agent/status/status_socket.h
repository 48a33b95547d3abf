// edge. Where an agent answers one question, `drun status`, `drun stacks` or `drun logs`: a local
// socket in the abstract namespace, so that nothing of it is left behind whatever ends the agent.
//
// Name:    "@drun/<uid>/<pid>/<random>" ("@drun-stacks/..."), listed in /proc/net/unix of its
//          network namespace.
// Flow:    a client gets one text and the end of the stream. With Requests::Line it first sends a
//          line of at most kMostRequestBytes, within 2 s; otherwise nothing is read from it.
// Safety:  only the same user and root are answered (SO_PEERCRED); at most 16 at a time, each for
//          2 s, once there is something to say.
// Owner:   Agent; keeps the io_context running until stop().   Thread: the io_context's only.
// Errors:  none: where there are no such sockets there is no status, which is logged (debug).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rendezvous/base/log.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

class StatusSocket {
 public:
  // Takes the text, now or later, once; may be dropped: then the stream ends empty.
  using Reply = std::function<void(std::string text)>;
  // `request`: with its line end; empty without Requests::Line.
  using Ask = std::function<void(const std::string& request, Reply reply)>;
  enum class Requests { None, Line };
  static constexpr std::size_t kMostRequestBytes = 128;

  // `word`: the name's first, "drun".
  StatusSocket(asio::io_context& io, const Log& log, const std::string& word, Ask ask,
               Requests requests = Requests::None);
  ~StatusSocket();
  StatusSocket(const StatusSocket&) = delete;
  StatusSocket& operator=(const StatusSocket&) = delete;

  // No calls of `ask` from here on; replies that come later are dropped. Idempotent.
  void stop();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // kept by its handlers until they have ended
};

}  // namespace drun::agent
