#include "worker_lib/group.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace drun {
namespace {

using Kind = WorkerError::Kind;
using worker::BackendFailure;
using worker::Call;
using worker::Cause;
using worker::Deadline;

constexpr std::chrono::milliseconds kReportTime{1000};
// A connection that closes without a cause in the store: whoever closed it may be about to say why
// (Gloo closes all of them when a message times out, before anybody can be told).
constexpr std::chrono::milliseconds kGraceTime{200};
constexpr int kMostTags = 1 << 20;

std::string message_text(const char* name, DataType type, std::size_t count, const char* side,
                         int peer) {
  return std::string(name) + "(" + std::string(to_string(type)) + " x " + std::to_string(count) +
         ", " + side + " rank " + std::to_string(peer) + ")";
}

}  // namespace

void ProcessGroup::Group::all_reduce(Elements data, ReduceOp op, Timeout timeout) {
  const Call call{.name = Call::Name::AllReduce, .type = data.type, .op = op, .count = data.count};
  check_elements(to_string(call), data.data, data.count, data.type);
  collective(call, timeout, [this, data, op](std::uint32_t sequence, Deadline deadline) {
    if (data.count > 0) parts_.backend->all_reduce(data, op, sequence, deadline);
  });
}

void ProcessGroup::Group::broadcast(Elements data, int root, Timeout timeout) {
  const Call call{
      .name = Call::Name::Broadcast, .type = data.type, .root = root, .count = data.count};
  check_elements(to_string(call), data.data, data.count, data.type);
  check_rank(to_string(call), "root", root);
  collective(call, timeout, [this, data, root](std::uint32_t sequence, Deadline deadline) {
    if (data.count > 0) parts_.backend->broadcast(data, root, sequence, deadline);
  });
}

void ProcessGroup::Group::barrier(Timeout timeout) {
  collective(Call{.name = Call::Name::Barrier}, timeout, {});
}

void ProcessGroup::Group::send(ConstElements data, int to, int tag, Timeout timeout) {
  const std::string operation = message_text("send", data.type, data.count, "to", to);
  check_elements(operation, data.data, data.count, data.type);
  point_to_point(operation, to, tag, timeout,
                 [&](Deadline deadline) { parts_.backend->send(data, to, tag, deadline); });
}

void ProcessGroup::Group::recv(Elements data, int from, int tag, Timeout timeout) {
  const std::string operation = message_text("recv", data.type, data.count, "from", from);
  check_elements(operation, data.data, data.count, data.type);
  point_to_point(operation, from, tag, timeout,
                 [&](Deadline deadline) { parts_.backend->recv(data, from, tag, deadline); });
}

void ProcessGroup::Group::collective(const Call& call, Timeout timeout, Work work) {
  const std::string operation = to_string(call);
  const std::chrono::milliseconds limit = time_for(operation, timeout);
  const Deadline deadline = std::chrono::steady_clock::now() + limit;
  check_healthy(operation);
  std::future<void> done;
  {
    const std::lock_guard lock(submitting_);
    const std::uint32_t sequence = sequence_++;
    done = executor_.submit([this, call, sequence, deadline, work = std::move(work)] {
      parts_.backend->agree(call, sequence, deadline);
      if (work) work(sequence, deadline);
    });
  }
  if (done.wait_until(deadline) == std::future_status::timeout) {
    const WorkerError error =
        fail(operation, BackendFailure(Kind::Timeout, std::nullopt,
                                       "not done within " + std::to_string(limit.count()) +
                                           " ms; another rank is late, stuck or has made fewer "
                                           "calls"));
    done.wait();  // the abort has woken it: only now is the caller's memory its own again
    throw error;
  }
  try {
    done.get();
  } catch (const BackendFailure& failure) {
    throw fail(operation, failure);
  } catch (const std::exception& error) {
    throw fail(operation, BackendFailure(Kind::System, std::nullopt, error.what()));
  }
}

void ProcessGroup::Group::point_to_point(const std::string& operation, int peer, int tag,
                                         Timeout timeout,
                                         const std::function<void(Deadline)>& work) {
  check_rank(operation, "the peer", peer);
  if (peer == parts_.self.rank) throw usage(operation, "a rank cannot exchange with itself");
  if (tag < 0 || tag >= kMostTags) {
    throw usage(operation, "tag " + std::to_string(tag) + " is not from 0 to " +
                               std::to_string(kMostTags - 1));
  }
  const Deadline deadline = std::chrono::steady_clock::now() + time_for(operation, timeout);
  check_healthy(operation);
  try {
    work(deadline);
  } catch (const BackendFailure& failure) {
    throw fail(operation, failure);
  } catch (const std::exception& error) {
    throw fail(operation, BackendFailure(Kind::System, std::nullopt, error.what()));
  }
}

void ProcessGroup::Group::check_elements(const std::string& operation, const void* data,
                                         std::size_t count, DataType type) const {
  constexpr std::size_t kMostBytes = std::numeric_limits<std::ptrdiff_t>::max();
  if (count > kMostBytes / size_bytes(type)) {
    throw usage(operation, "that many elements do not fit into memory");
  }
  if (data == nullptr && count > 0) throw usage(operation, "the data is a null pointer");
}

void ProcessGroup::Group::check_rank(const std::string& operation, const char* what,
                                     int rank) const {
  const int size = parts_.self.world.world_size;
  if (rank >= 0 && rank < size) return;
  throw usage(operation, std::string(what) + " is rank " + std::to_string(rank) +
                             ", but ranks are 0 to " + std::to_string(size - 1));
}

std::chrono::milliseconds ProcessGroup::Group::time_for(const std::string& operation,
                                                        Timeout timeout) const {
  const std::chrono::milliseconds limit = timeout.value_or(parts_.timeout);
  if (limit.count() <= 0) {
    throw usage(operation, "a timeout of " + std::to_string(limit.count()) +
                               " ms leaves no time; give at least 1 ms");
  }
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);
  return std::min(limit, kLongest);
}

WorkerError ProcessGroup::Group::usage(const std::string& operation,
                                       const std::string& message) const {
  return WorkerError(
      {.kind = Kind::Usage, .rank = parts_.self.rank, .operation = operation, .message = message});
}

void ProcessGroup::Group::check_healthy(const std::string& operation) {
  const std::lock_guard lock(failing_);
  if (!first_cause_) return;
  throw WorkerError({.kind = Kind::Broken,
                     .rank = parts_.self.rank,
                     .peer = first_cause_->peer,
                     .operation = operation,
                     .message = "the group is broken since rank " +
                                std::to_string(first_cause_->reporter) + "'s " +
                                first_cause_->operation + ": " + first_cause_->message});
}

WorkerError ProcessGroup::Group::fail(const std::string& operation, const BackendFailure& failure) {
  std::unique_lock lock(failing_);
  if (failure.kind == Kind::Broken) {
    failed_.wait_for(lock, kReportTime, [this] { return first_cause_.has_value(); });
  }
  const Cause mine{.reporter = parts_.self.rank,
                   .kind = failure.kind,
                   .peer = failure.peer,
                   .operation = operation,
                   .message = failure.what()};
  if (!first_cause_) {
    first_cause_ = publish(mine);
    parts_.backend->abort();
    failed_.notify_all();
  }
  const Cause& first = *first_cause_;
  std::string message = first.message;
  if (first.reporter != mine.reporter || first.operation != operation) {
    message = "rank " + std::to_string(first.reporter) + "'s " + first.operation +
              " failed first: " + first.message;
  }
  return WorkerError({.kind = first.kind,
                      .rank = parts_.self.rank,
                      .peer = first.peer,
                      .operation = operation,
                      .message = message});
}

Cause ProcessGroup::Group::publish(const Cause& cause) {
  if (!parts_.store) return cause;
  if (cause.kind == Kind::PeerLost) {
    try {
      const std::string told = parts_.store->get("first_cause", kGraceTime);
      return worker::decode_cause(told).value_or(cause);
    } catch (const WorkerError&) {
      // Nobody did: the peer is dead, then.
    }
  }
  try {
    const std::string winner =
        parts_.store->compare_set("first_cause", "", encode(cause), kReportTime);
    return worker::decode_cause(winner).value_or(cause);
  } catch (const WorkerError&) {
    return cause;  // the store is gone too: what this rank saw is all there is
  }
}

}  // namespace drun
