#include "worker_lib/nccl/comm_owner.h"

#include <chrono>
#include <condition_variable>
#include <future>
#include <set>
#include <thread>
#include <utility>

#include "worker_lib/base/threads.h"
#include "worker_lib/nccl/library.h"

namespace drun::worker {
namespace {

constexpr std::chrono::milliseconds kClosingTime{1000};
// ncclCommDestroy and ncclCommAbort return when NCCL's threads have ended, whatever these wait for.
constexpr std::chrono::milliseconds kEndTime{5000};
// A call that lasts longer waits for another rank, even on a busy machine.
constexpr std::chrono::milliseconds kLongestCall{500};

// Destroys communicators on other threads: ncclCommDestroy takes half a second, the time after
// which a thread of NCCL looks whether it shall end.
class Destroyer {
 public:
  void add(std::function<void()> destroy) {
    {
      std::unique_lock lock(mutex_);
      ended_.wait_for(lock, kEndTime, [this] { return running_ < kMost; });
      ++running_;
    }
    const auto task = [this, destroy] {
      destroy();
      const std::lock_guard lock(mutex_);
      --running_;
      ended_.notify_all();
    };
    try {
      start_thread(task).detach();
    } catch (const std::exception&) {  // no thread can be started
      task();
    }
  }
  void wait() {
    std::unique_lock lock(mutex_);
    ended_.wait_for(lock, kEndTime, [this] { return running_ == 0; });
  }

 private:
  static constexpr int kMost = 16;  // each keeps memory of the GPU

  std::mutex mutex_;
  std::condition_variable ended_;
  int running_ = 0;
};

// A thread that releases threads from blocking calls that must end. It runs while calls are made,
// and ends a second after the last.
class CallWatch {
 public:
  void note_call() {
    has_call_ = true;
    if (!is_running_) start();
  }
  void stop() {
    const std::lock_guard starting(starting_);
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    stopping_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  static constexpr std::chrono::milliseconds kTick{20};
  static constexpr int kIdleTicks = 50;

  void start() noexcept {
    const std::lock_guard starting(starting_);
    if (is_running_ || is_stopping_) return;
    try {
      thread_ = start_thread([this] { run(); });
      is_running_ = true;
    } catch (const BackendFailure&) {  // no thread can be started: the group's deadlines remain
    }
  }
  void run();

  std::atomic<bool> has_call_ = false;  // since the last look
  std::atomic<bool> is_running_ = false;
  std::mutex starting_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable stopping_;
  bool is_stopping_ = false;
};

// The communicators of the process.
struct All {
  std::mutex mutex;
  std::set<CommOwner*> open;
  Destroyer destroyer;
  CallWatch calls;
};

All& all() {
  static All& the = *new All;
  return the;
}

void CallWatch::run() {
  int idle = 0;
  std::unique_lock lock(mutex_);
  while (!stopping_.wait_for(lock, kTick, [this] { return is_stopping_; })) {
    lock.unlock();
    bool is_any_inside = has_call_.exchange(false);
    {
      const std::lock_guard all_lock(all().mutex);
      for (CommOwner* each : all().open) is_any_inside = each->end_late_call() || is_any_inside;
    }
    lock.lock();
    idle = is_any_inside ? 0 : idle + 1;
    if (idle < kIdleTicks) continue;
    const std::unique_lock starting(starting_, std::try_to_lock);
    if (!starting.owns_lock()) continue;
    is_running_ = false;  // the next call starts a thread
    if (!has_call_) return thread_.detach();
    is_running_ = true;
  }
}

// Runs the action on another thread. False if it is not done in that time: the thread then stays
// behind, with what the action holds.
bool run_within(std::chrono::milliseconds time, std::function<void()> action) noexcept {
  try {
    const auto done = std::make_shared<std::promise<void>>();
    std::thread thread = start_thread([done, action] {
      action();
      done->set_value();
    });
    const bool is_done = done->get_future().wait_for(time) == std::future_status::ready;
    is_done ? thread.join() : thread.detach();
    return is_done;
  } catch (const std::exception&) {  // no thread can be started
    action();
    return true;
  }
}

}  // namespace

CommOwner::CommOwner(std::shared_ptr<const Gpu> gpu, CancelToken& stop)
    : gpu_(std::move(gpu)), api_(need_nccl()), stop_(&stop) {
  const std::lock_guard lock(all().mutex);
  all().open.insert(this);
}

CommOwner::~CommOwner() {
  {
    const std::lock_guard lock(all().mutex);
    all().open.erase(this);
  }
  close();
}

void CommOwner::close_all_at_exit() {
  const auto close_all = [] {
    const std::lock_guard lock(all().mutex);
    for (CommOwner* each : all().open) {
      if (each->unfinished_ == 0) continue;
      each->stop_->raise();
      each->close();
    }
    all().destroyer.wait();
  };
  all().calls.stop();
  // This thread's thread_local objects, which libraries may use, are destroyed already.
  try {
    start_thread(close_all).join();
  } catch (const BackendFailure&) {  // no thread can be started: left to the kernel
  }
  note_exit();
}

void CommOwner::need_open() const {
  stop_->check();
  if (comm_ == nullptr) throw BackendFailure(WorkerError::Kind::Broken, "aborted");
}

bool CommOwner::abort(nccl::Comm comm) const noexcept {
  return run_within(kEndTime, [gpu = gpu_, &api = api_, comm] {
    const Current on_this_thread(*gpu, std::nothrow);
    api.abort(comm);
  });
}

bool CommOwner::close() noexcept {
  // ncclCommAbort may be called while another thread is inside a call with the communicator; that
  // thread finds the CancelToken raised when the call returns.
  Lock lock(using_, std::defer_lock);
  const bool is_unused = lock.try_lock_for(kClosingTime);
  const nccl::Comm comm = comm_.exchange(nullptr);
  if (comm == nullptr || has_exit_begun()) return is_closed_;
  const Current current(*gpu_, std::nothrow);
  if (is_unused && unfinished_ == 0 && !has_failed_) {
    all().destroyer.add([gpu = gpu_, &api = api_, comm] {
      const Current on_this_thread(*gpu, std::nothrow);
      api.destroy(comm);
    });
    is_closed_ = true;
  } else {
    is_closed_ = abort(comm);
  }
  // A split that failed: NCCL has ended its thread, and leaves what it stored to the caller.
  const std::atomic_ref<nccl::Comm> child(child_);
  if (const nccl::Comm left = child.exchange(nullptr); is_closed_ && left != nullptr)
    is_closed_ = abort(left);
  return is_closed_;
}

nccl::Result CommOwner::call(const Check& check,
                             const std::function<nccl::Result(nccl::Comm)>& action) {
  class Inside {
   public:
    Inside(CommOwner& owner, const Check& check) : owner_(owner) { set(&check); }
    ~Inside() { set(nullptr); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    void set(const Check* check) {
      const std::lock_guard lock(owner_.call_mutex_);
      owner_.in_call_ = check;
      owner_.call_began_ = Deadline::clock::now();
    }
    CommOwner& owner_;
  };
  all().calls.note_call();
  nccl::Result result = nccl::kSuccess;
  {
    const Inside inside(*this, check);
    result = action(comm_);
  }
  if (why_call_ended_ == nullptr) return result;
  has_failed_ = true;
  std::rethrow_exception(why_call_ended_);
}

bool CommOwner::end_late_call() noexcept {
  nccl::Comm comm = nullptr;
  {
    const std::lock_guard lock(call_mutex_);
    if (in_call_ == nullptr) return false;
    if (why_call_ended_ != nullptr) return true;
    if (Deadline::clock::now() - call_began_ < kLongestCall) return true;
    try {
      (*in_call_)();
      return true;
    } catch (const BackendFailure&) {
      why_call_ended_ = std::current_exception();
    }
    comm = comm_.exchange(nullptr);
  }
  if (comm != nullptr) is_closed_ = abort(comm);
  return true;
}

}  // namespace drun::worker
