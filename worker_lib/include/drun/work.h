// core. An operation that was started and not waited for.
//
//     drun::Work sum = group.async_all_reduce(gradients);
//     ...
//     sum.wait();
//
// Owner:   a value; copies are the same operation. Dropping it does not stop the operation: its
//          memory must live until it is done.
// Thread:  any.
// Errors:  wait throws what the operation itself would have thrown.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <optional>

namespace drun {

namespace worker {
class Request;
}

class Work {
 public:
  using Timeout = std::optional<std::chrono::milliseconds>;

  // Done already.
  Work() = default;
  explicit Work(std::shared_ptr<worker::Request> request);

  // Blocks until the operation is done or has failed. Without a timeout, the operation's timeout
  // applies. If this timeout ends first: WorkerError (Timeout), and the operation continues.
  void wait(Timeout timeout = {}) const;
  // Done or failed.
  bool is_completed() const;
  // Null while it runs, and when it went well.
  std::exception_ptr error() const;
  // Waits; the rank a message came from, or went to.
  int peer() const;

 private:
  std::shared_ptr<worker::Request> request_;  // none: done already
};

}  // namespace drun
