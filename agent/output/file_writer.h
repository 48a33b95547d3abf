// edge. Runs file operations that can block (open, write, stat, close) in a thread, in order, and
// reports the end of each to the event loop.
//
// Threads: one FileWriter per place that can block independently: the log directory, the events
//          file, and each console that is a regular file. A file system that hangs therefore delays
//          only its own writes. Pipes, terminals and sockets need no thread, because the kernel
//          reports when they are writable (console.h). The thread starts with the first job.
// Flow:    each file has at most one write in progress; bytes appended meanwhile are written
//          together. While is_congested(), append nothing more; on_room follows. Memory is limited
//          to kHighWaterBytes and one read per stream.
// End:     unfinished jobs keep the io_context running until abandon() or let_loop_end(). A thread
//          that is in a job, as one that hangs in a system call, is then left running; it accesses
//          nothing that belongs to the loop, and closes the remaining descriptors after its job.
//          The loop closes none, because close() can hang, too.
// Owner:   Output, Console, EventLog, HostLines.
// Thread:  the io_context's only. Jobs run in another thread and must own everything that they use.
// Errors:  a file that cannot be written is logged once, and then skipped. If no thread can be
//          started, jobs run in the loop. A place that does not answer for kStuckAfter is logged,
//          and also when it answers again.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/net/deadline_timer.h"

namespace drun::agent {

// Sources of a sink are no longer read when more than kHighWaterBytes wait for it, and are read
// again below kLowWaterBytes.
inline constexpr std::size_t kHighWaterBytes = std::size_t{256} << 10;
inline constexpr std::size_t kLowWaterBytes = std::size_t{64} << 10;

// A file system that has completed no operation for this long counts as one that hangs.
inline constexpr std::chrono::seconds kStuckAfter{10};

class FileWriter {
 public:
  struct Listener {
    std::function<void()> on_room = [] {};
    std::function<void()> on_idle = [] {};   // every job is done or abandoned
    std::function<void()> on_stuck = [] {};  // is_stuck() has become true
  };
  using Job = std::function<void()>;
  // Called in the loop. `has_run` is false if the job was abandoned; do not read its results then.
  using Done = std::function<void(bool has_run)>;
  // A file opened for appending. Closed in the thread when its last user and write are done.
  class File;

  FileWriter(asio::io_context& io, Log log, Listener listener);
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  // Drops pending callbacks.
  ~FileWriter();

  // The name of the place in the log, e.g. "the log directory". Without one, nothing is logged.
  void set_place(std::string name, std::string path = "");

  void run(Job job, Done done = nullptr);

  std::shared_ptr<File> adopt(UniqueFd fd, std::string path);
  // `opener` runs in the thread. If it fails, `on_failed` gets its error, and appended bytes are
  // dropped.
  std::shared_ptr<File> open(std::function<Result<UniqueFd>()> opener, std::string path,
                             std::function<void(const Error&)> on_failed);
  void append(const std::shared_ptr<File>& file, std::string_view bytes);
  // Closes a descriptor in the thread, because close() on a network file system writes cached data.
  void close(UniqueFd fd);

  bool is_congested() const { return is_congested_; }
  // Since when no job has ended; absent if none is pending.
  using Time = std::chrono::steady_clock::time_point;
  std::optional<Time> waits_since() const { return waits_since_; }
  // Whether no job has ended for kStuckAfter.
  bool is_stuck() const { return is_stuck_; }
  bool is_idle() const { return done_.empty(); }

  // Unfinished jobs keep the io_context running no longer, and again. While they do not, a place
  // that does not answer is not noticed.
  void let_loop_end();
  void keep_loop();

  // Drops the jobs that have not started, and waits for none that has.
  void abandon();

 private:
  struct Shared;

  bool start();
  void collect();
  void watch();
  void note_stuck();
  void log_answer();
  void write(const std::shared_ptr<File>& file);
  void on_written(const std::shared_ptr<File>& file, std::size_t bytes, int error_number);

  asio::io_context& io_;
  Log log_;
  Listener listener_;
  std::shared_ptr<Shared> shared_;  // null before the first job
  std::thread thread_;
  std::deque<Done> done_;  // of the jobs not yet reported, in order
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_;
  std::optional<Time> waits_since_;
  rendezvous::DeadlineTimer patience_;
  std::string place_name_;
  std::string place_path_;  // as " path=..."; empty: not known
  std::size_t waiting_bytes_ = 0;
  bool is_congested_ = false;
  bool is_stuck_ = false;
  bool is_abandoned_ = false;
  bool keeps_loop_ = true;
};

// For the time after the loop's end: runs `io` until `is_done` or `deadline`, which a handler may
// change meanwhile.
void run_until(asio::io_context& io, const std::function<bool()>& is_done,
               const std::optional<FileWriter::Time>& deadline);

}  // namespace drun::agent
