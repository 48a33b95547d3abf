// edge. Asks NCCL's RAS service, without ever blocking: one question at a time, bounded in time and
// size.
//
// Frozen:  all processes of the node listen at the address, and the kernel picks one of them. One
//          that is silent for a second may be stopped; then another connection is tried, up to
//          four.
// Owner:   the caller; destruction or stop() ends a question silently.
// Thread:  the io_context's only. `on_answer` comes from the loop, once and only once.
// Errors:  Unreachable: nothing listens there; Timeout: no complete answer in time; Refused: the
//          answer is invalid.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "agent/nccl_ras/ras_report.h"
#include "rendezvous/base/result.h"
#include "rendezvous/net/asio.h"

namespace drun::agent::ras {

class Client {
 public:
  using OnAnswer = std::function<void(const Result<Report>&)>;

  explicit Client(asio::io_context& io,
                  std::chrono::milliseconds limit = std::chrono::milliseconds(6500))
      : io_(io), limit_(limit) {}
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() { stop(); }

  // `host`: a numeric address, or localhost. A call during a question gets the same answer.
  void ask(const std::string& host, std::uint16_t port, OnAnswer on_answer);
  void stop();

 private:
  class Question;

  asio::io_context& io_;
  std::chrono::milliseconds limit_;
  std::shared_ptr<Question> question_;  // kept by its handlers until they have ended
};

}  // namespace drun::agent::ras
