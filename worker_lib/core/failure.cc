#include "worker_lib/core/failure.h"

#include <algorithm>

#include "rendezvous/base/bytes.h"
#include "rendezvous/base/text.h"
#include "worker_lib/base/deadline.h"

namespace drun::worker {
namespace {

using Kind = WorkerError::Kind;
using Milliseconds = std::chrono::milliseconds;

// A store that responds does so within this time.
constexpr Milliseconds kPromptTime{100};
// The kernel closes a process's connections before it reports the end of the process.
constexpr Milliseconds kConfirmTime{500};
constexpr Milliseconds kBetweenLooks{20};

constexpr std::size_t kOperationBytes = 256;
constexpr std::size_t kMessageBytes = 3072;
constexpr std::int64_t kNobody = -1;

}  // namespace

std::string encode(const Cause& cause) {
  std::string bytes;
  ByteWriter writer(bytes);
  writer.u8(static_cast<std::uint8_t>(cause.kind));
  writer.i64(cause.reporter);
  writer.i64(cause.peer ? *cause.peer : kNobody);
  writer.text(std::string_view(cause.operation).substr(0, kOperationBytes));
  writer.text(std::string_view(cause.message).substr(0, kMessageBytes));
  return bytes;
}

std::optional<Cause> decode_cause(std::string_view bytes) {
  ByteReader reader(bytes);
  const std::uint8_t kind = reader.u8();
  const std::int64_t reporter = reader.i64();
  const std::int64_t peer = reader.i64();
  const std::string_view operation = reader.text(kOperationBytes);
  const std::string_view message = reader.text(kMessageBytes);
  constexpr std::int64_t kMostRanks = std::int64_t{1} << 30;
  const bool is_good = !reader.failed() && reader.at_end() &&
                       kind <= static_cast<std::uint8_t>(WorkerError::Kind::System) &&
                       reporter >= 0 && reporter < kMostRanks && peer >= kNobody &&
                       peer < kMostRanks;
  if (!is_good) return std::nullopt;
  Cause cause;
  cause.kind = static_cast<WorkerError::Kind>(kind);
  cause.reporter = static_cast<int>(reporter);
  if (peer != kNobody) cause.peer = static_cast<int>(peer);
  cause.operation = operation;
  cause.message = message;
  return cause;
}

int first_lost(KeyStore& store, const std::string& key, int lost, int size) {
  try {
    const std::string text = store.compare_set(key, "", std::to_string(lost), kReportTime);
    const std::optional<int> first = whole_number<int>(text);
    return first && *first >= 0 && *first < size ? *first : lost;
  } catch (const WorkerError&) {
    return lost;  // the store has ended too
  }
}

// --- GroupFailure

void GroupFailure::add_end(int rank) {
  {
    const std::lock_guard lock(ending_);
    has_ended_[static_cast<std::size_t>(rank)] = true;
  }
  ended_.notify_all();
}

std::optional<int> GroupFailure::ended_rank(const std::vector<int>& ranks, Milliseconds time) {
  auto found = ranks.end();
  std::unique_lock lock(ending_);
  ended_.wait_for(lock, time, [&] {
    found = std::find_if(ranks.begin(), ranks.end(),
                         [this](int rank) { return has_ended_[static_cast<std::size_t>(rank)]; });
    return found != ranks.end();
  });
  return found == ranks.end() ? std::nullopt : std::optional<int>(*found);
}

Cause GroupFailure::cause() {
  const std::lock_guard lock(failing_);
  return *first_cause_;
}

void GroupFailure::destroy() {
  const std::lock_guard lock(failing_);
  if (!first_cause_) {
    first_cause_ = Cause{.reporter = parts_.rank,
                         .kind = Kind::Broken,
                         .operation = "destroy",
                         .message = "the group was destroyed"};
    is_broken_ = true;
  }
  parts_.backend->abort();
  failed_.notify_all();
}

Cause GroupFailure::fail(const std::string& operation, const BackendFailure& failure) {
  std::unique_lock lock(failing_);
  if (failure.kind == Kind::Broken) {
    failed_.wait_for(lock, kReportTime, [this] { return first_cause_.has_value(); });
  }
  if (!first_cause_) {
    Cause cause{.reporter = parts_.rank,
                .kind = failure.kind,
                .peer = failure.peer,
                .operation = operation,
                .message = failure.what()};
    if (failure.kind == Kind::PeerLost && !failure.has_peer_ended) confirm(cause);
    // Before the abort: peers that see a connection close must find the cause, or they blame this
    // rank.
    first_cause_ = publish(cause);
    is_broken_ = true;
    parts_.backend->abort();
    failed_.notify_all();
  }
  return *first_cause_;
}

void GroupFailure::confirm(Cause& cause) {
  std::vector<int> suspects;
  if (cause.peer) suspects.push_back(*cause.peer);
  for (int rank = 0; rank < parts_.size && !cause.peer; ++rank) {
    if (rank != parts_.rank) suspects.push_back(rank);
  }
  const bool can_confirm = std::any_of(suspects.begin(), suspects.end(), [&](int rank) {
    return parts_.job->processes.fd(parts_.world_ranks[static_cast<std::size_t>(rank)]) >= 0;
  });
  const bool can_learn = can_confirm || parts_.store;
  const Deadline deadline = deadline_in(can_learn ? kConfirmTime : Milliseconds(0));
  do {
    if (const std::optional<int> ended = ended_rank(suspects, kBetweenLooks)) {
      cause.peer = ended;
      cause.message =
          "the process of rank " + std::to_string(*ended) + " has ended: " + cause.message;
      return;
    }
  } while (Deadline::clock::now() < deadline && !has_first_cause());
}

bool GroupFailure::has_first_cause() {
  try {
    return parts_.store && parts_.store->has("first_cause", kPromptTime);
  } catch (const WorkerError&) {
    return false;
  }
}

Cause GroupFailure::publish(const Cause& cause) {
  if (!parts_.store) return cause;
  for (const Milliseconds time : {kPromptTime, kReportTime}) {
    try {
      const std::string winner = parts_.store->compare_set("first_cause", "", encode(cause), time);
      return decode_cause(winner).value_or(cause);
    } catch (const WorkerError&) {
      // No thread of this rank waits for the store any longer.
      parts_.backend->abort();
    }
  }
  // The store is gone too, so this rank's own cause is used.
  Cause own = cause;
  if (cause.kind == Kind::PeerLost && parts_.job->rank0_hosts_store)
    own.message += "; the store, which the job's rank 0 hosts, is gone too";
  return own;
}

}  // namespace drun::worker
