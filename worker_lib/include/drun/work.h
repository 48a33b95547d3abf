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
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

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

// Blocks until all operations are done, also those after one that has failed, then throws the error
// of the first one in the list that has failed. The timeout applies to all of them together: if it
// ends first, WorkerError (Timeout), and the operations continue.
//
//     std::vector<drun::Work> works = drun::batch_isend_irecv(group, batch);
//     drun::wait_all(works);
void wait_all(const std::vector<Work>& works, Work::Timeout timeout = {});

// Blocks until an operation is done or has failed, and returns its index. Does not throw its error:
// wait() on it does. WorkerError: Timeout if none is done in that time; Usage for an empty list.
std::size_t wait_any(const std::vector<Work>& works, Work::Timeout timeout = {});

}  // namespace drun
