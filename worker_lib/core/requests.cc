#include "worker_lib/core/requests.h"

#include <algorithm>
#include <iterator>

#include "drun/backend.h"

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
    progress_.submit([self = shared_from_this()] { self->run_rest(); });
  }
  // A waiter that is running a request submits the rest again.
  void run_rest() {
    std::unique_lock lock(mutex_);
    if (!is_running_ && !requests_.empty()) progress_.let_others_run();
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
  std::unique_lock lock(mutex_);
  if (state_ == State::Open && can_be_polled_) return perform(lock);
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
  return done_.wait_for(lock, time, [this] { return state_ == State::Done; });
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
  std::unique_lock lock(mutex_);
  if (state_ == State::Open && can_be_polled_ && would_end()) perform(lock);
  return state_ == State::Done;
}

int Request::get() const {
  if (failure_) std::rethrow_exception(failure_);
  return result_;
}

void Request::perform(std::unique_lock<std::mutex>& lock) {
  state_ = State::Begun;
  would_end_ = nullptr;
  lock.unlock();
  keep_end_of([this] { return act(); });
  lock.lock();
  state_ = State::Done;
  queue_.reset();
  done_.notify_all();
}

}  // namespace drun::worker

// --- Progress

namespace drun::worker {
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

std::shared_ptr<Request> GroupRequests::send(Request::Action action) {
  struct Asked {
    std::weak_ptr<Request> request{};
    bool has_thread = false;
  };
  const auto asked = std::make_shared<Asked>();
  auto request = std::make_shared<Request>(std::move(action), [asked, &progress = progress_] {
    if (!asked->has_thread) asked->has_thread = progress.try_run(asked->request.lock());
    return false;
  });
  asked->request = request;
  look_after(request);
  return request;
}

void GroupRequests::look_after(std::shared_ptr<Request> request) {
  progress_.poll(std::move(request), this);
}

std::shared_ptr<Request> GroupRequests::queue(Request::Action action) {
  auto request = std::make_shared<Request>(std::move(action), queue_);
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
