#include "agent/output/file_writer.h"

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "agent/output/log_files.h"
#include "rendezvous/base/text.h"

namespace drun::agent {

// State shared by the loop and the thread. `owner` belongs to the loop and needs no lock.
struct FileWriter::Shared {
  FileWriter* owner = nullptr;  // null: destroyed
  std::mutex mutex;
  std::condition_variable wake;
  asio::io_context* io = nullptr;  // null: the loop no longer wants reports
  struct Task {
    Job job;
    bool is_reported = true;
  };
  std::deque<Task> tasks;
  std::size_t done_count = 0;  // not collected yet
  bool is_posted = false;
  bool is_working = false;  // the thread is in a job
  bool has_ended = false;   // the thread takes no task any more

  static void work(const std::shared_ptr<Shared>& shared);
  void run(Job job);
  // Closes the descriptor in the thread, also after abandon() if the thread was in a job then. If
  // the thread has ended, the descriptor is closed when the process ends.
  void close(std::shared_ptr<UniqueFd> fd);
};

class FileWriter::File {
 public:
  explicit File(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (shared_) shared_->close(std::move(fd));
  }

  // Used by the loop:
  std::string path;
  std::string waiting;
  bool is_writing = false;
  bool has_failed = false;
  // Used by the thread:
  std::shared_ptr<UniqueFd> fd = std::make_shared<UniqueFd>();

 private:
  const std::shared_ptr<Shared> shared_;  // null: no thread could be started
};

void FileWriter::Shared::run(Job job) {
  {
    const std::lock_guard lock(mutex);
    tasks.push_back({.job = std::move(job)});
  }
  wake.notify_one();
}

void FileWriter::Shared::close(std::shared_ptr<UniqueFd> fd) {
  {
    const std::lock_guard lock(mutex);
    if (has_ended) {
      fd->release();  // close() could hang here
      return;
    }
    tasks.push_back({.job = [fd] { fd->reset(); }, .is_reported = false});
  }
  wake.notify_one();
}

// After abandon(), only closes what is left. Tasks are also destroyed here, because they may hold
// the last reference to a descriptor.
void FileWriter::Shared::work(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  while (true) {
    shared->wake.wait(lock, [&] { return shared->io == nullptr || !shared->tasks.empty(); });
    if (shared->tasks.empty()) break;
    Task task = std::move(shared->tasks.front());
    shared->tasks.pop_front();
    const bool is_wanted = shared->io != nullptr || !task.is_reported;
    shared->is_working = true;
    lock.unlock();
    if (is_wanted) task.job();
    task.job = nullptr;
    lock.lock();
    shared->is_working = false;
    if (shared->io == nullptr || !task.is_reported) continue;
    ++shared->done_count;
    if (std::exchange(shared->is_posted, true)) continue;
    asio::post(*shared->io, [shared] {
      if (shared->owner != nullptr) shared->owner->collect();
    });
  }
  shared->has_ended = true;
}

FileWriter::FileWriter(asio::io_context& io, Log log, Listener listener)
    : io_(io), log_(std::move(log)), listener_(std::move(listener)), patience_(io) {}

FileWriter::~FileWriter() {
  done_.clear();
  listener_ = {};
  abandon();
}

bool FileWriter::start() {
  if (shared_ || is_abandoned_) return shared_ != nullptr;
  auto shared = std::make_shared<Shared>();
  shared->owner = this;
  shared->io = &io_;
  // The loop's thread handles all signals, including the one for the guardian's end.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  bool has_started = true;
  try {
    thread_ = std::thread(Shared::work, shared);
  } catch (const std::system_error&) {
    has_started = false;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (has_started) shared_ = std::move(shared);
  return has_started;
}

void FileWriter::run(Job job, Done done) {
  if (is_abandoned_ || !start()) {
    if (!is_abandoned_) job();
    if (done) asio::post(io_, [done = std::move(done), ran = !is_abandoned_] { done(ran); });
    return;
  }
  if (done_.empty()) waits_since_ = std::chrono::steady_clock::now();
  done_.push_back(std::move(done));
  if (!work_ && keeps_loop_) {
    work_.emplace(io_.get_executor());
    watch();
  }
  shared_->run(std::move(job));
}

void FileWriter::collect() {
  std::size_t count = 0;
  {
    const std::lock_guard lock(shared_->mutex);
    count = std::exchange(shared_->done_count, 0);
    shared_->is_posted = false;
  }
  const std::shared_ptr<Shared> alive = shared_;
  for (; count > 0 && alive->owner != nullptr && !done_.empty(); --count) {
    const Done done = std::move(done_.front());
    done_.pop_front();
    if (done) done(true);
  }
  if (alive->owner == nullptr) return;
  const bool was_stuck = std::exchange(is_stuck_, false);
  if (was_stuck) log_answer();
  waits_since_.reset();
  if (!done_.empty()) {
    waits_since_ = std::chrono::steady_clock::now();
    if (was_stuck && keeps_loop_) watch();
    return;
  }
  patience_.cancel();
  work_.reset();
  listener_.on_idle();
}

// The timer of a wait that has ended continues with the next one: setting it at every job would
// take longer than the job.
void FileWriter::watch() {
  patience_.set(*waits_since_ + kStuckAfter, [this] {
    if (std::chrono::steady_clock::now() < *waits_since_ + kStuckAfter) return watch();
    note_stuck();
  });
}

void FileWriter::note_stuck() {
  is_stuck_ = true;
  if (!place_name_.empty())
    log_.warning(place_name_ + " has not answered for " + std::to_string(kStuckAfter.count()) +
                 " s; output to it waits" + place_path_);
  listener_.on_stuck();
}

void FileWriter::log_answer() {
  if (place_name_.empty()) return;
  const auto waited = std::chrono::steady_clock::now() - *waits_since_;
  log_.info(place_name_ + " answers again after " +
            rendezvous::duration_text(std::chrono::round<std::chrono::seconds>(waited)) +
            place_path_);
}

void FileWriter::set_place(std::string name, std::string path) {
  place_name_ = std::move(name);
  if (!path.empty()) place_path_ = " path=" + std::move(path);
}

void FileWriter::let_loop_end() {
  keeps_loop_ = false;
  patience_.cancel();
  work_.reset();
}

void FileWriter::keep_loop() {
  keeps_loop_ = true;
  if (done_.empty() || work_) return;
  work_.emplace(io_.get_executor());
  watch();
}

void FileWriter::abandon() {
  if (std::exchange(is_abandoned_, true)) return;
  bool is_busy = false;
  if (shared_) {
    const std::lock_guard lock(shared_->mutex);
    shared_->owner = nullptr;
    shared_->io = nullptr;
    is_busy = shared_->is_working || !shared_->tasks.empty();
  }
  if (shared_) shared_->wake.notify_one();
  if (is_busy) {
    thread_.detach();  // it ends when its job is done and everything is closed
  } else if (thread_.joinable()) {
    thread_.join();
  }
  for (Done& done : done_)
    if (done) asio::post(io_, [done = std::move(done)] { done(false); });
  done_.clear();
  waits_since_.reset();
  is_stuck_ = false;
  patience_.cancel();
  work_.reset();
  waiting_bytes_ = 0;
  if (std::exchange(is_congested_, false) && listener_.on_room) listener_.on_room();
  if (listener_.on_idle) listener_.on_idle();
}

std::shared_ptr<FileWriter::File> FileWriter::adopt(UniqueFd fd, std::string path) {
  start();
  auto file = std::make_shared<File>(shared_);
  file->path = std::move(path);
  *file->fd = std::move(fd);
  return file;
}

std::shared_ptr<FileWriter::File> FileWriter::open(std::function<Result<UniqueFd>()> opener,
                                                   std::string path,
                                                   std::function<void(const Error&)> on_failed) {
  start();
  auto file = std::make_shared<File>(shared_);
  file->path = std::move(path);
  auto error = std::make_shared<std::optional<Error>>();
  run(
      [opener = std::move(opener), fd = file->fd, error] {
        if (Result<UniqueFd> opened = opener(); opened)
          *fd = *std::move(opened);
        else
          *error = opened.error();
      },
      [file, error, on_failed = std::move(on_failed)](bool has_run) {
        if (!has_run || !*error) return;
        file->has_failed = true;
        on_failed(**error);
      });
  return file;
}

void FileWriter::append(const std::shared_ptr<File>& file, std::string_view bytes) {
  if (file->has_failed || is_abandoned_ || bytes.empty()) return;
  file->waiting.append(bytes);
  waiting_bytes_ += bytes.size();
  if (waiting_bytes_ > kHighWaterBytes) is_congested_ = true;
  if (!file->is_writing) write(file);
}

void FileWriter::write(const std::shared_ptr<File>& file) {
  struct Write {
    std::string bytes;
    int error_number = 0;
  };
  file->is_writing = true;
  auto write = std::make_shared<Write>();
  write->bytes = std::exchange(file->waiting, {});
  const std::size_t size_bytes = write->bytes.size();
  run(
      [write, fd = file->fd] {
        if (*fd) write->error_number = write_all(fd->get(), write->bytes);
        write->bytes = std::string();
      },
      [this, file, write, size_bytes](bool has_run) {
        if (has_run) on_written(file, size_bytes, write->error_number);
      });
}

void FileWriter::on_written(const std::shared_ptr<File>& file, std::size_t bytes,
                            int error_number) {
  file->is_writing = false;
  if (error_number != 0 && !std::exchange(file->has_failed, true)) {
    log_.warning("log file is incomplete from here on path=" + file->path +
                 " reason=" + system_message(error_number));
  }
  if (file->has_failed) bytes += std::exchange(file->waiting, {}).size();
  waiting_bytes_ -= std::min(bytes, waiting_bytes_);
  if (!file->waiting.empty()) write(file);
  if (waiting_bytes_ <= kLowWaterBytes && std::exchange(is_congested_, false)) listener_.on_room();
}

void FileWriter::close(UniqueFd fd) {
  if (fd && shared_) shared_->close(std::make_shared<UniqueFd>(std::move(fd)));
}

void run_until(asio::io_context& io, const std::function<bool()>& is_done,
               const std::optional<FileWriter::Time>& deadline) {
  while (!is_done() && (!deadline || std::chrono::steady_clock::now() < *deadline)) {
    if (io.stopped()) io.restart();
    deadline ? io.run_one_until(*deadline) : io.run_one();
  }
}

}  // namespace drun::agent
