#include "drun/work.h"

#include <string>
#include <utility>

#include "drun/error.h"
#include "worker_lib/core/pulse.h"
#include "worker_lib/core/requests.h"

namespace drun {

Work::Work(std::shared_ptr<worker::Request> request) : request_(std::move(request)) {}

void Work::wait(Timeout timeout) const {
  if (!request_) return;
  const worker::WaitMark mark;
  if (!timeout) {
    request_->wait();
  } else if (!request_->wait_for(*timeout)) {
    throw WorkerError({.kind = WorkerError::Kind::Timeout,
                       .operation = "Work::wait",
                       .message = "the operation is not done after " +
                                  std::to_string(timeout->count()) + " ms; it continues"});
  }
  request_->get();
}

bool Work::is_completed() const { return !request_ || request_->is_done(); }

std::exception_ptr Work::error() const {
  if (!request_ || !request_->is_done()) return nullptr;
  try {
    request_->get();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

int Work::peer() const {
  if (!request_) return 0;
  request_->wait();
  return request_->get();
}

}  // namespace drun
