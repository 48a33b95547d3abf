#include "drun/work.h"

#include <string>
#include <utility>

#include "drun/error.h"
#include "worker_lib/core/requests.h"

namespace drun {

Work::Work(std::shared_ptr<worker::Errand> errand) : errand_(std::move(errand)) {}

void Work::wait(Timeout timeout) const {
  if (!errand_) return;
  if (!timeout) {
    errand_->wait();
  } else if (!errand_->wait_for(*timeout)) {
    throw WorkerError({.kind = WorkerError::Kind::Timeout,
                       .operation = "Work::wait",
                       .message = "the operation is not done after " +
                                  std::to_string(timeout->count()) + " ms; it goes on"});
  }
  errand_->get();
}

bool Work::is_completed() const { return !errand_ || errand_->is_done(); }

std::exception_ptr Work::error() const {
  if (!errand_ || !errand_->is_done()) return nullptr;
  try {
    errand_->get();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

int Work::peer() const {
  if (!errand_) return 0;
  errand_->wait();
  return errand_->get();
}

}  // namespace drun
