// edge. The failure of a group: the processes that have ended, and the first cause, which all ranks
// report.
//
//     healthy --any failure--> broken        (for good; cause() says why)
//
// Failing: 1. After a lost connection, the group waits up to half a second for the kernel to report
//          the end of a process on this node, or for another rank's cause.
//          2. The cause is put into the store, unless another rank's cause is there already. Every
//          rank reports the first one.
//          3. The backend is aborted. This wakes this rank's other threads, and the peers detect it
//          and do the same. If the store does not respond, the abort is delayed by kPromptTime
//          only, and the cause is sent again afterwards. If a rank detects a closed connection,
//          then either the cause is in the store or the peer's process has ended.
// Thread:  any.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drun/error.h"
#include "drun/key_store.h"
#include "worker_lib/core/join.h"

namespace drun::worker {

// The first cause, and its encoding in the store, through which other ranks get it.
struct Cause {
  int reporter = 0;  // the rank that reports it
  WorkerError::Kind kind = WorkerError::Kind::System;
  std::optional<int> peer = std::nullopt;
  std::string operation;  // the reporter's
  std::string message;
  bool operator==(const Cause&) const = default;
};

// Texts are truncated so that the result stays below 4 KiB.
std::string encode(const Cause& cause);
// Absent if the bytes are invalid.
std::optional<Cause> decode_cause(std::string_view bytes);

class GroupFailure {
 public:
  // `parts` must outlive it.
  explicit GroupFailure(const GroupParts& parts)
      : parts_(parts), has_ended_(static_cast<std::size_t>(parts.size)) {}

  // That rank's process has ended, as a lifeline or the kernel reports.
  void add_end(int rank);
  // The first of `ranks` whose process has ended; waits for one for up to `time`.
  std::optional<int> ended_rank(const std::vector<int>& ranks, std::chrono::milliseconds time);

  bool is_broken() const { return is_broken_; }
  // Requires is_broken().
  Cause cause();
  // Breaks the group unless it is broken already. Returns the first cause.
  Cause fail(const std::string& operation, const BackendFailure& failure);
  void destroy();

 private:
  // Sets the rank whose process has ended, if that is why a connection was lost. Waits up to
  // kConfirmTime for the kernel's report.
  void confirm(Cause& cause);
  bool has_first_cause();
  Cause publish(const Cause& cause);

  const GroupParts& parts_;
  std::mutex ending_;
  std::condition_variable ended_;
  std::vector<bool> has_ended_;  // by rank
  std::atomic<bool> is_broken_ = false;
  std::mutex failing_;
  std::condition_variable failed_;  // first_cause_ is set
  std::optional<Cause> first_cause_;
};

// How long the group waits for a request to the store about a failure.
constexpr std::chrono::milliseconds kReportTime{1000};

// Which rank ended first, if several ranks of an operation at the store see another one end: those
// that see it soon end themselves. `lost`: the rank of `size` that this one saw end. `key`: of the
// operation.
int first_lost(KeyStore& store, const std::string& key, int lost, int size);

}  // namespace drun::worker
