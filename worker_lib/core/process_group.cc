#include "drun/process_group.h"

#include <utility>

#include "worker_lib/core/calls.h"
#include "worker_lib/core/group.h"
#include "worker_lib/core/join.h"

namespace drun {

using worker::Message;

ProcessGroup::ProcessGroup(std::shared_ptr<Group> group) : group_(std::move(group)) {}

ProcessGroup ProcessGroup::connect(const InitOptions& options) {
  return ProcessGroup(std::make_shared<Group>(worker::join(options)));
}

int ProcessGroup::rank() const { return group_->parts().rank; }
int ProcessGroup::size() const { return group_->parts().size; }
int ProcessGroup::local_rank() const { return group_->parts().job->self.local_rank; }
int ProcessGroup::restart_count() const { return group_->parts().job->self.world.restarts; }
std::string ProcessGroup::backend() const { return group_->parts().backend->name(); }

void ProcessGroup::barrier(Timeout timeout) {
  group_->run(Call{.operation = Operation::Barrier}, timeout);
}
void ProcessGroup::monitored_barrier(Timeout timeout, bool names_all) {
  group_->monitored_barrier(timeout, names_all);
}
void ProcessGroup::broadcast(Elements data, int root, Timeout timeout) {
  group_->run(worker::broadcast_call(group_->place(), data, root), timeout);
}
void ProcessGroup::all_reduce(Elements data, ReduceOp op, Timeout timeout) {
  group_->run(worker::all_reduce_call(group_->place(), data, op), timeout);
}
void ProcessGroup::reduce(Elements data, int root, ReduceOp op, Timeout timeout) {
  group_->run(worker::reduce_call(group_->place(), data, root, op), timeout);
}
void ProcessGroup::gather(ConstElements mine, Elements all, int root, Timeout timeout) {
  group_->run(worker::gather_call(group_->place(), mine, all, root), timeout);
}
void ProcessGroup::all_gather(ConstElements mine, Elements all, Timeout timeout) {
  group_->run(worker::all_gather_call(group_->place(), mine, all), timeout);
}
void ProcessGroup::scatter(ConstElements all, Elements mine, int root, Timeout timeout) {
  group_->run(worker::scatter_call(group_->place(), all, mine, root), timeout);
}
void ProcessGroup::reduce_scatter(ConstElements all, Elements mine, ReduceOp op, Timeout timeout) {
  group_->run(worker::reduce_scatter_call(group_->place(), all, mine, op), timeout);
}
void ProcessGroup::all_to_all(ConstElements input, Elements output, Timeout timeout) {
  group_->run(worker::all_to_all_call(group_->place(), input, output), timeout);
}

void ProcessGroup::gather_v(ConstElements mine, Elements all, const Counts& counts, int root,
                            Timeout timeout) {
  group_->run(worker::gather_call(group_->place(), mine, all, root, &counts), timeout);
}
void ProcessGroup::all_gather_v(ConstElements mine, Elements all, const Counts& counts,
                                Timeout timeout) {
  group_->run(worker::all_gather_call(group_->place(), mine, all, &counts), timeout);
}
void ProcessGroup::scatter_v(ConstElements all, const Counts& counts, Elements mine, int root,
                             Timeout timeout) {
  group_->run(worker::scatter_call(group_->place(), all, mine, root, &counts), timeout);
}
void ProcessGroup::reduce_scatter_v(ConstElements all, const Counts& counts, Elements mine,
                                    ReduceOp op, Timeout timeout) {
  group_->run(worker::reduce_scatter_call(group_->place(), all, mine, op, &counts), timeout);
}
void ProcessGroup::all_to_all_v(ConstElements input, const Counts& to, Elements output,
                                const Counts& from, Timeout timeout) {
  group_->run(worker::all_to_all_v_call(group_->place(), input, to, output, from), timeout);
}

Work ProcessGroup::async_barrier(Timeout timeout) {
  return group_->start(Call{.operation = Operation::Barrier}, timeout);
}
Work ProcessGroup::async_broadcast(Elements data, int root, Timeout timeout) {
  return group_->start(worker::broadcast_call(group_->place(), data, root), timeout);
}
Work ProcessGroup::async_all_reduce(Elements data, ReduceOp op, Timeout timeout) {
  return group_->start(worker::all_reduce_call(group_->place(), data, op), timeout);
}
Work ProcessGroup::async_reduce(Elements data, int root, ReduceOp op, Timeout timeout) {
  return group_->start(worker::reduce_call(group_->place(), data, root, op), timeout);
}
Work ProcessGroup::async_gather(ConstElements mine, Elements all, int root, Timeout timeout) {
  return group_->start(worker::gather_call(group_->place(), mine, all, root), timeout);
}
Work ProcessGroup::async_all_gather(ConstElements mine, Elements all, Timeout timeout) {
  return group_->start(worker::all_gather_call(group_->place(), mine, all), timeout);
}
Work ProcessGroup::async_scatter(ConstElements all, Elements mine, int root, Timeout timeout) {
  return group_->start(worker::scatter_call(group_->place(), all, mine, root), timeout);
}
Work ProcessGroup::async_reduce_scatter(ConstElements all, Elements mine, ReduceOp op,
                                        Timeout timeout) {
  return group_->start(worker::reduce_scatter_call(group_->place(), all, mine, op), timeout);
}
Work ProcessGroup::async_all_to_all(ConstElements input, Elements output, Timeout timeout) {
  return group_->start(worker::all_to_all_call(group_->place(), input, output), timeout);
}

void ProcessGroup::send(ConstElements data, int to, int tag, Timeout timeout) {
  group_->exchange({.is_send = true, .outgoing = data, .peer = to, .tag = tag}, timeout);
}
void ProcessGroup::recv(Elements data, int from, int tag, Timeout timeout) {
  group_->exchange({.incoming = data, .peer = from, .tag = tag}, timeout);
}
int ProcessGroup::recv_any(Elements data, int tag, Timeout timeout) {
  return group_->exchange({.incoming = data, .tag = tag}, timeout);
}
Work ProcessGroup::isend(ConstElements data, int to, int tag, Timeout timeout) {
  return group_->start(Message{.is_send = true, .outgoing = data, .peer = to, .tag = tag}, timeout);
}
Work ProcessGroup::irecv(Elements data, int from, int tag, Timeout timeout) {
  return group_->start(Message{.incoming = data, .peer = from, .tag = tag}, timeout);
}
Work ProcessGroup::irecv_any(Elements data, int tag, Timeout timeout) {
  return group_->start(Message{.incoming = data, .tag = tag}, timeout);
}

std::shared_ptr<void> ProcessGroup::alloc_shared(std::size_t size_bytes, Timeout timeout) {
  return group_->alloc_shared(size_bytes, timeout);
}

std::optional<ProcessGroup> ProcessGroup::new_group(const std::vector<int>& ranks,
                                                    Timeout timeout) {
  std::shared_ptr<Group> group = group_->new_group(ranks, timeout);
  if (!group) return std::nullopt;
  return ProcessGroup(std::move(group));
}

std::optional<ProcessGroup> ProcessGroup::split(std::optional<int> color, int key,
                                                Timeout timeout) {
  std::shared_ptr<Group> group = group_->split(color, key, timeout);
  if (!group) return std::nullopt;
  return ProcessGroup(std::move(group));
}

void ProcessGroup::destroy() { group_->destroy(); }

std::vector<Work> batch_isend_irecv(ProcessGroup& group, const std::vector<P2POperation>& batch,
                                    ProcessGroup::Timeout timeout) {
  std::vector<Message> messages;
  messages.reserve(batch.size());
  for (const P2POperation& each : batch) {
    const bool is_send = each.kind == P2POperation::Kind::Send;
    messages.push_back({.is_send = is_send, .peer = each.peer, .tag = each.tag});
    if (is_send) {
      messages.back().outgoing = each.outgoing.value_or(each.data);
    } else {
      messages.back().incoming = each.data;
    }
  }
  return group.group_->start(messages, timeout);
}

}  // namespace drun
