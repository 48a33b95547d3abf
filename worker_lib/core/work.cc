#include "drun/work.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "drun/backend.h"
#include "drun/error.h"
#include "worker_lib/core/pulse.h"
#include "worker_lib/core/requests.h"

namespace drun {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

WorkerError late(const char* operation, milliseconds time, const std::string& what) {
  return WorkerError({.kind = WorkerError::Kind::Timeout,
                      .operation = operation,
                      .message = what + " after " + std::to_string(time.count()) + " ms"});
}

}  // namespace

Work::Work(std::shared_ptr<worker::Request> request, std::weak_ptr<Transfer> transfer)
    : request_(std::move(request)), transfer_(std::move(transfer)) {}

void Work::wait(Timeout timeout) const {
  if (!request_) return;
  const worker::WaitMark mark;
  if (!timeout) {
    request_->wait();
  } else if (!request_->wait_for(*timeout)) {
    throw late("Work::wait", *timeout, "the operation continues: it is not done");
  }
  request_->get();
}

void Work::wait_stream(void* stream) const {
  if (!request_) return;
  const worker::WaitMark mark;
  bool is_queued = false;
  try {
    const std::shared_ptr<Transfer> transfer = transfer_.lock();
    is_queued = transfer && transfer->wait_on(stream);
  } catch (const std::exception&) {
    // Either the operation has failed, which wait() reports, or the stream cannot wait.
  }
  if (!is_queued) return wait();
  // Another thread can be completing it, which takes no time.
  if (request_->is_done() || !request_->is_open()) wait();
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
  if (!request_) return peer_;
  request_->wait();
  return request_->get();
}

void wait_all(const std::vector<Work>& works, Work::Timeout timeout) {
  const Clock::time_point began = Clock::now();
  std::exception_ptr first;
  for (std::size_t i = 0; i < works.size(); ++i) {
    Work::Timeout left = timeout;
    if (timeout) {
      const auto passed = std::chrono::duration_cast<milliseconds>(Clock::now() - began);
      left = std::max(*timeout - passed, milliseconds(0));
    }
    try {
      works[i].wait(left);
    } catch (const std::exception&) {
      // Either its own error, below, or that it is late.
    }
    if (!works[i].is_completed())
      throw late("wait_all", *timeout, "operation " + std::to_string(i) + " is not done");
    if (!first) first = works[i].error();
  }
  if (first) std::rethrow_exception(first);
}

// No event covers several operations. Polling also makes progress for them.
std::size_t wait_any(const std::vector<Work>& works, Work::Timeout timeout) {
  constexpr milliseconds kPollTime{1};
  constexpr std::chrono::microseconds kPause{100};
  if (works.empty()) {
    throw WorkerError({.kind = WorkerError::Kind::Usage,
                       .operation = "wait_any",
                       .message = "the list of operations is empty"});
  }
  const worker::WaitMark mark;
  const Clock::time_point began = Clock::now();
  while (true) {
    for (std::size_t i = 0; i < works.size(); ++i)
      if (works[i].is_completed()) return i;
    const auto passed = Clock::now() - began;
    if (timeout && passed >= *timeout) throw late("wait_any", *timeout, "no operation is done");
    if (passed < kPollTime) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
}

}  // namespace drun
