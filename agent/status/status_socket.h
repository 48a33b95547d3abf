// edge. The local socket at which an agent answers `drun status`, `drun stacks` or `drun logs`. Its
// name is in the abstract namespace, so nothing is left behind if the agent is killed.
//
// Name:    "@drun/<uid>/<pid>/<random>" ("@drun-stacks/..."), listed in /proc/net/unix of its
//          network namespace.
// Flow:    a client gets one text and the end of the stream. With Requests::Line it first sends a
//          line of at most kMostRequestBytes, within 2 s; otherwise nothing is read from it.
// Safety:  answers only the same user and root (SO_PEERCRED); at most 16 clients at a time, each
//          for up to 2 s once the answer is ready.
// Owner:   Agent; keeps the io_context running until stop().   Thread: the io_context's only.
// Errors:  none; if such sockets are not available, there is no status, which is logged (debug).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rendezvous/base/log.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

class StatusSocket {
 public:
  // Takes the text, once, now or later. If it is destroyed uncalled, the client gets an empty
  // answer.
  using Reply = std::function<void(std::string text)>;
  // `request`: with its line end; empty without Requests::Line.
  using Ask = std::function<void(const std::string& request, Reply reply)>;
  enum class Requests { None, Line };
  static constexpr std::size_t kMostRequestBytes = 128;

  // `word`: the first part of the name, "drun".
  StatusSocket(asio::io_context& io, const Log& log, const std::string& word, Ask ask,
               Requests requests = Requests::None);
  ~StatusSocket();
  StatusSocket(const StatusSocket&) = delete;
  StatusSocket& operator=(const StatusSocket&) = delete;

  // `ask` is not called afterwards, and later replies are dropped. Idempotent.
  void stop();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // handlers keep it alive until they have run
};

}  // namespace drun::agent
