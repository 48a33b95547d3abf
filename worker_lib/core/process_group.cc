#include "drun/process_group.h"

#include <array>
#include <numeric>
#include <utility>

#include "worker_lib/base/deadline.h"
#include "worker_lib/core/calls.h"
#include "worker_lib/core/group.h"
#include "worker_lib/core/join.h"

namespace drun {

using worker::Message;

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

Work ProcessGroup::run(const Call& call, const OpOptions& options) {
  if (options.async_op) return group_->start(call, options.timeout);
  group_->run(call, options.timeout);
  return Work();
}

// The caller's counts are in values and may be gone before an asynchronous operation is done.
Work ProcessGroup::run_v(Call call, std::size_t value_size, const OpOptions& options) {
  if (value_size == 1 && !options.async_op) return run(call, options);
  const auto copies = std::make_shared<std::array<Counts, 2>>();
  const auto copy = [&](Counts& to, const std::size_t*& from) {
    if (from == nullptr) return;
    to.assign(from, from + size());
    for (std::size_t& each : to) each *= value_size;
    from = to.data();
  };
  copy((*copies)[0], call.counts_in);
  copy((*copies)[1], call.counts_out);
  if (options.async_op) return group_->start(call, options.timeout, copies);
  return run(call, options);
}

Work ProcessGroup::barrier(const OpOptions& options) {
  return run(Call{.operation = Operation::Barrier}, options);
}
void ProcessGroup::monitored_barrier(const MonitoredBarrierOptions& options) {
  group_->monitored_barrier(options.timeout, options.wait_all_ranks);
}

Work ProcessGroup::all_reduce(Elements data, Reduction op, const OpOptions& options) {
  return run(worker::all_reduce_call(group_->place(), data, op), options);
}
Work ProcessGroup::reduce(Elements data, int root, Reduction op, const OpOptions& options) {
  return run(worker::reduce_call(group_->place(), data, root, op), options);
}
Work ProcessGroup::reduce_scatter(ConstElements all, Elements mine, Reduction op,
                                  const OpOptions& options) {
  return run(worker::reduce_scatter_call(group_->place(), all, mine, op), options);
}
Work ProcessGroup::reduce_scatter_v(ConstElements all, const Counts& counts, Elements mine,
                                    Reduction op, const OpOptions& options) {
  return run_v(worker::reduce_scatter_call(group_->place(), all, mine, op, &counts), 1, options);
}

Work ProcessGroup::broadcast(Buffer data, int root, const OpOptions& options) {
  return run(worker::broadcast_call(group_->place(), data, root), options);
}
Work ProcessGroup::gather(ConstBuffer mine, Buffer all, int root, const OpOptions& options) {
  return run(worker::gather_call(group_->place(), mine, all, root), options);
}
Work ProcessGroup::all_gather(ConstBuffer mine, Buffer all, const OpOptions& options) {
  return run(worker::all_gather_call(group_->place(), mine, all), options);
}
Work ProcessGroup::scatter(ConstBuffer all, Buffer mine, int root, const OpOptions& options) {
  return run(worker::scatter_call(group_->place(), all, mine, root), options);
}
Work ProcessGroup::all_to_all(ConstBuffer input, Buffer output, const OpOptions& options) {
  return run(worker::all_to_all_call(group_->place(), input, output), options);
}

Work ProcessGroup::gather_v(ConstBuffer mine, Buffer all, const Counts& counts, int root,
                            const OpOptions& options) {
  return run_v(worker::gather_call(group_->place(), mine, all, root, &counts), mine.value_size,
               options);
}
Work ProcessGroup::all_gather_v(ConstBuffer mine, Buffer all, const Counts& counts,
                                const OpOptions& options) {
  return run_v(worker::all_gather_call(group_->place(), mine, all, &counts), mine.value_size,
               options);
}
Work ProcessGroup::scatter_v(ConstBuffer all, const Counts& counts, Buffer mine, int root,
                             const OpOptions& options) {
  return run_v(worker::scatter_call(group_->place(), all, mine, root, &counts), mine.value_size,
               options);
}
Work ProcessGroup::all_to_all_v(ConstBuffer input, const Counts& to, Buffer output,
                                const Counts& from, const OpOptions& options) {
  return run_v(worker::all_to_all_v_call(group_->place(), input, to, output, from),
               input.value_size, options);
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
  worker::check_scatter_parts(group_->place(), all, counts, root);
  std::size_t count = 0;
  scatter(counts, count, root, {options.timeout});
  scatter_v(all, counts, allocate(count), root, options_until(deadline));
}

ProcessGroup::Counts ProcessGroup::exchange_parts(const ConstBuffer& input, const Counts& to,
                                                  const Allocate& allocate,
                                                  const TimeoutOptions& options) {
  const Deadline deadline = group_->deadline(options.timeout);
  worker::check_all_to_all_parts(group_->place(), input, to);
  Counts from(to.size());
  all_to_all(to, from, {options.timeout});
  all_to_all_v(input, to, allocate(sum(from)), from, options_until(deadline));
  return from;
}

Work ProcessGroup::send(ConstBuffer data, int to, int tag, const OpOptions& options) {
  const Message message{.is_send = true, .outgoing = data.elements, .peer = to, .tag = tag};
  if (options.async_op) return group_->start(message, options.timeout);
  return Work(group_->exchange(message, options.timeout));
}
Work ProcessGroup::recv(Buffer data, std::optional<int> from, int tag, const OpOptions& options) {
  const Message message{.incoming = data.elements, .peer = from, .tag = tag};
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
  std::vector<Message> messages;
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

}  // namespace drun
