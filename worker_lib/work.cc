#include "drun/work.h"

#include <string>
#include <utility>

#include "drun/error.h"

namespace drun {
namespace {

std::shared_future<int> done_already() {
  std::promise<int> promise;
  promise.set_value(0);
  return promise.get_future().share();
}

}  // namespace

Work::Work() : done_(done_already()) {}
Work::Work(std::shared_future<int> done) : done_(std::move(done)) {}

void Work::wait(Timeout timeout) const {
  if (timeout && done_.wait_for(*timeout) != std::future_status::ready) {
    throw WorkerError({.kind = WorkerError::Kind::Timeout,
                       .operation = "Work::wait",
                       .message = "the operation is not done after " +
                                  std::to_string(timeout->count()) + " ms; it goes on"});
  }
  done_.get();
}

bool Work::is_completed() const {
  return done_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

std::exception_ptr Work::error() const {
  if (!is_completed()) return nullptr;
  try {
    done_.get();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

int Work::peer() const { return done_.get(); }

}  // namespace drun
