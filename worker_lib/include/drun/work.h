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
#include <future>
#include <optional>

namespace drun {

class Work {
 public:
  using Timeout = std::optional<std::chrono::milliseconds>;

  // Done already.
  Work();
  // `done` gives the other rank of a message, and any number otherwise.
  explicit Work(std::shared_future<int> done);

  // Until the operation is done or has failed. Without a timeout of its own it ends with the
  // operation's. When this one ends first: WorkerError (Timeout), and the operation goes on.
  void wait(Timeout timeout = {}) const;
  // Done or failed.
  bool is_completed() const;
  // Null while it runs, and when it went well.
  std::exception_ptr error() const;
  // Waits; the rank a message came from, or went to.
  int peer() const;

 private:
  std::shared_future<int> done_;
};

}  // namespace drun
