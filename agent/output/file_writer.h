// edge. Runs everything that a file system can block (open, write, stat, close) in a thread of its
// own, in order, and reports the end of each job to the event loop.
//
// Threads: one FileWriter for each place that can stall alone: the log directory, the events file,
//          and each console that is a regular file. A file system that hangs then holds up the
//          writes to itself and nothing else. Pipes, terminals and sockets need no thread: the
//          kernel reports when they have room (console.h). A thread starts with its first job.
// Flow:    a file has at most one write under way; what is appended meanwhile is written together.
//          While is_congested(), append nothing more; on_room follows. At most kHighWaterBytes and
//          one read of each stream wait.
// End:     jobs that are not done keep the io_context running. abandon() gives up on them. A thread
//          that hangs in a system call is left behind, and touches nothing that belongs to the
//          loop.
// Owner:   Output, Console, EventFile, HostLines.
// Thread:  the io_context's only; jobs run elsewhere and must hold all that they use.
// Errors:  a file that cannot be written is logged once, and left. Where no thread can be started,
//          jobs run in the loop.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

// How much waits for one sink before its sources are no longer read, and when they are again.
inline constexpr std::size_t kHighWaterBytes = std::size_t{256} << 10;
inline constexpr std::size_t kLowWaterBytes = std::size_t{64} << 10;

class FileWriter {
 public:
  struct Listener {
    std::function<void()> on_room = [] {};
    std::function<void()> on_idle = [] {};  // every job is done, or was abandoned
  };
  using Job = std::function<void()>;
  // In the loop. `has_run` is false when the job was abandoned: its results are not to be read.
  using Done = std::function<void(bool has_run)>;
  // A file that is appended to. Closed in the thread, after its last user and write are gone.
  class File;

  FileWriter(asio::io_context& io, Log log, Listener listener);
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  // Calls nothing back any more.
  ~FileWriter();

  void run(Job job, Done done = nullptr);

  std::shared_ptr<File> adopt(UniqueFd fd, std::string path);
  // `opener` runs in the thread. Its error is passed to `on_failed`; what is appended then is
  // dropped.
  std::shared_ptr<File> open(std::function<Result<UniqueFd>()> opener, std::string path,
                             std::function<void(const Error&)> on_failed);
  void append(const std::shared_ptr<File>& file, std::string_view bytes);
  // Closes a descriptor in the thread: on a network file system close() writes what is cached.
  void close(UniqueFd fd);

  bool is_congested() const { return is_congested_; }
  bool is_idle() const { return done_.empty(); }

  // Drops the jobs that have not begun and waits for none.
  void abandon();

 private:
  struct Shared;

  bool start();
  void collect();
  void write(const std::shared_ptr<File>& file);
  void on_written(const std::shared_ptr<File>& file, std::size_t bytes, int error_number);

  asio::io_context& io_;
  Log log_;
  Listener listener_;
  std::shared_ptr<Shared> shared_;  // null before the first job
  std::deque<Done> done_;           // of the jobs that were not reported yet, in order
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_;
  std::size_t waiting_bytes_ = 0;
  bool is_congested_ = false;
  bool is_abandoned_ = false;
};

}  // namespace drun::agent
