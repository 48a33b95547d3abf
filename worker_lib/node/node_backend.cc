#include "worker_lib/node/node_backend.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "worker_lib/algorithms/exchange.h"
#include "worker_lib/base/signature.h"
#include "worker_lib/math/reduce.h"

namespace drun::worker {
namespace {

// A backend of some of the group's ranks.
struct Member {
  std::unique_ptr<Backend> backend;
  std::vector<int> ranks;  // the group's numbers of its ranks
  std::string what;        // "the leaders"
};

Member connect_some(const BackendContext& group, std::vector<int> ranks, std::string name,
                    std::string what, const BackendFactory& factory) {
  BackendContext context = group;
  const auto me = std::find(ranks.begin(), ranks.end(), group.rank);
  context.rank = static_cast<int>(me - ranks.begin());
  context.size = static_cast<int>(ranks.size());
  context.is_debug = false;  // compared by the group as a whole
  context.node_of.clear();
  std::vector<int> met;  // the group's node numbers, in the order of this backend's
  for (const int rank : ranks) {
    const int node = group.node_of[static_cast<std::size_t>(rank)];
    auto known = std::find(met.begin(), met.end(), node);
    if (known == met.end()) known = met.insert(met.end(), node);
    context.node_of.push_back(static_cast<int>(known - met.begin()));
  }
  if (group.store) context.store = make_prefix_key_store(std::move(name), group.store);
  return {factory(context), std::move(ranks), std::move(what)};
}

std::vector<int> first_ranks(int size) {
  std::vector<int> all;
  all.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) all.push_back(rank);
  return all;
}

class NodeBackend final : public Backend {
 public:
  NodeBackend(const BackendContext& context, const BackendFactory& local,
              const BackendFactory& across)
      : layout_(context.node_of), rank_(context.rank), is_debug_(context.is_debug) {
    all_ = connect_some(context, first_ranks(context.size), "all", "all ranks", across);
    const int node = layout_.node_of(rank_);
    const std::vector<int>& neighbors = layout_.ranks_of(node);
    BackendContext within = context;
    within.is_lookout = false;  // the one of all ranks sees them all
    if (neighbors.size() > 1) {
      const std::string name = "node" + std::to_string(node);
      node_ = connect_some(within, neighbors, name, "the ranks of one node", local);
    }
    if (is_leader()) {
      leaders_ = connect_some(within, layout_.leaders(), "leaders", "the nodes' leaders", across);
    }
  }

  std::string name() const override {
    const std::string across = all_.backend->name();
    return node_.backend ? node_.backend->name() + "+" + across : across;
  }
  std::string refusal(const Call& call) const override { return all_.backend->refusal(call); }

  void run(const Call& call, const Turn& turn) override {
    if (is_debug_) agree(call, turn);
    switch (call.operation) {
      case Operation::Barrier:
        return barrier(call, turn);
      case Operation::Broadcast:
        return broadcast(call, turn);
      case Operation::AllReduce:
        return all_reduce(call, turn);
      case Operation::Reduce:
        return reduce(call, turn);
      case Operation::AllGather:
        if (layout_.is_contiguous()) return all_gather(call, turn);
        break;
      default:
        break;
    }
    in(all_, call, turn, 1);
  }

  std::unique_ptr<Transfer> start_send(const ConstElements& data, int to, int tag) override {
    return all_.backend->start_send(data, to, tag);
  }
  std::unique_ptr<Transfer> start_recv(const Elements& data, std::optional<int> from,
                                       int tag) override {
    return all_.backend->start_recv(data, from, tag);
  }

  void abort() noexcept override {
    for (Member* member : members()) member->backend->abort();
  }
  bool keeps_deadlines() const override {
    bool keeps = true;
    for (const Member* member : {&all_, &node_, &leaders_}) {
      if (member->backend) keeps = keeps && member->backend->keeps_deadlines();
    }
    return keeps;
  }
  std::vector<Lifeline> lifelines() const override {
    std::vector<Lifeline> lines;
    for (const Member* member : {&all_, &node_, &leaders_}) {
      if (!member->backend) continue;
      for (Lifeline line : member->backend->lifelines()) {
        line.rank = member->ranks[static_cast<std::size_t>(line.rank)];
        lines.push_back(line);
      }
    }
    return lines;
  }
  void tell_lost(int rank) noexcept override {
    for (Member* member : members()) {
      const auto found = std::find(member->ranks.begin(), member->ranks.end(), rank);
      if (found == member->ranks.end()) continue;
      member->backend->tell_lost(static_cast<int>(found - member->ranks.begin()));
    }
  }
  std::shared_ptr<void> alloc_shared(std::size_t size_bytes, const Turn& turn) override {
    if (!node_.backend) return nullptr;
    return node_.backend->alloc_shared(size_bytes, numbered(turn, 0));
  }

 private:
  bool is_leader() const { return layout_.local_rank_of(rank_) == 0; }
  int root_node(const Call& call) const { return layout_.node_of(call.root); }
  bool is_on_roots_node(const Call& call) const {
    return layout_.node_of(rank_) == root_node(call);
  }

  std::vector<Member*> members() {
    std::vector<Member*> all;
    for (Member* member : {&all_, &node_, &leaders_}) {
      if (member->backend) all.push_back(member);
    }
    return all;
  }

  // A backend runs at most two collectives for one of the group's.
  static Turn numbered(const Turn& turn, std::uint32_t which) {
    return {2 * turn.sequence + which, turn.deadline};
  }
  // Where this rank takes no part in the backend: nothing.
  void in(const Member& member, const Call& call, const Turn& turn, std::uint32_t which) const {
    if (!member.backend) return;
    try {
      member.backend->run(call, numbered(turn, which));
    } catch (const BackendFailure& failure) {
      throw translated(member, failure);
    }
  }
  // Its ranks are not the group's.
  BackendFailure translated(const Member& member, const BackendFailure& failure) const {
    if (&member == &all_) return failure;
    const std::string message =
        "among " + member.what + " (numbered from 0 there): " + failure.what();
    const bool is_known =
        failure.peer && *failure.peer >= 0 && *failure.peer < static_cast<int>(member.ranks.size());
    if (!is_known) return {failure.kind, std::nullopt, message, failure.has_peer_ended};
    const int peer = member.ranks[static_cast<std::size_t>(*failure.peer)];
    return {failure.kind, peer, "because of rank " + std::to_string(peer) + ", " + message,
            failure.has_peer_ended};
  }

  void agree(const Call& call, const Turn& turn) const {
    const auto size = static_cast<std::size_t>(layout_.size());
    const Signature mine = signature_of(call, layout_.size());
    std::vector<Signature> told(size);
    in(all_,
       {.operation = Operation::AllGather,
        .input = &mine,
        .output = told.data(),
        .count = sizeof mine},
       turn, 0);
    if (std::count(told.begin(), told.end(), mine) == layout_.size()) return;
    throw BackendFailure(WorkerError::Kind::Mismatch, std::nullopt,
                         "the ranks disagree about collective number " +
                             std::to_string(turn.sequence) + ": " + describe_disagreement(told));
  }

  void barrier(const Call& call, const Turn& turn) const {
    in(node_, call, turn, 0);
    in(leaders_, call, turn, 0);
    in(node_, call, turn, 1);
  }

  // The root's node has it from the root, the others from their leaders.
  void broadcast(Call call, const Turn& turn) const {
    const int root = call.root;
    const bool is_here = is_on_roots_node(call);
    call.root = layout_.local_rank_of(root);
    if (is_here) in(node_, call, turn, 0);
    call.root = layout_.node_of(root);
    in(leaders_, call, turn, 0);
    call.root = 0;
    if (!is_here) in(node_, call, turn, 0);
  }

  // What all ranks of this node have together, in `sum` on its leader.
  void reduce_in_node(Call call, void* sum, const Turn& turn) const {
    call.operation = Operation::Reduce;
    call.op = adding(call.op);
    call.root = 0;
    call.output = is_leader() ? sum : nullptr;
    if (!node_.backend && sum != call.input) copy(sum, call.input, bytes_of(call));
    in(node_, call, turn, 0);
  }

  void all_reduce(Call call, const Turn& turn) const {
    reduce_in_node(call, call.output, turn);
    if (is_leader()) {
      Call among_leaders = call;
      among_leaders.op = adding(call.op);
      in(leaders_, among_leaders, turn, 0);
      finish_average(call, call.output);
    }
    call.operation = Operation::Broadcast;
    call.root = 0;
    in(node_, call, turn, 1);
  }

  void reduce(const Call& call, const Turn& turn) const {
    const bool is_root = rank_ == call.root;
    const bool root_leads = layout_.local_rank_of(call.root) == 0;
    std::vector<char> scratch(is_leader() && !is_root ? bytes_of(call) : 0);
    void* const sum = is_root ? call.output : scratch.data();
    reduce_in_node(call, sum, turn);
    Call among_leaders = call;
    among_leaders.op = adding(call.op);
    among_leaders.root = root_node(call);
    among_leaders.input = sum;
    among_leaders.output = is_on_roots_node(call) ? sum : nullptr;
    in(leaders_, among_leaders, turn, 0);
    if (is_on_roots_node(call) && !root_leads) hand_to_root(call, sum, turn);
    if (is_root) finish_average(call, call.output);
  }

  // From the leader of the root's node: a scatter in which the others get nothing.
  void hand_to_root(const Call& call, const void* sum, const Turn& turn) const {
    const auto root = static_cast<std::size_t>(layout_.local_rank_of(call.root));
    std::vector<std::size_t> counts(node_.ranks.size(), 0);
    counts[root] = call.count;
    in(node_,
       {.operation = Operation::Scatter,
        .type = call.type,
        .root = 0,
        .input = is_leader() ? sum : nullptr,
        .output = rank_ == call.root ? call.output : nullptr,
        .count = rank_ == call.root ? call.count : 0,
        .counts_in = is_leader() ? counts.data() : nullptr,
        .is_uneven = true},
       turn, 1);
  }

  // To the leaders, where the parts of a node are contiguous, and from them to all ranks.
  void all_gather(const Call& call, const Turn& turn) const {
    const std::size_t element = size_bytes(call.type);
    const Parts parts(call.counts_out, call.count, element, layout_.size());
    std::vector<std::size_t> by_node(static_cast<std::size_t>(layout_.nodes()));
    for (int rank = 0; rank < layout_.size(); ++rank) {
      by_node[static_cast<std::size_t>(layout_.node_of(rank))] += parts.size_bytes(rank) / element;
    }
    Call among_leaders = call;
    among_leaders.count = by_node[static_cast<std::size_t>(layout_.node_of(rank_))];
    among_leaders.counts_out = by_node.data();
    among_leaders.is_uneven = true;
    std::vector<char> gathered;
    if (node_.backend) {
      if (is_leader()) gathered.resize(bytes_of(among_leaders));
      gather_in_node(call, parts, gathered.data(), turn);
      among_leaders.input = gathered.data();
    }
    in(leaders_, among_leaders, turn, 0);
    in(node_,
       {.operation = Operation::Broadcast,
        .type = call.type,
        .input = call.output,
        .output = call.output,
        .count = parts.total_bytes() / element},
       turn, 1);
  }

  void gather_in_node(Call call, const Parts& parts, void* gathered, const Turn& turn) const {
    std::vector<std::size_t> counts;
    for (const int rank : node_.ranks) {
      counts.push_back(parts.size_bytes(rank) / size_bytes(call.type));
    }
    call.operation = Operation::Gather;
    call.root = 0;
    call.output = is_leader() ? gathered : nullptr;
    call.counts_out = call.is_uneven && is_leader() ? counts.data() : nullptr;
    in(node_, call, turn, 0);
  }

  static std::size_t bytes_of(const Call& call) { return call.count * size_bytes(call.type); }
  static void copy(void* to, const void* from, std::size_t bytes) {
    std::copy_n(static_cast<const char*>(from), bytes, static_cast<char*>(to));
  }
  static ReduceOp adding(ReduceOp op) { return op == ReduceOp::Avg ? ReduceOp::Sum : op; }
  void finish_average(const Call& call, void* data) const {
    if (call.op == ReduceOp::Avg) divide(data, call.type, call.count, layout_.size());
  }

  const NodeLayout layout_;
  const int rank_;
  const bool is_debug_;
  Member all_;
  Member node_;     // none: this rank is alone on its node
  Member leaders_;  // none: this rank is no leader
};

}  // namespace

std::unique_ptr<Backend> connect_by_node(const BackendContext& context, const BackendFactory& local,
                                         const BackendFactory& across) {
  const NodeLayout layout(context.node_of);
  if (layout.nodes() <= 1) return local(context);
  if (layout.nodes() == layout.size()) return across(context);
  return std::make_unique<NodeBackend>(context, local, across);
}

}  // namespace drun::worker
