// edge. Collects the progress of this node's workers during a round: from one progress file per
// worker (DRUN_PROGRESS_FILE) and from the newest file below --checkpoint-dir.
//
// Files:   <round>.<local rank> in a scratch directory (scratch.h). A worker that reports progress
//          creates its file. Links and files that are not regular are ignored. Files larger than
//          kMostProgressBytes are truncated once a minute.
// Blocks:  a checkpoint directory may be on a network file system, so it is scanned in a thread. A
//          scan that takes longer than kScanAtMost is abandoned.
// Owner:   Agent.   Thread: the io_context's only.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "agent/output/file_writer.h"
#include "agent/process/scratch.h"
#include "rendezvous/base/log.h"
#include "rendezvous/job/restart_policy.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

inline constexpr std::size_t kMostProgressBytes = std::size_t{1} << 20;
inline constexpr std::chrono::seconds kScanAtMost{5};

// The progress in the lines of a progress file: the first integer of each line is a step. An
// unfinished last line counts too. `is_cut`: the beginning of the first line is missing.
WorkProgress progress_in(std::string_view lines, bool is_cut);
// The progress of both together.
WorkProgress together(const WorkProgress& one, const WorkProgress& other);

// The latest modification of files below a directory. It is later if the time is, or if more files
// have that time: file systems round it, most to some milliseconds, some to seconds.
struct LastChange {
  std::int64_t time_ns = 0;  // since 1970; 0: no file
  int files = 0;             // with this time
  // clang-tidy 14 takes the 0 that a defaulted comparison implies for a null pointer.
  auto operator<=>(const LastChange&) const = default;  // NOLINT(modernize-use-nullptr)
};

// Looks at up to kMostScanned entries, up to three directories deep. Blocks.
inline constexpr int kMostScanned = 100'000;
LastChange last_change(const std::string& directory);

class ProgressFiles {
 public:
  using OnCollected = std::function<void(const WorkProgress&)>;

  // `checkpoints`: the directory of --checkpoint-dir, if given.
  ProgressFiles(asio::io_context& io, Log log, std::optional<std::string> checkpoints);
  ProgressFiles(const ProgressFiles&) = delete;
  ProgressFiles& operator=(const ProgressFiles&) = delete;

  void begin_round(int round, int workers);
  // The value of DRUN_PROGRESS_FILE; empty if the directory could not be created.
  std::string file(std::size_t local_rank) const;

  // The highest step at the end of the worker's file; absent: none yet.
  std::optional<std::uint64_t> step(std::size_t local_rank) const;

  // Call when the workers have exited. `on_collected` is called once: within collect() if there is
  // no checkpoint directory, else from the loop or from stop().
  void collect(OnCollected on_collected);

  // After this, it no longer keeps the io_context running.
  void stop();

 private:
  struct Checkpoints {
    std::string directory;
    LastChange last;  // as of the last scan; used by the thread only
  };

  void read_files();
  void trim_later();
  void trim();
  void give(const WorkProgress& progress);

  asio::io_context& io_;
  Log log_;
  asio::steady_timer trim_;
  asio::steady_timer limit_;
  ScratchDirectory directory_{"progress"};
  bool has_failed_ = false;  // creating the directory failed
  int round_ = 0;
  int workers_ = 0;
  bool has_begun_ = false;
  WorkProgress seen_;                         // in this round's files
  std::shared_ptr<Checkpoints> checkpoints_;  // null: none
  FileWriter thread_;
  OnCollected on_collected_;
  int scan_ = 0;  // number of the latest scan
};

}  // namespace drun::agent
