#include "worker_lib/core/group.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <utility>

#include "worker_lib/base/deadline.h"
#include "worker_lib/base/process.h"
#include "worker_lib/base/signature.h"
#include "worker_lib/core/pulse.h"
#include "worker_lib/mesh/gather_texts.h"
#include "worker_lib/node/node_layout.h"

namespace drun {
namespace {

using Kind = WorkerError::Kind;
using worker::Cause;
using worker::DeadlineGuard;
using worker::left_until;
using worker::Pulse;
using worker::PulseMark;
using worker::PulseOperation;
using worker::to_string;
using worker::WaitMark;
using Milliseconds = std::chrono::milliseconds;

// Backends that keep deadlines themselves report more details than the group can. They get this
// time after the deadline, which is enough for a process that waits for a processor.
constexpr Milliseconds kBackstop{5000};
// The end of a barrier stays in the store during as many later ones, since threads of a rank may be
// in several at once.
constexpr int kKeptBarriers = 16;
// Of one group. A thread polls each message every few milliseconds.
constexpr std::size_t kMostPending = 16'384;

std::string time_text(Milliseconds time) { return " (" + std::to_string(time.count()) + " ms)"; }

// --- Operations are recorded in the process's heartbeat page

PulseOperation operation_of(const Call& call, std::uint32_t group, const Turn& turn) {
  return {.group = group,
          .sequence = turn.sequence,
          .bytes = call.count * size_bytes(call.type),
          .kind = static_cast<std::uint16_t>(call.operation)};
}

PulseOperation operation_of(const MessageCall& message, std::uint32_t group) {
  const ConstElements data = message.data();
  return {.group = group,
          .bytes = data.count * size_bytes(data.type),
          .kind = message.is_send ? kPulseSend : kPulseRecv};
}

// Records a transfer in the heartbeat page during its lifetime.
class MarkedTransfer final : public Transfer {
 public:
  MarkedTransfer(PulseMark mark, std::unique_ptr<Transfer> transfer)
      : mark_(std::move(mark)), transfer_(std::move(transfer)) {}
  int finish(Deadline deadline) override { return transfer_->finish(deadline); }
  std::optional<bool> is_done() override { return transfer_->is_done(); }
  bool wait_on(void* stream) override { return transfer_->wait_on(stream); }

 private:
  PulseMark mark_;
  std::unique_ptr<Transfer> transfer_;  // destroyed before the mark
};

std::unique_ptr<Transfer> marked(PulseMark mark, std::unique_ptr<Transfer> transfer) {
  if (!transfer || !Pulse::own().is_on()) return transfer;
  return std::make_unique<MarkedTransfer>(std::move(mark), std::move(transfer));
}

}  // namespace

ProcessGroup::Group::Group(worker::GroupParts parts)
    : parts_(std::move(parts)),
      fork_generation_(worker::fork_generation()),
      failure_(parts_),
      requests_(std::make_unique<worker::GroupRequests>(parts_.job->progress)) {
  std::vector<Lifeline> lifelines = parts_.backend->lifelines();
  is_backend_told_ = !lifelines.empty() || !parts_.backend->detects_ends();
  for (int rank = 0; rank < parts_.size; ++rank) {
    const int fd = parts_.job->processes.fd(parts_.world_ranks[static_cast<std::size_t>(rank)]);
    if (fd >= 0) lifelines.push_back({fd, rank});
  }
  try {
    if (parts_.size > 1) parts_.job->watch.start();
    if (lifelines.empty()) return;
    lifelines_ =
        parts_.job->watch.add_lifelines(std::move(lifelines), [this](int rank) { on_end(rank); });
  } catch (const BackendFailure& failure) {
    throw error(failure.kind, "init_process_group", failure.what());
  }
}

void ProcessGroup::Group::on_end(int rank) {
  if (!is_backend_told_ || parts_.backend->tell_lost(rank)) failure_.add_end(rank);
}

ProcessGroup::Group::~Group() {
  if (worker::fork_generation() != fork_generation_) {
    // The threads belong to the parent process, and so does everything they share.
    static_cast<void>(new worker::GroupParts(std::move(parts_)));
    static_cast<void>(requests_.release());
    return;
  }
  failure_.destroy();
  requests_->stop();
  if (lifelines_ != 0) parts_.job->watch.remove(lifelines_);
}

Deadline ProcessGroup::Group::deadline(Timeout timeout) const {
  return worker::deadline_in(timeout.value_or(parts_.job->timeout));
}

template <typename Namer>
ProcessGroup::Group::Limit ProcessGroup::Group::admit(const Namer& name, Timeout timeout) {
  const Milliseconds limit = timeout.value_or(parts_.job->timeout);
  if (limit.count() <= 0) {
    throw error(
        Kind::Usage, name(),
        "a timeout of " + std::to_string(limit.count()) + " ms leaves no time; give at least 1 ms");
  }
  if (worker::fork_generation() != fork_generation_) {
    throw error(Kind::Usage, name(),
                "this process was forked from one that has a group, which stays its parent's; fork "
                "before init_process_group, or exec");
  }
  if (failure_.is_broken()) {
    const BackendFailure failure = broken();
    throw error(failure.kind, name(), failure.what(), failure.peer);
  }
  const Milliseconds time = std::min(limit, worker::kLongestTime);
  return {.deadline = worker::deadline_in(time), .time = time};
}

template <typename Namer>
ProcessGroup::Group::Pending ProcessGroup::Group::pend(const Namer& name) {
  const bool is_possible = ++pending_ <= kMostPending;
  Pending pending(nullptr, [this](void*) { --pending_; });
  if (is_possible) return pending;
  throw error(Kind::Usage, name(),
              std::to_string(kMostPending) +
                  " asynchronous operations of this group are pending, the most that can be; wait "
                  "for some of them");
}

void ProcessGroup::Group::check_possible(const Call& call) const {
  try {
    const std::string refusal = parts_.backend->refusal(call);
    if (!refusal.empty()) throw BackendFailure(Kind::Unsupported, refusal);
  } catch (const BackendFailure& failure) {
    throw error(failure.kind, to_string(call), failure.what());
  }
}

void ProcessGroup::Group::check_possible(const MessageCall& message) const {
  const std::string refusal =
      parts_.backend->message_refusal(message.data(), !message.peer.has_value(), message.tag);
  if (!refusal.empty()) throw error(Kind::Unsupported, to_string(message), refusal);
}

template <typename Namer, typename Action>
auto ProcessGroup::Group::guarded(const Namer& name, const Limit& limit, Action&& action) {
  const auto on_late = [&] { static_cast<void>(fail(name(), late(limit))); };
  try {
    std::optional<DeadlineGuard> guard;
    if (!parts_.backend->keeps_deadlines()) {
      guard.emplace(parts_.job->watch, limit.deadline, on_late);
    } else if (parts_.size > 1) {
      guard.emplace(parts_.job->watch, limit.deadline + kBackstop, on_late);
    }
    return action();
  } catch (const BackendFailure& failure) {
    if (failure.kind != Kind::Timeout) throw fail(name(), failure);
    throw fail(name(),
               BackendFailure(failure.kind, failure.peer, failure.what() + time_text(limit.time)));
  } catch (const WorkerError& failure) {  // of the store, which the backend has used
    throw fail(name(), BackendFailure(failure.kind(), failure.peer(), failure.message()));
  } catch (const std::exception& failure) {
    throw fail(name(), BackendFailure(Kind::System, failure.what()));
  }
}

template <typename What>
class ProcessGroup::Group::Started final : public worker::Request {
 public:
  Started(Group& group, const What& what, const Limit& limit, Pending pending,
          std::shared_ptr<Transfer> transfer)
      : Request(transfer),
        group_(group),
        what_(what),
        limit_(limit),
        pending_(std::move(pending)),
        transfer_(std::move(transfer)) {}

 private:
  int act() override {
    // These end after a failure has been published, and before the operation is done.
    const Limit limit = std::move(limit_);
    const Pending pending = std::move(pending_);
    const std::shared_ptr<Transfer> transfer = std::move(transfer_);
    return group_.guarded([this] { return to_string(what_); }, limit,
                          [&] { return transfer->finish(limit.deadline); });
  }
  std::optional<bool> would_end() override {
    if (worker::coarse_now() >= limit_.deadline) return true;
    return transfer_->is_done();
  }

  Group& group_;
  const What what_;
  Limit limit_;
  Pending pending_;
  std::shared_ptr<Transfer> transfer_;
};

template <typename Namer, typename Action>
void ProcessGroup::Group::in_turn(const Namer& name, const Limit& limit, Action&& action) {
  // Usually there is no concurrent operation to be ordered with.
  std::unique_lock running(running_, std::defer_lock);
  if (unfinished_ > 0 || !running.try_lock()) {
    std::unique_lock submitting(submitting_);
    const Work work = queue(name, limit, action);
    submitting.unlock();
    return work.wait();
  }
  const WaitMark mark;
  const Turn turn{.sequence = ++sequence_, .deadline = limit.deadline};
  guarded(name, limit, [&] { action(turn); });
}

void ProcessGroup::Group::need_thread(const Name& name) {
  try {
    requests_->start();
  } catch (const BackendFailure& failure) {
    throw error(failure.kind, name(), failure.what());
  }
}

Work ProcessGroup::Group::queue(Name name, Limit limit,
                                std::function<void(const Turn& turn)> action) {
  need_thread(name);
  const Turn turn{.sequence = ++sequence_, .deadline = limit.deadline};
  ++unfinished_;
  return Work(
      requests_->queue([this, name = std::move(name), action = std::move(action), limit, turn] {
        // Decrement before the operation completes and its waiters continue.
        const std::shared_ptr<void> finished(nullptr, [this](void*) { --unfinished_; });
        const std::unique_lock running(running_, limit.deadline);
        if (!running) throw fail(name(), late(limit));
        guarded(name, limit, [&] { action(turn); });
        return 0;
      }));
}

void ProcessGroup::Group::run(const Call& call, Timeout timeout) {
  const auto name = [&call] { return to_string(call); };
  const Limit limit = admit(name, timeout);
  check_possible(call);
  if (parts_.backend->starts(call)) {
    const WaitMark mark;
    const Turn turn{.sequence = ++sequence_, .deadline = limit.deadline};
    std::unique_ptr<Transfer> transfer;  // given up after the failure has been published
    guarded(name, limit, [&] {
      transfer = begin(call, turn);
      return transfer->finish(limit.deadline);
    });
    return;
  }
  // Always waited for, because the thread that runs it uses the caller's call.
  in_turn(name, limit, [this, &call](const Turn& turn) { run_now(call, turn); });
}

Work ProcessGroup::Group::start(const Call& call, Timeout timeout,
                                std::shared_ptr<const void> counts) {
  const auto name = [&call] { return to_string(call); };
  Limit limit = admit(name, timeout);
  const Pending pending = pend(name);
  limit.counts = std::move(counts);
  check_possible(call);
  if (parts_.backend->starts(call)) {
    need_thread(name);
    const Turn turn{.sequence = ++sequence_, .deadline = limit.deadline};
    const std::shared_ptr<Transfer> transfer =
        guarded(name, limit, [&] { return begin(call, turn); });
    auto request = std::make_shared<Started<Call>>(*this, call, limit, pending, transfer);
    requests_->look_after(request);
    return Work(std::move(request));
  }
  const std::lock_guard submitting(submitting_);
  return queue([call] { return to_string(call); }, limit,
               [this, call, pending](const Turn& turn) { run_now(call, turn); });
}

int ProcessGroup::Group::exchange(const MessageCall& message, Timeout timeout) {
  const auto name = [&message] { return to_string(message); };
  check(place(), message);
  Limit limit = admit(name, timeout);
  check_possible(message);
  limit.peer = message.peer;
  const WaitMark mark;
  // Given up after the failure has been published.
  std::unique_ptr<Transfer> transfer;
  return guarded(name, limit, [&] {
    transfer = post(message);
    return transfer ? transfer->finish(limit.deadline) : message.peer.value();
  });
}

Work ProcessGroup::Group::start(const MessageCall& message, Timeout timeout) {
  const auto name = [&message] { return to_string(message); };
  check(place(), message);
  Limit limit = admit(name, timeout);
  Pending pending = pend(name);
  check_possible(message);
  limit.peer = message.peer;
  need_thread(name);
  return watched(message, limit, std::move(pending),
                 guarded(name, limit, [&] { return post(message); }));
}

std::vector<Work> ProcessGroup::Group::start(const std::vector<MessageCall>& batch,
                                             Timeout timeout) {
  const auto name = [size = batch.size()] {
    return "batch_isend_irecv(" + std::to_string(size) + " messages)";
  };
  std::vector<Limit> limits;
  std::vector<Pending> pending;
  for (const MessageCall& message : batch) {
    const auto its_name = [&message] { return to_string(message); };
    check(place(), message);
    limits.push_back(admit(its_name, timeout));
    pending.push_back(pend(its_name));
    limits.back().peer = message.peer;
    check_possible(message);
  }
  if (batch.empty()) return {};
  need_thread(name);
  Limit together = limits.front();
  together.peer = std::nullopt;
  std::vector<std::unique_ptr<Transfer>> transfers =
      guarded(name, together, [&] { return post(batch); });
  std::vector<Work> works;
  works.reserve(batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    works.push_back(watched(batch[i], limits[i], std::move(pending[i]), std::move(transfers[i])));
  }
  return works;
}

Work ProcessGroup::Group::watched(const MessageCall& message, const Limit& limit, Pending pending,
                                  const std::shared_ptr<Transfer>& transfer) {
  if (!transfer) return Work(message.peer.value());
  const bool is_done = transfer->is_done() == true;
  const auto request =
      std::make_shared<Started<MessageCall>>(*this, message, limit, std::move(pending), transfer);
  if (is_done) {
    request->run();
  } else {
    requests_->look_after(request);
  }
  return Work(request);
}

void ProcessGroup::Group::run_now(const Call& call, const Turn& turn) {
  const PulseMark mark(operation_of(call, parts_.label, turn));
  if (!call.factor) return parts_.backend->run(call, turn);
  std::vector<std::byte> product;
  parts_.backend->run(worker::multiplied(call, parts_.size, product), turn);
}

std::unique_ptr<Transfer> ProcessGroup::Group::begin(const Call& call, const Turn& turn) {
  PulseMark mark(operation_of(call, parts_.label, turn));
  return marked(std::move(mark), parts_.backend->start(call, turn));
}

std::unique_ptr<Transfer> ProcessGroup::Group::post(const MessageCall& message) {
  PulseMark mark(operation_of(message, parts_.label));
  Backend& backend = *parts_.backend;
  return marked(std::move(mark),
                message.is_send ? backend.start_send(message.outgoing, *message.peer, message.tag)
                                : backend.start_recv(message.incoming, message.peer, message.tag));
}

std::vector<std::unique_ptr<Transfer>> ProcessGroup::Group::post(
    const std::vector<MessageCall>& batch) {
  std::vector<PulseMark> marks;
  marks.reserve(batch.size());
  for (const MessageCall& message : batch) marks.emplace_back(operation_of(message, parts_.label));
  std::vector<std::unique_ptr<Transfer>> transfers = parts_.backend->start_batch(batch);
  for (std::size_t i = 0; i < batch.size(); ++i)
    transfers[i] = marked(std::move(marks[i]), std::move(transfers[i]));
  return transfers;
}

std::shared_ptr<void> ProcessGroup::Group::alloc_shared(std::size_t size_bytes, Timeout timeout) {
  const auto name = [size_bytes] {
    return "alloc_shared(" + std::to_string(size_bytes) + " bytes)";
  };
  const Limit limit = admit(name, timeout);
  std::shared_ptr<void> memory;
  in_turn(name, limit, [this, size_bytes, &memory](const Turn& turn) {
    memory = parts_.backend->alloc_shared(size_bytes, turn);
  });
  if (memory) return memory;
  constexpr std::size_t kPage = 4096;
  const std::size_t pages_bytes =
      (std::max<std::size_t>(size_bytes, 1) + kPage - 1) / kPage * kPage;
  memory.reset(std::aligned_alloc(kPage, pages_bytes), &std::free);
  if (!memory) throw error(Kind::System, name(), "there is not that much memory");
  return memory;
}

void ProcessGroup::Group::monitored_barrier(Timeout timeout, bool names_all) {
  const std::string name = "monitored_barrier()";
  const Deadline deadline = admit([&name] { return name; }, timeout).deadline;
  if (parts_.size == 1) return;
  const WaitMark mark;
  std::unique_lock submitting(submitting_);
  const int number = ++barriers_;
  submitting.unlock();
  const auto prefix_of = [](int barrier) {
    return "monitored_barrier/" + std::to_string(barrier) + "/";
  };
  const std::string prefix = prefix_of(number);
  const std::string own = prefix + std::to_string(parts_.rank);
  KeyStore& store = *parts_.store;
  at_store(name, [&] {
    if (parts_.rank == 0) {
      wait_for_all(prefix, deadline, names_all);
      store.set(prefix + "all", "", left_until(deadline));
      if (number > kKeptBarriers) forget(prefix_of(number - kKeptBarriers) + "all");
    } else {
      store.set(own, "", left_until(deadline));
      wait_for_first(prefix, deadline);
      forget(own);  // rank 0 has seen it
    }
  });
}

template <typename Action>
void ProcessGroup::Group::at_store(const std::string& name, Action&& action) {
  try {
    action();
  } catch (const BackendFailure& failure) {
    throw error(failure.kind, name, failure.what(), failure.peer);
  } catch (const WorkerError& failure) {
    throw error(failure.kind(), name, failure.message());
  }
}

// Keeps the store small. The rank that hosts it may have ended.
void ProcessGroup::Group::forget(const std::string& key) {
  try {
    parts_.store->remove(key, worker::kReportTime);
  } catch (const WorkerError&) {
  }
}

bool ProcessGroup::Group::wait_or_lose(const std::string& prefix,
                                       const std::vector<std::string>& keys,
                                       const std::vector<int>& ranks, Deadline deadline) {
  constexpr Milliseconds kSlice{200};
  std::vector<int> waited_for = ranks;
  while (true) {
    try {
      parts_.store->wait(keys, std::min(left_until(deadline), kSlice));
      return true;
    } catch (const WorkerError& failure) {
      if (failure.kind() != Kind::Timeout) throw;
    }
    while (const std::optional<int> lost = failure_.ended_rank(waited_for, Milliseconds(0))) {
      const auto at = std::find(ranks.begin(), ranks.end(), *lost) - ranks.begin();
      if (!parts_.store->has(keys[static_cast<std::size_t>(at)], worker::kReportTime)) {
        const int first = worker::first_lost(*parts_.store, prefix + "lost", *lost, parts_.size);
        throw BackendFailure(
            Kind::PeerLost, first,
            "the process of rank " + std::to_string(first) + " ended before it took part", true);
      }
      std::erase(waited_for, *lost);  // it arrived, then ended
    }
    if (failure_.is_broken()) throw broken();
    if (Deadline::clock::now() >= deadline) return false;
  }
}

void ProcessGroup::Group::wait_for_first(const std::string& prefix, Deadline deadline) {
  if (wait_or_lose(prefix, {prefix + "all"}, {0}, deadline)) return;
  throw BackendFailure(
      Kind::Timeout,
      "rank 0 did not report in time that every rank is there; it names those missing");
}

void ProcessGroup::Group::wait_for_all(const std::string& prefix, Deadline deadline,
                                       bool names_all) {
  std::vector<std::string> keys;
  std::vector<int> others;
  for (int rank = 1; rank < parts_.size; ++rank) {
    keys.push_back(prefix + std::to_string(rank));
    others.push_back(rank);
  }
  if (wait_or_lose(prefix, keys, others, deadline)) return;
  std::vector<int> missing;
  for (int rank = 1; rank < parts_.size; ++rank) {
    if (parts_.store->has(keys[static_cast<std::size_t>(rank - 1)], worker::kReportTime)) continue;
    missing.push_back(rank);
    if (!names_all) break;
  }
  throw WorkerError({.kind = Kind::Timeout,
                     .message = missing.empty() ? "all came, but too late"
                                                : worker::describe_ranks(missing) +
                                                      (names_all ? "" : " (and maybe others)") +
                                                      " did not come in time"});
}

// Over the backend, or over the store if the backend does not support host memory.
std::vector<int> ProcessGroup::Group::told_by_all(const std::vector<int>& mine, Timeout timeout) {
  std::vector<int> all(mine.size() * static_cast<std::size_t>(parts_.size));
  const Call call =
      worker::make_call(place(), {.operation = Operation::AllGather, .input = mine, .output = all});
  if (parts_.backend->refusal(call).empty()) {
    run(call, timeout);
    return all;
  }
  if (!parts_.store) return mine;  // a world of one
  std::unique_lock submitting(submitting_);
  const std::string name = "told/" + std::to_string(++tellings_);
  submitting.unlock();
  const std::size_t bytes = mine.size() * sizeof(int);
  const std::string own(reinterpret_cast<const char*>(mine.data()), bytes);
  BackendContext context = worker::context_of(parts_, deadline(timeout));
  context.store = parts_.store;
  at_store("split()", [&] {
    // gather_texts does not detect the end of a rank.
    if (parts_.rank == 0) {
      wait_for_all(name + "/", context.deadline, true);
    } else {
      parts_.store->set(name + "/" + std::to_string(parts_.rank), own,
                        left_until(context.deadline));
      wait_for_first(name + "/", context.deadline);
    }
    const std::vector<std::string> texts = worker::gather_texts(context, name, own);
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
      if (texts[rank].size() != bytes)
        throw BackendFailure(Kind::Store, "rank " + std::to_string(rank) + " told something else");
      std::memcpy(&all[rank * mine.size()], texts[rank].data(), bytes);
    }
  });
  return all;
}

std::shared_ptr<ProcessGroup::Group> ProcessGroup::Group::new_group(const std::vector<int>& ranks,
                                                                    Timeout timeout) {
  const std::string name = "new_group()";
  const Limit limit = admit([&name] { return name; }, timeout);
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  const bool is_good = !sorted.empty() && sorted.front() >= 0 && sorted.back() < parts_.size &&
                       std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  if (!is_good) {
    throw error(Kind::Usage, name,
                "the ranks must be different ones from 0 to " + std::to_string(parts_.size - 1));
  }
  const bool is_member = std::find(ranks.begin(), ranks.end(), parts_.rank) != ranks.end();
  return create({.name = name,
                 .color = is_member ? std::optional<int>(0) : std::nullopt,
                 .ranks = is_member ? ranks : std::vector<int>()},
                limit);
}

std::shared_ptr<ProcessGroup::Group> ProcessGroup::Group::split(std::optional<int> color, int key,
                                                                Timeout timeout) {
  const Limit limit = admit([] { return "split()"; }, timeout);
  const std::vector<int> mine{color ? 1 : 0, color.value_or(0), key};
  const std::vector<int> all = told_by_all(mine, timeout);
  std::map<int, std::vector<std::pair<int, int>>> members;  // color -> (key, rank)
  for (int rank = 0; rank < parts_.size; ++rank) {
    const int* told = &all[mine.size() * static_cast<std::size_t>(rank)];
    if (told[0] != 0) members[told[1]].emplace_back(told[2], rank);
  }
  Subgroup own{.name = "split()"};
  if (color) {
    const auto found = members.find(*color);
    own.color = static_cast<int>(std::distance(members.begin(), found));
    std::sort(found->second.begin(), found->second.end());
    for (const auto& [each_key, rank] : found->second) own.ranks.push_back(rank);
  }
  return create(own, limit);
}

std::shared_ptr<ProcessGroup::Group> ProcessGroup::Group::create(const Subgroup& subgroup,
                                                                 const Limit& limit) {
  const std::vector<int>& ranks = subgroup.ranks;
  const auto mine = std::find(ranks.begin(), ranks.end(), parts_.rank);
  const int new_rank = static_cast<int>(mine - ranks.begin());
  std::unique_lock submitting(submitting_);
  const int number = ++groups_;
  submitting.unlock();
  // Another thread may still use it after in_turn has thrown.
  const auto shared = std::make_shared<std::shared_ptr<void>>();
  if (parts_.backend->splits()) {
    in_turn([name = subgroup.name] { return name; }, limit,
            [this, shared, color = subgroup.color, new_rank](const Turn& turn) {
              *shared = parts_.backend->split(color, new_rank, turn);
            });
  }
  if (!subgroup.color) return nullptr;
  worker::GroupParts parts = worker::part_of(parts_, ranks, ++parts_.job->groups);
  if (parts_.store) {
    const std::string prefix =
        "group/" + std::to_string(number) + "/" + std::to_string(*subgroup.color);
    parts.store = make_prefix_key_store(prefix, parts_.store);
  }
  // Failures name ranks of the new group.
  const bool is_renumbered = !std::is_sorted(ranks.begin(), ranks.end()) ||
                             ranks.back() != static_cast<int>(ranks.size()) - 1;
  const char* const numbering = is_renumbered ? " (numbered as in the new group)" : "";
  const auto ended_rank = worker::ended_among(
      [this](const std::vector<int>& asked) { return failure_.ended_rank(asked, Milliseconds(0)); },
      ranks);
  try {
    parts.backend = worker::connect_backend(parts, limit.deadline, std::move(*shared), ended_rank);
  } catch (const BackendFailure& failure) {
    std::optional<int> peer;
    std::string message = failure.what();
    if (failure.peer && *failure.peer >= 0 && *failure.peer < parts.size) {
      int of_group = *failure.peer;
      if (failure.kind == Kind::PeerLost && parts.store) {
        of_group = worker::first_lost(*parts.store, "lost", of_group, parts.size);
        if (of_group != *failure.peer) message = worker::loss_of_unconnected(of_group).what();
      }
      peer = ranks.at(static_cast<std::size_t>(of_group));
    }
    throw error(failure.kind, subgroup.name, message + numbering, peer);
  } catch (const WorkerError& failure) {
    throw error(failure.kind(), subgroup.name, failure.message());
  }
  return std::make_shared<Group>(std::move(parts));
}

void ProcessGroup::Group::destroy() {
  if (worker::fork_generation() == fork_generation_) failure_.destroy();
}

bool ProcessGroup::Group::is_idle() {
  const std::unique_lock running(running_, std::try_to_lock);
  return running && unfinished_ == 0 && pending_ == 0;
}

BackendFailure ProcessGroup::Group::broken() {
  const Cause first = failure_.cause();
  return {Kind::Broken, first.peer,
          "the group is broken since rank " + std::to_string(first.reporter) + "'s " +
              first.operation + ": " + first.message};
}

BackendFailure ProcessGroup::Group::late(const Limit& limit) const {
  const std::string text = "not done within " + std::to_string(limit.time.count()) + " ms; ";
  if (limit.peer) {
    return {
        Kind::Timeout, limit.peer,
        text + "rank " + std::to_string(*limit.peer) + " is late, stuck or expects something else"};
  }
  return {Kind::Timeout,
          text + "another rank is late, stuck or has made fewer calls" +
              (parts_.job->is_debug ? "" : " (DRUN_DEBUG=1 tells a rank that makes other calls)")};
}

WorkerError ProcessGroup::Group::error(Kind kind, const std::string& operation,
                                       const std::string& message, std::optional<int> peer) const {
  return WorkerError({.kind = kind,
                      .rank = parts_.rank,
                      .peer = peer,
                      .operation = operation,
                      .message = message});
}

WorkerError ProcessGroup::Group::fail(const std::string& operation, const BackendFailure& failure) {
  const Cause first = failure_.fail(operation, failure);
  std::string message = first.message;
  if (first.reporter != parts_.rank || first.operation != operation) {
    message = "rank " + std::to_string(first.reporter) + "'s " + first.operation +
              " failed first: " + first.message;
  }
  return error(first.kind, operation, message, first.peer);
}

}  // namespace drun
