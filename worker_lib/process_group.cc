#include "drun/process_group.h"

#include <utility>

#include "worker_lib/group.h"

namespace drun {

ProcessGroup::ProcessGroup(std::unique_ptr<Group> group) : group_(std::move(group)) {}
ProcessGroup::ProcessGroup(ProcessGroup&&) noexcept = default;
ProcessGroup& ProcessGroup::operator=(ProcessGroup&&) noexcept = default;
ProcessGroup::~ProcessGroup() = default;

int ProcessGroup::rank() const { return group_->self().rank; }
int ProcessGroup::size() const { return group_->self().world.world_size; }
int ProcessGroup::local_rank() const { return group_->self().local_rank; }
int ProcessGroup::restart_count() const { return group_->self().world.round; }

void ProcessGroup::barrier(Timeout timeout) { group_->barrier(timeout); }

void ProcessGroup::all_reduce(Elements data, ReduceOp op, Timeout timeout) {
  group_->all_reduce(data, op, timeout);
}

void ProcessGroup::broadcast(Elements data, int root, Timeout timeout) {
  group_->broadcast(data, root, timeout);
}

void ProcessGroup::send(ConstElements data, int to, int tag, Timeout timeout) {
  group_->send(data, to, tag, timeout);
}

void ProcessGroup::recv(Elements data, int from, int tag, Timeout timeout) {
  group_->recv(data, from, tag, timeout);
}

}  // namespace drun
