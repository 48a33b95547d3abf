// edge. A nonblocking client of NCCL's RAS service: one query at a time, with limits on time and
// size.
//
// Stopped: all processes of the node listen at the address, and the kernel selects one of them. If
//          it does not respond for a second, it may be stopped, and another connection is tried, up
//          to four.
// Owner:   the caller; destruction and stop() cancel a query without calling `on_answer`.
// Thread:  the io_context's only. `on_answer` is called exactly once, from the loop.
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

  // `host`: a numeric address, or localhost. A call during a query gets the same answer.
  void ask(const std::string& host, std::uint16_t port, OnAnswer on_answer);
  void stop();

 private:
  class Question;

  asio::io_context& io_;
  std::chrono::milliseconds limit_;
  std::shared_ptr<Question> question_;  // handlers keep it alive until they have run
};

}  // namespace drun::agent::ras
