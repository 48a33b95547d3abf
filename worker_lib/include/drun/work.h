// core. A handle of an operation. Every operation returns one; it is completed already unless the
// operation is asynchronous.
//
//     std::vector<float> gradients(1000);
//     drun::Work sum = group.all_reduce(gradients, drun::async_op);
//     while (!sum.is_completed()) std::this_thread::yield();  // the program does something else
//     sum.wait();
//
// Copies refer to the same operation. Destroying a Work does not stop the operation: its memory
// must stay valid until the operation is done. wait throws the error of the operation; in a child
// of fork, which has no operations, that is Usage. Thread: any.
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
  // A completed message.
  explicit Work(int peer) : peer_(peer) {}
  explicit Work(std::shared_ptr<worker::Request> request);

  // Blocks until the operation is done or has failed. Without a timeout, the operation's timeout
  // applies. If this timeout ends first: WorkerError (Timeout), and the operation continues.
  void wait(Timeout timeout = {}) const;
  // For work on a GPU that uses the result: makes `stream`, a cudaStream_t of the operation's GPU
  // (null: the default stream), wait for the operation. The calling thread does not block, except
  // while the group is still connecting. If the operation is on host memory, the same as wait().
  // Throws the operation's error if it is known by now. A later error breaks the group at the
  // operation's timeout at the latest: `stream` then continues, with unspecified data, and the
  // group's next call and error() report it. So check error() or wait() before the data leaves the
  // GPU.
  void wait_stream(void* stream) const;
  // Done or failed. In a child of fork it counts as failed (Usage).
  bool is_completed() const;
  // Null while it runs, and after success.
  std::exception_ptr error() const;
  // Waits, and returns the other rank of a message; unspecified for a collective.
  int peer() const;

 private:
  std::shared_ptr<worker::Request> request_;  // null: already done
  int peer_ = 0;                              // if it is null
};

// Blocks until all operations are done, also those after one that has failed, then throws the error
// of the first one in the list that has failed. The timeout applies to all of them together: if it
// ends first, WorkerError (Timeout), and the operations continue.
//
//     std::vector<float> first(1000), second(1000);
//     drun::wait_all({group.all_reduce(first, drun::async_op),
//                     group.all_reduce(second, drun::async_op)});
void wait_all(const std::vector<Work>& works, Work::Timeout timeout = {});

// Blocks until an operation is done or has failed, and returns its index. Does not throw its error:
// wait() on it does. WorkerError: Timeout if none is done in that time; Usage for an empty list.
std::size_t wait_any(const std::vector<Work>& works, Work::Timeout timeout = {});

}  // namespace drun
