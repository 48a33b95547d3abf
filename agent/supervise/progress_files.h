// edge. The progress that the workers of this node have shown in a round: a progress file for each
// worker (DRUN_PROGRESS_FILE) and the newest file below --checkpoint-dir.
//
// Files:   <temporary>/drun_progress_<random>/<round>.<local rank>, in /dev/shm where it can be.
// The
//          agent makes the directory (0700), once; a worker that shows progress makes its file.
//          Links and whatever is not a regular file are ignored. Files larger than
//          kMostProgressBytes are emptied once a minute.
// Blocks:  a checkpoint directory may be on a network file system: it is read in a thread, and a
//          read that takes longer than kScanAtMost is given up.
// Owner:   Agent.   Thread: the io_context's only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/output/file_writer.h"
#include "rendezvous/base/log.h"
#include "rendezvous/job/restart_policy.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

inline constexpr std::size_t kMostProgressBytes = std::size_t{1} << 20;
inline constexpr std::chrono::seconds kScanAtMost{5};

// core. The progress that lines of a progress file show: the first whole number of each line is a
// step. A line that is not complete counts, too. `is_cut`: the first line's begin is missing.
WorkProgress progress_in(std::string_view lines, bool is_cut);
// Of both.
WorkProgress together(const WorkProgress& one, const WorkProgress& other);

// The newest change of a file below `directory`, in nanoseconds since 1970; 0: there is none. At
// most kMostScanned entries, at most three directories deep. Blocks.
inline constexpr int kMostScanned = 100'000;
std::int64_t newest_change(const std::string& directory);

class ProgressFiles {
 public:
  using OnCollected = std::function<void(const WorkProgress&)>;

  // `checkpoints`: absent: none.
  ProgressFiles(asio::io_context& io, Log log, std::optional<std::string> checkpoints);
  ProgressFiles(const ProgressFiles&) = delete;
  ProgressFiles& operator=(const ProgressFiles&) = delete;
  ~ProgressFiles();

  void begin_round(int round, int workers);
  // DRUN_PROGRESS_FILE; empty: there is no place for it.
  std::string file(std::size_t local_rank) const;

  // Once the workers are gone. Called back once: at once without a checkpoint directory, else from
  // the loop or from stop().
  void collect(OnCollected on_collected);

  // Nothing keeps the loop from now on.
  void stop();

 private:
  struct Checkpoints {
    std::string directory;
    std::int64_t newest = 0;  // as of the last scan; the thread's alone
  };

  bool make_directory();
  void remove_files();
  void read_files();
  void trim_later();
  void trim();
  void give(const WorkProgress& progress);

  asio::io_context& io_;
  Log log_;
  asio::steady_timer trim_;
  asio::steady_timer limit_;
  std::string directory_;
  bool has_failed_ = false;  // to make the directory
  int round_ = 0;
  int workers_ = 0;
  bool has_begun_ = false;
  WorkProgress seen_;                         // in this round's files
  std::shared_ptr<Checkpoints> checkpoints_;  // null: none
  FileWriter thread_;
  OnCollected on_collected_;
  int scan_ = 0;  // the number of the last one
};

}  // namespace drun::agent
