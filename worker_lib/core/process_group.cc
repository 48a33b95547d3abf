#include "drun/process_group.h"

#include <array>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <string_view>
#include <utility>

#include "rendezvous/base/text.h"
#include "worker_lib/base/deadline.h"
#include "worker_lib/base/process.h"
#include "worker_lib/base/threads.h"
#include "worker_lib/core/calls.h"
#include "worker_lib/core/group.h"
#include "worker_lib/core/join.h"

namespace drun {

namespace {

std::size_t sum(const ProcessGroup::Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

// For the second of two operations with one timeout.
OpOptions options_until(Deadline deadline) { return {.timeout = worker::left_until(deadline)}; }

}  // namespace

ProcessGroup::ProcessGroup(std::shared_ptr<Group> group) : group_(std::move(group)) {}

ProcessGroup ProcessGroup::connect(const InitOptions& options) {
  return ProcessGroup(std::make_shared<Group>(worker::join(options)));
}

int ProcessGroup::rank() const { return group_->parts().rank; }
int ProcessGroup::size() const { return group_->parts().size; }
int ProcessGroup::local_rank() const { return group_->parts().job->self.local_rank; }
int ProcessGroup::restart_count() const { return group_->parts().job->self.world.restarts; }
std::string ProcessGroup::backend() const { return group_->parts().backend->name(); }

Work ProcessGroup::run(const worker::Arguments& arguments, const OpOptions& options) {
  Call call = worker::make_call(group_->place(), arguments);
  std::shared_ptr<std::array<Counts, 2>> copies;
  const std::size_t value_size = arguments.input.value_size;
  if (call.is_uneven && (options.async_op || value_size > 1)) {
    // The caller's counts are in values and may be gone before an asynchronous operation is done.
    copies = std::make_shared<std::array<Counts, 2>>();
    const auto copy = [&](Counts& to, const std::size_t*& from) {
      if (from == nullptr) return;
      to.assign(from, from + size());
      for (std::size_t& each : to) each *= value_size;
      from = to.data();
    };
    copy((*copies)[0], call.counts_in);
    copy((*copies)[1], call.counts_out);
  }
  if (options.async_op) return group_->start(call, options.timeout, std::move(copies));
  group_->run(call, options.timeout);
  return Work();
}

Work ProcessGroup::barrier(const OpOptions& options) {
  return run({.operation = Operation::Barrier}, options);
}
void ProcessGroup::monitored_barrier(const MonitoredBarrierOptions& options) {
  group_->monitored_barrier(options.timeout, options.wait_all_ranks);
}

Work ProcessGroup::all_reduce(Elements data, Reduction op, const OpOptions& options) {
  return run({.operation = Operation::AllReduce, .input = data, .output = data, .op = op}, options);
}
Work ProcessGroup::reduce(Elements data, int root, Reduction op, const OpOptions& options) {
  return run(
      {.operation = Operation::Reduce, .input = data, .output = data, .root = root, .op = op},
      options);
}
Work ProcessGroup::reduce_scatter(ConstElements all, Elements mine, Reduction op,
                                  const OpOptions& options) {
  return run({.operation = Operation::ReduceScatter, .input = all, .output = mine, .op = op},
             options);
}
Work ProcessGroup::reduce_scatter_v(ConstElements all, const Counts& counts, Elements mine,
                                    Reduction op, const OpOptions& options) {
  return run({.operation = Operation::ReduceScatter,
              .input = all,
              .output = mine,
              .op = op,
              .counts_in = &counts},
             options);
}

Work ProcessGroup::broadcast(Buffer data, int root, const OpOptions& options) {
  return run({.operation = Operation::Broadcast, .input = data, .output = data, .root = root},
             options);
}
Work ProcessGroup::gather(ConstBuffer mine, Buffer all, int root, const OpOptions& options) {
  return run({.operation = Operation::Gather, .input = mine, .output = all, .root = root}, options);
}
Work ProcessGroup::all_gather(ConstBuffer mine, Buffer all, const OpOptions& options) {
  return run({.operation = Operation::AllGather, .input = mine, .output = all}, options);
}
Work ProcessGroup::scatter(ConstBuffer all, Buffer mine, int root, const OpOptions& options) {
  return run({.operation = Operation::Scatter, .input = all, .output = mine, .root = root},
             options);
}
Work ProcessGroup::all_to_all(ConstBuffer input, Buffer output, const OpOptions& options) {
  return run({.operation = Operation::AllToAll, .input = input, .output = output}, options);
}

Work ProcessGroup::gather_v(ConstBuffer mine, Buffer all, const Counts& counts, int root,
                            const OpOptions& options) {
  return run({.operation = Operation::Gather,
              .input = mine,
              .output = all,
              .root = root,
              .counts_out = &counts},
             options);
}
Work ProcessGroup::all_gather_v(ConstBuffer mine, Buffer all, const Counts& counts,
                                const OpOptions& options) {
  return run(
      {.operation = Operation::AllGather, .input = mine, .output = all, .counts_out = &counts},
      options);
}
Work ProcessGroup::scatter_v(ConstBuffer all, const Counts& counts, Buffer mine, int root,
                             const OpOptions& options) {
  return run({.operation = Operation::Scatter,
              .input = all,
              .output = mine,
              .root = root,
              .counts_in = &counts},
             options);
}
Work ProcessGroup::all_to_all_v(ConstBuffer input, const Counts& to, Buffer output,
                                const Counts& from, const OpOptions& options) {
  return run({.operation = Operation::AllToAll,
              .input = input,
              .output = output,
              .counts_in = &to,
              .counts_out = &from},
             options);
}

ProcessGroup::Counts ProcessGroup::gather_parts(const ConstBuffer& mine, std::optional<int> root,
                                                const Allocate& allocate,
                                                const TimeoutOptions& options) {
  const Deadline deadline = group_->deadline(options.timeout);
  const std::size_t count = mine.count();
  Counts counts(root.value_or(rank()) == rank() ? static_cast<std::size_t>(size()) : 0);
  root ? gather(count, counts, *root, {options.timeout})
       : all_gather(count, counts, {options.timeout});
  const Buffer all = allocate(sum(counts));
  root ? gather_v(mine, all, counts, *root, options_until(deadline))
       : all_gather_v(mine, all, counts, options_until(deadline));
  return counts;
}

void ProcessGroup::scatter_parts(const ConstBuffer& all, const Counts& counts, int root,
                                 const Allocate& allocate, const TimeoutOptions& options) {
  const Deadline deadline = group_->deadline(options.timeout);
  worker::check_parts(
      group_->place(),
      {.operation = Operation::Scatter, .input = all, .root = root, .counts_in = &counts});
  std::size_t count = 0;
  scatter(counts, count, root, {options.timeout});
  scatter_v(all, counts, allocate(count), root, options_until(deadline));
}

ProcessGroup::Counts ProcessGroup::exchange_parts(const ConstBuffer& input, const Counts& to,
                                                  const Allocate& allocate,
                                                  const TimeoutOptions& options) {
  const Deadline deadline = group_->deadline(options.timeout);
  worker::check_parts(group_->place(),
                      {.operation = Operation::AllToAll, .input = input, .counts_in = &to});
  Counts from(to.size());
  all_to_all(to, from, {options.timeout});
  all_to_all_v(input, to, allocate(sum(from)), from, options_until(deadline));
  return from;
}

Work ProcessGroup::send(ConstBuffer data, int to, int tag, const OpOptions& options) {
  const MessageCall message{.is_send = true, .outgoing = data.elements, .peer = to, .tag = tag};
  if (options.async_op) return group_->start(message, options.timeout);
  return Work(group_->exchange(message, options.timeout));
}
Work ProcessGroup::recv(Buffer data, std::optional<int> from, int tag, const OpOptions& options) {
  const MessageCall message{.incoming = data.elements, .peer = from, .tag = tag};
  if (options.async_op) return group_->start(message, options.timeout);
  return Work(group_->exchange(message, options.timeout));
}

std::shared_ptr<void> ProcessGroup::alloc_shared(std::size_t size_bytes,
                                                 const TimeoutOptions& options) {
  return group_->alloc_shared(size_bytes, options.timeout);
}

std::optional<ProcessGroup> ProcessGroup::new_group(const std::vector<int>& ranks,
                                                    const TimeoutOptions& options) {
  std::shared_ptr<Group> group = group_->new_group(ranks, options.timeout);
  if (!group) return std::nullopt;
  return ProcessGroup(std::move(group));
}

std::optional<ProcessGroup> ProcessGroup::split(std::optional<int> color, int key,
                                                const TimeoutOptions& options) {
  std::shared_ptr<Group> group = group_->split(color, key, options.timeout);
  if (!group) return std::nullopt;
  return ProcessGroup(std::move(group));
}

void ProcessGroup::destroy() { group_->destroy(); }

std::vector<Work> batch_isend_irecv(ProcessGroup& group, const std::vector<P2POp>& batch,
                                    const TimeoutOptions& options) {
  std::vector<MessageCall> messages;
  messages.reserve(batch.size());
  for (const P2POp& each : batch) {
    messages.push_back({.is_send = each.is_send_,
                        .outgoing = each.outgoing_.elements,
                        .incoming = each.incoming_.elements,
                        .peer = each.peer_,
                        .tag = each.tag_});
  }
  return group.group_->start(messages, options.timeout);
}

// --- The default group and the global functions of torch.distributed

namespace {

struct Default {
  std::mutex mutex;
  std::optional<ProcessGroup> group;
  bool is_connecting = false;
};

// Never destroyed, because objects that a group needs may be destroyed by then. An exit handler
// closes the group before.
Default& the_default() {
  static Default& the = *new Default;
  return the;
}

WorkerError usage(const char* operation, const char* message) {
  return WorkerError(
      {.kind = WorkerError::Kind::Usage, .operation = operation, .message = message});
}

}  // namespace

// A group that is used by another thread or has operations pending is left to the kernel: its users
// would get errors.
void close_default_group() {
  const std::unique_lock lock(the_default().mutex, std::try_to_lock);
  if (!lock.owns_lock() || !the_default().group) return;
  const std::shared_ptr<ProcessGroup::Group>& group = the_default().group->group_;
  if (group.use_count() != 1 || !group->is_idle()) return;
  try {
    // This thread's thread_local objects, which libraries may use, are destroyed already.
    worker::start_thread([] { the_default().group.reset(); }).join();
  } catch (const BackendFailure&) {  // no thread can be started: left to the kernel, too
  }
}

ProcessGroup init_process_group(const InitOptions& options) {
  std::unique_lock lock(the_default().mutex);
  if (the_default().group || the_default().is_connecting) {
    throw usage("init_process_group",
                "there is a default group already; call destroy_process_group() first, or "
                "ProcessGroup::connect for a separate group");
  }
  the_default().is_connecting = true;
  lock.unlock();
  try {
    ProcessGroup group = ProcessGroup::connect(options);
    lock.lock();
    the_default().is_connecting = false;
    the_default().group = group;
    worker::at_exit(close_default_group);
    return group;
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    the_default().is_connecting = false;
    throw;
  }
}

void destroy_process_group() {
  const std::lock_guard lock(the_default().mutex);
  if (!the_default().group) return;
  the_default().group->destroy();
  the_default().group.reset();
}

bool is_initialized() {
  const std::lock_guard lock(the_default().mutex);
  return the_default().group.has_value();
}

ProcessGroup default_group() {
  const std::lock_guard lock(the_default().mutex);
  if (!the_default().group) {
    throw usage("default_group", "there is no group yet; call init_process_group() first");
  }
  return *the_default().group;
}

int get_rank() { return default_group().rank(); }
int get_world_size() { return default_group().size(); }
int get_local_rank() { return default_group().local_rank(); }
std::string get_backend() { return default_group().backend(); }

bool is_launched_by_agent() {
  const char* run_id = std::getenv("TORCHELASTIC_RUN_ID");
  return run_id != nullptr && *run_id != '\0';
}

int get_restart_count() {
  const char* text = std::getenv("TORCHELASTIC_RESTART_COUNT");
  if (text == nullptr || !is_launched_by_agent()) return 0;
  const int count = whole_number<int>(text).value_or(0);
  return std::max(count, 0);  // init_process_group() is where a wrong one is an error
}

}  // namespace drun
