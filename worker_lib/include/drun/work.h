// core. A handle of an asynchronous operation.
//
//     drun::Work sum = group.async_all_reduce(gradients);
//     ...
//     sum.wait();
//
// Copies refer to the same operation. Destroying a Work does not stop the operation: its memory
// must stay valid until the operation is done. wait throws the error of the operation. Thread: any.
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

  // A completed operation.
  Work() = default;
  explicit Work(std::shared_ptr<worker::Request> request);

  // Blocks until the operation is done or has failed. Without a timeout, the operation's timeout
  // applies. If this timeout ends first: WorkerError (Timeout), and the operation continues.
  void wait(Timeout timeout = {}) const;
  // Done or failed.
  bool is_completed() const;
  // Null while it runs, and after success.
  std::exception_ptr error() const;
  // Waits, and returns the other rank of a message.
  int peer() const;

 private:
  std::shared_ptr<worker::Request> request_;  // null: already done
};

}  // namespace drun
