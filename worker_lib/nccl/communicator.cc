#include "worker_lib/nccl/communicator.h"

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

using Kind = WorkerError::Kind;
using Clock = std::chrono::steady_clock;

// Operations that a rank took part in before it ended are done within this time.
constexpr std::chrono::milliseconds kAfterwards{30};
constexpr std::chrono::milliseconds kClosingTime{1000};
// ncclCommDestroy and ncclCommAbort return when NCCL's threads have ended, whatever these wait for.
constexpr std::chrono::milliseconds kEndTime{5000};

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

}  // namespace

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

namespace {

// The communicators of the process.
struct All {
  std::mutex mutex;
  std::set<Communicator*> open;
  Destroyer destroyer;
  CallWatch calls;
};

All& all() {
  static All& the = *new All;
  return the;
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

std::string awaited_text(const Awaited& awaited) {
  if (awaited.sequence != 0) return "collective number " + std::to_string(awaited.sequence);
  if (awaited.peer)
    return "the message between this rank and rank " + std::to_string(*awaited.peer);
  return awaited.what;
}

}  // namespace

void CallWatch::run() {
  int idle = 0;
  std::unique_lock lock(mutex_);
  while (!stopping_.wait_for(lock, kTick, [this] { return is_stopping_; })) {
    lock.unlock();
    bool is_any_inside = has_call_.exchange(false);
    {
      const std::lock_guard all_lock(all().mutex);
      for (Communicator* each : all().open) is_any_inside = each->end_late_call() || is_any_inside;
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

BackendFailure nccl_failure(nccl::Result result, nccl::Comm comm, const std::string& what) {
  const nccl::Api& api = need_nccl();
  const char* const general = api.get_error_string(result);
  const char* const last = api.get_last_error(comm);
  std::string message = "NCCL " + nccl_version() + ": " + what + ": " +
                        (general == nullptr ? "unknown error" : general) + " (" +
                        std::to_string(result) + ")";
  if (last != nullptr && *last != '\0') message += ": " + std::string(last);
  return {result == nccl::kRemoteError ? Kind::PeerLost : Kind::System, std::nullopt, message};
}

Communicator::Communicator(std::shared_ptr<const Gpu> gpu, CancelToken& stop)
    : gpu_(std::move(gpu)), api_(need_nccl()), stop_(&stop), stream_(gpu_) {
  const std::lock_guard lock(all().mutex);
  all().open.insert(this);
}

Communicator::~Communicator() {
  {
    const std::lock_guard lock(all().mutex);
    all().open.erase(this);
  }
  close();
}

void Communicator::close_all_at_exit() {
  const auto close_all = [] {
    const std::lock_guard lock(all().mutex);
    for (Communicator* each : all().open) each->abort_if_running();
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

void Communicator::abort_if_running() noexcept {
  if (unfinished_ == 0) return;
  stop_->raise();
  close();
}

std::unique_ptr<Communicator> Communicator::connect(std::shared_ptr<const Gpu> gpu,
                                                    CancelToken& stop, const nccl::UniqueId& id,
                                                    RankInfo seat, const Awaited& awaited) {
  std::unique_ptr<Communicator> line(new Communicator(std::move(gpu), stop));
  const Current current(*line->gpu_);
  std::unique_lock using_lock(line->using_);
  nccl::Config config;
  config.blocking = 0;
  nccl::Comm comm = nullptr;
  const nccl::Result said = line->api_.init_rank(&comm, seat.size, id, seat.rank, &config);
  line->comm_ = comm;
  if (comm == nullptr) throw nccl_failure(said, nullptr, awaited_text(awaited));
  line->settle(said, awaited);
  if (!line->can_split()) return line;
  using_lock.unlock();
  return line->split(0, seat.rank, awaited);
}

Event Communicator::start(std::span<Event> after, const Awaited& awaited, const Action& action) {
  const std::lock_guard lock(using_);
  need_open();
  const Current current(*gpu_);
  for (const Event& each : after) each.make_wait(stream_.get());
  ++unfinished_;
  settle(call(awaited, action), awaited);
  Event end = std::move(after.front());
  end.record(stream_.get());
  return end;
}

void Communicator::wait(const Event& end, const Awaited& awaited) {
  const Current current(*gpu_);
  look_until(awaited, [&] { return look(end, awaited); });
}

bool Communicator::would_return(const Event& end, const Awaited& awaited) {
  try {
    const Current current(*gpu_);
    if (look(end, awaited)) return true;
    if (stop_->is_raised()) return true;
    check_lost(awaited);
    return false;
  } catch (const BackendFailure&) {
    return true;
  }
}

bool Communicator::look(const Event& end, const Awaited& awaited) {
  const bool is_reached = end.is_reached();
  check_for_errors(awaited);
  // An aborted operation reaches its event too, but is not done.
  if (is_reached && stop_->is_raised()) {
    throw BackendFailure(Kind::Broken, std::nullopt, "aborted");
  }
  return is_reached;
}

std::unique_ptr<Communicator> Communicator::split(std::optional<int> color, int key,
                                                  const Awaited& awaited) {
  const std::lock_guard lock(using_);
  need_open();
  const Current current(*gpu_);
  std::unique_ptr<Communicator> part(color ? new Communicator(gpu_, *stop_) : nullptr);
  const std::atomic_ref<nccl::Comm> child(child_);
  child = nullptr;
  const nccl::Result said = call(awaited, [&](nccl::Comm comm, cuda::Stream) {
    nccl::Config config;
    config.blocking = 1;
    return api_.split(comm, color.value_or(nccl::kNoColor), key, &child_, &config);
  });
  // NCCL 2.18 to 2.30 return success while a nonblocking communicator is in progress (src/init.cc,
  // ncclCommSplit): the state must be asked for in any case.
  settle(said == nccl::kSuccess ? nccl::kInProgress : said, awaited);
  if (!part) return nullptr;
  look_until(awaited, [&] { return child.load() != nullptr; });
  part->comm_ = child.exchange(nullptr);
  part->is_blocking_ = true;
  const std::lock_guard part_lock(part->using_);
  part->settle(nccl::kInProgress, awaited);
  return part;
}

bool Communicator::close() noexcept {
  // ncclCommAbort may be called while another thread is inside a call with the communicator; that
  // thread finds the CancelToken raised when the call returns.
  std::unique_lock lock(using_, std::defer_lock);
  const bool is_unused = lock.try_lock_for(kClosingTime);
  const nccl::Comm comm = comm_.exchange(nullptr);
  if (comm == nullptr || has_exit_begun()) return is_closed_;
  const Current current(*gpu_, std::nothrow);
  const bool is_idle = is_unused && unfinished_ == 0 && !has_failed_;
  const nccl::Api& api = api_;
  if (is_idle) {
    all().destroyer.add([gpu = gpu_, &api, comm] {
      const Current on_this_thread(*gpu, std::nothrow);
      api.destroy(comm);
    });
    is_closed_ = true;
  } else {
    is_closed_ = run_within(kEndTime, [gpu = gpu_, &api, comm] {
      const Current on_this_thread(*gpu, std::nothrow);
      api.abort(comm);
    });
  }
  // A split that failed: NCCL has ended its thread, and leaves what it stored to the caller.
  const std::atomic_ref<nccl::Comm> child(child_);
  if (const nccl::Comm left = child.exchange(nullptr); is_closed_ && left != nullptr) {
    is_closed_ = run_within(kEndTime, [&api, left] { api.abort(left); });
  }
  return is_closed_;
}

nccl::Result Communicator::call(const Awaited& awaited, const Action& action) {
  if (!is_blocking_) return action(comm_, stream_.get());
  class Inside {
   public:
    Inside(Communicator& line, const Awaited& awaited) : line_(line) {
      const std::lock_guard lock(line_.call_mutex_);
      line_.in_call_ = &awaited;
    }
    ~Inside() {
      const std::lock_guard lock(line_.call_mutex_);
      line_.in_call_ = nullptr;
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    Communicator& line_;
  };
  all().calls.note_call();
  nccl::Result said = nccl::kSuccess;
  {
    const Inside inside(*this, awaited);
    said = action(comm_, stream_.get());
  }
  if (why_call_ended_ == nullptr) return said;
  has_failed_ = true;
  std::rethrow_exception(why_call_ended_);
}

bool Communicator::end_late_call() noexcept {
  nccl::Comm comm = nullptr;
  {
    const std::lock_guard lock(call_mutex_);
    if (in_call_ == nullptr) return false;
    if (why_call_ended_ != nullptr) return true;
    try {
      check_wait(*in_call_);
      return true;
    } catch (const BackendFailure&) {
      why_call_ended_ = std::current_exception();
    }
    comm = comm_.exchange(nullptr);
  }
  if (comm == nullptr) return true;
  is_closed_ = run_within(kEndTime, [gpu = gpu_, &api = api_, comm] {
    const Current on_this_thread(*gpu, std::nothrow);
    api.abort(comm);
  });
  return true;
}

void Communicator::settle(nccl::Result said, const Awaited& awaited) {
  if (stop_->is_raised() || comm_ == nullptr) {
    has_failed_ = true;
    need_open();  // close() may have aborted comm_ while NCCL was being called
  }
  nccl::Result state = said;
  if (said == nccl::kInProgress) {
    look_until(awaited, [&] {
      const nccl::Result asked = api_.get_async_error(comm_, &state);
      if (asked != nccl::kSuccess) state = asked;
      return state != nccl::kInProgress;
    });
  }
  if (state == nccl::kSuccess) return;
  has_failed_ = true;
  throw failure(state, awaited);
}

void Communicator::check_for_errors(const Awaited& awaited) {
  const std::unique_lock lock(using_, std::try_to_lock);
  if (!lock.owns_lock() || comm_ == nullptr || has_exit_begun())
    return;  // the thread that uses it gets its errors
  nccl::Result state = nccl::kSuccess;
  const nccl::Result asked = api_.get_async_error(comm_, &state);
  if (asked != nccl::kSuccess) state = asked;
  if (state == nccl::kSuccess || state == nccl::kInProgress) return;
  throw failure(state, awaited);
}

void Communicator::check_lost(const Awaited& awaited) const {
  const std::optional<int> rank = stop_->lost_rank(awaited.peer, kAfterwards);
  if (!rank || Clock::now() - awaited.since < kAfterwards) return;
  throw BackendFailure(Kind::PeerLost, rank,
                       "the process of rank " + std::to_string(*rank) + " has ended before " +
                           awaited_text(awaited) + " was done",
                       true);
}

void Communicator::check_wait(const Awaited& awaited) const {
  if (stop_->is_raised()) throw BackendFailure(Kind::Broken, std::nullopt, "aborted");
  check_lost(awaited);
  if (Clock::now() < awaited.deadline) return;
  throw BackendFailure(
      Kind::Timeout, awaited.peer,
      awaited_text(awaited) +
          " was not done in time; another rank is late, stuck or has made other calls");
}

void Communicator::need_open() const {
  if (stop_->is_raised() || comm_ == nullptr) {
    throw BackendFailure(Kind::Broken, std::nullopt, "aborted");
  }
}

BackendFailure Communicator::failure(nccl::Result result, const Awaited& awaited) const {
  BackendFailure failure = nccl_failure(result, comm_, awaited_text(awaited));
  failure.peer = awaited.peer;
  return failure;
}

template <typename Done>
void Communicator::look_until(const Awaited& awaited, Done&& is_done) {
  std::optional<Backoff> pace;
  try {
    while (!is_done()) {
      check_wait(awaited);
      if (!pace) pace.emplace();
      pace->wait(*stop_);
    }
  } catch (...) {
    has_failed_ = true;
    throw;
  }
}

}  // namespace drun::worker
