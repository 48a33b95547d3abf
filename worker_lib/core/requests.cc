#include "worker_lib/core/requests.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <thread>

#include "drun/error.h"
#include "drun/work.h"
#include "worker_lib/base/deadline.h"
#include "worker_lib/core/pulse.h"

namespace drun::worker {

// Requests that run one after the other, on the threads that wait for them or on one of Progress.
class RequestQueue : public std::enable_shared_from_this<RequestQueue> {
 public:
  explicit RequestQueue(Progress& progress) : progress_(progress) {}

  void push(std::shared_ptr<Request> request) {
    std::unique_lock lock(mutex_);
    requests_.push_back(std::move(request));
    submit_rest();
  }
  // Runs requests until that one is done; if another thread is running one, waits for it.
  void run_until(const Request& last) {
    std::unique_lock lock(mutex_);
    while (!last.is_over()) run_or_wait(lock);
    submit_rest();
  }
  void run_all() {
    std::unique_lock lock(mutex_);
    while (is_running_ || !requests_.empty()) run_or_wait(lock);
  }

 private:
  // To a thread, unless one is running requests or is about to.
  void submit_rest() {
    if (is_running_ || is_submitted_ || requests_.empty()) return;
    is_submitted_ = true;
    progress_.threads().submit([self = shared_from_this()] { self->run_rest(); });
  }
  // A waiter that is running a request submits the rest again.
  void run_rest() {
    std::unique_lock lock(mutex_);
    if (!is_running_ && !requests_.empty()) progress_.threads().let_others_run();
    while (!is_running_ && !requests_.empty()) run_or_wait(lock);
    is_submitted_ = false;
  }
  void run_or_wait(std::unique_lock<std::mutex>& lock) {
    if (is_running_) return changed_.wait(lock);
    const std::shared_ptr<Request> first = std::move(requests_.front());
    requests_.pop_front();
    is_running_ = true;
    lock.unlock();
    first->run();
    lock.lock();
    is_running_ = false;
    changed_.notify_all();
  }

  Progress& progress_;  // not used without requests, since it may be gone then
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Request>> requests_;
  bool is_running_ = false;
  bool is_submitted_ = false;
};

void Request::run() {
  std::unique_lock lock(mutex_);
  if (state_ == State::Open) perform(lock);
}

void Request::wait() {
  if (is_inherited()) return;
  std::unique_lock lock(mutex_);
  if (state_ == State::Open && !queue_) return perform(lock);
  if (const std::shared_ptr<RequestQueue> queue = queue_) {
    lock.unlock();
    queue->run_until(*this);
    lock.lock();
  }
  done_.wait(lock, [this] { return state_ == State::Done; });
}

bool Request::wait_for(std::chrono::milliseconds time) {
  if (is_done()) return true;
  std::unique_lock lock(mutex_);
  return done_.wait_until(lock, deadline_in(time), [this] { return state_ == State::Done; });
}

bool Request::wait_on(void* stream) {
  if (is_inherited()) return false;
  std::unique_lock lock(mutex_);
  if (state_ == State::Done) return false;
  ++in_transfer_;
  lock.unlock();
  bool is_queued = false;
  try {
    const std::shared_ptr<Transfer> transfer = transfer_.lock();
    is_queued = transfer && transfer->wait_on(stream);
  } catch (const std::exception&) {
    // Either the operation has failed, which wait() reports, or the stream cannot wait.
  }
  lock.lock();
  --in_transfer_;
  done_.notify_all();
  return is_queued;
}

bool Request::is_open() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::Open;
}

bool Request::is_over() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::Done;
}

bool Request::is_done() {
  if (is_inherited()) return true;
  std::unique_lock lock(mutex_);
  if (state_ == State::Open && !queue_) {
    const std::optional<bool> ends = would_end();
    if (ends == true) perform(lock);
    if (!ends && progress_ != nullptr && !has_thread_)
      has_thread_ = progress_->try_run(shared_from_this());
  }
  return state_ == State::Done;
}

int Request::get() const {
  if (is_inherited()) {
    throw WorkerError({.kind = WorkerError::Kind::Usage,
                       .operation = "Work",
                       .message = "this process was forked from the one that started the "
                                  "operation, which stays its parent's; wait for it there"});
  }
  if (failure_) std::rethrow_exception(failure_);
  return result_;
}

void Request::perform(std::unique_lock<std::mutex>& lock) {
  state_ = State::Begun;
  lock.unlock();
  try {
    result_ = act();
  } catch (...) {
    failure_ = std::current_exception();
  }
  lock.lock();
  done_.wait(lock, [this] { return in_transfer_ == 0; });
  state_ = State::Done;
  queue_.reset();
  done_.notify_all();
}

// --- Progress

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{1};
constexpr milliseconds kSlowTick{10};
// After this number of ticks without a new or completed request, polling slows down.
constexpr int kIdleTicks = 100;

}  // namespace

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_one();
  threads_.stop();
}

bool Progress::try_run(std::shared_ptr<Request> request) {
  const bool has_room = blocking_++ < kMostBlocking;
  if (has_room && threads_.try_submit([this, request = std::move(request)] {
        threads_.let_others_run();
        request->run();
        --blocking_;
      }))
    return true;
  --blocking_;
  return false;
}

void Progress::poll(std::shared_ptr<Request> request, const void* owner) {
  const std::lock_guard lock(mutex_);
  fresh_.push_back({std::move(request), owner});
  if (is_slow_) changed_.notify_one();
  if (std::exchange(is_running_, true)) return;
  threads_.submit([this] { run(); });
}

std::vector<std::shared_ptr<Request>> Progress::take_back(const void* owner) {
  std::unique_lock lock(mutex_);
  polled_.wait(lock, [this] { return !is_polling_; });
  std::vector<std::shared_ptr<Request>> taken;
  for (std::vector<Polled>* each : {&all_, &fresh_}) {
    std::erase_if(*each, [&](const Polled& polled) {
      if (polled.owner == owner) taken.push_back(polled.request);
      return polled.owner == owner;
    });
  }
  return taken;
}

// Continues for some ticks without requests, because waking a thread for each message would cost
// more than it saves. A new message is left to the program for the first tick.
void Progress::run() {
  threads_.let_others_run();
  std::unique_lock lock(mutex_);
  for (int idle = 0; !is_stopping_ && (idle <= kIdleTicks || !all_.empty() || !fresh_.empty());
       idle = std::min(idle, kIdleTicks) + 1) {
    is_slow_ = idle >= kIdleTicks;
    changed_.wait_for(lock, is_slow_ ? kSlowTick : kTick,
                      [&] { return is_stopping_ || (is_slow_ && !fresh_.empty()); });
    is_polling_ = true;
    lock.unlock();
    const auto done =
        std::erase_if(all_, [](const Polled& polled) { return polled.request->is_done(); });
    lock.lock();
    is_polling_ = false;
    polled_.notify_all();
    if (done > 0 || !fresh_.empty()) idle = 0;
    std::move(fresh_.begin(), fresh_.end(), std::back_inserter(all_));
    fresh_.clear();
  }
  is_running_ = is_slow_ = false;
}

// --- The requests of one group

GroupRequests::GroupRequests(Progress& progress)
    : progress_(progress), queue_(std::make_shared<RequestQueue>(progress)) {}

void GroupRequests::look_after(std::shared_ptr<Request> request) {
  request->progress_ = &progress_;
  progress_.poll(std::move(request), this);
}

std::shared_ptr<Request> GroupRequests::queue(std::function<int()> action) {
  class Queued final : public Request {
   public:
    Queued(std::function<int()> action, std::shared_ptr<RequestQueue> queue)
        : Request(std::move(queue)), action_(std::move(action)) {}

   private:
    int act() override { return std::exchange(action_, nullptr)(); }
    std::function<int()> action_;
  };
  auto request = std::make_shared<Queued>(std::move(action), queue_);
  queue_->push(request);
  return request;
}

void GroupRequests::stop() {
  for (const std::shared_ptr<Request>& request : progress_.take_back(this)) {
    request->run();
    request->wait();
  }
  queue_->run_all();
}

}  // namespace drun::worker

// --- Work: the program's handle of a request

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

Work::Work(std::shared_ptr<worker::Request> request) : request_(std::move(request)) {}

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
  bool is_queued = false;
  {
    const worker::WaitMark mark;
    is_queued = request_->wait_on(stream);
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
    const auto passed = std::chrono::duration_cast<milliseconds>(Clock::now() - began);
    if (timeout && passed >= *timeout) throw late("wait_any", *timeout, "no operation is done");
    if (passed < kPollTime) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
}

}  // namespace drun
