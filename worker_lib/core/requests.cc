#include "worker_lib/core/requests.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <utility>

#include "drun/backend.h"

namespace drun::worker {

void Request::run() {
  std::unique_lock lock(mutex_);
  if (state_ == State::Open) perform(lock);
}

void Request::wait() {
  std::unique_lock lock(mutex_);
  if (state_ == State::Open && would_end_) return perform(lock);
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

bool Request::is_done() {
  std::unique_lock lock(mutex_);
  if (state_ == State::Open && would_end_ && would_end_()) perform(lock);
  return state_ == State::Done;
}

int Request::get() const {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  return result_;
}

void Request::perform(std::unique_lock<std::mutex>& lock) {
  state_ = State::Begun;
  Action action = std::exchange(action_, nullptr);
  would_end_ = nullptr;
  lock.unlock();
  keep_end_of(action);
  action = nullptr;
  lock.lock();
  state_ = State::Done;
  done_.notify_all();
}

}  // namespace drun::worker

namespace drun::worker {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{1};
constexpr milliseconds kSlowTick{10};
// After this number of ticks without a new or completed request, polling slows down.
constexpr int kIdleTicks = 100;

}  // namespace

void RequestThreads::start() {
  watcher_.start();
  const std::size_t open = open_;
  if (without_thread_ == 0 &&
      (open < kMostWithoutThread || threads_.try_reserve(open - kMostWithoutThread + 1))) {
    return;
  }
  throw BackendFailure(WorkerError::Kind::System, std::nullopt,
                       "no thread can be started for another message: " + std::to_string(open) +
                           " wait for one; wait for some of them, or raise the limit on "
                           "processes (ulimit -u, or the cgroup's pids.max)");
}

std::shared_ptr<Request> RequestThreads::send(Request::Action action) {
  // Destroyed with the Question, when the operation begins.
  struct Asked {
    explicit Asked(RequestThreads& request_threads) : owner(request_threads) { ++owner.open_; }
    ~Asked() {
      --owner.open_;
      if (is_without_thread) --owner.without_thread_;
    }
    Asked(const Asked&) = delete;
    Asked& operator=(const Asked&) = delete;
    void give_thread() {
      std::shared_ptr<Request> open = self.lock();
      if (has_thread || !open) return;
      has_thread = owner.threads_.try_submit([open = std::move(open)] { open->run(); });
      const bool was_without_thread = std::exchange(is_without_thread, !has_thread);
      if (is_without_thread && !was_without_thread) ++owner.without_thread_;
      if (was_without_thread && !is_without_thread) --owner.without_thread_;
    }
    RequestThreads& owner;
    std::weak_ptr<Request> self{};
    bool has_thread = false;
    bool is_without_thread = false;
  };
  const auto asked = std::make_shared<Asked>(*this);
  auto request = std::make_shared<Request>(std::move(action), [asked] {
    asked->give_thread();
    return false;
  });
  asked->self = request;
  look_after(request);
  return request;
}

void RequestThreads::look_after(std::shared_ptr<Request> request) {
  const std::lock_guard lock(mutex_);
  fresh_.push_back(std::move(request));
  if (!is_watching_) {
    watcher_.start();
    is_watching_ = true;
    return watcher_.submit([this] { watch(); });
  }
  if (is_slow_) changed_.notify_one();
}

void RequestThreads::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_one();
  watcher_.stop();
  threads_.stop();
}

// Continues for some ticks without messages, because waking it for each message would cost more
// than it saves. A new message is left to the program for the first tick.
void RequestThreads::watch() {
  Requests all;
  std::unique_lock lock(mutex_);
  const auto has_any = [&] { return !all.empty() || !fresh_.empty(); };
  for (int idle = 0; has_any() || (idle <= kIdleTicks && !is_stopping_);
       idle = std::min(idle, kIdleTicks) + 1) {
    is_slow_ = idle >= kIdleTicks;
    const bool was_stopping = is_stopping_;
    changed_.wait_for(lock, is_slow_ && !was_stopping ? kSlowTick : kTick, [&] {
      return is_stopping_ != was_stopping || (is_slow_ && !fresh_.empty());
    });
    const bool is_last = is_stopping_;
    lock.unlock();
    if (is_last) {
      for (const std::shared_ptr<Request>& request : all) request->run();
    }
    const auto open = std::remove_if(all.begin(), all.end(),
                                     [](const auto& request) { return request->is_done(); });
    if (open != all.end()) idle = 0;
    all.erase(open, all.end());
    lock.lock();
    if (!fresh_.empty()) idle = 0;
    std::move(fresh_.begin(), fresh_.end(), std::back_inserter(all));
    fresh_.clear();
  }
  is_watching_ = is_slow_ = false;
}

}  // namespace drun::worker
