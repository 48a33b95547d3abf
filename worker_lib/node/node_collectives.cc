#include "worker_lib/node/node_collectives.h"

#include <algorithm>
#include <cstdint>
#include <future>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "worker_lib/algorithms/exchange.h"
#include "worker_lib/base/signature.h"
#include "worker_lib/base/threads.h"
#include "worker_lib/math/reduce.h"

namespace drun::worker {
namespace {

// Up to here one exchange between the leaders takes less time than one more step within the nodes.
constexpr std::size_t kRailBytes = std::size_t{64} << 10;
// Large data is divided into chunks. Each rank's share of a chunk has at least this size: smaller
// ones cost more than their overlap gains.
constexpr std::size_t kLeastChunkBytes = std::size_t{2} << 20;
constexpr std::size_t kMostChunks = 4;

class Collectives final : public NodeCollectives {
 public:
  Collectives(const NodeLayout& layout, const NodeMembers& members, int rank, NodeOptions options)
      : layout_(layout),
        all_(members.all),
        node_(members.node),
        rail_(members.rail),
        rank_(rank),
        options_(options) {}

  void run(const Call& call, const Turn& turn) override {
    if (options_.is_debug) agree(call, turn);
    const bool uses_rails = layout_.is_uniform() && are_rails_faster(call);
    switch (call.operation) {
      case Operation::Barrier:
        return barrier(call, turn);
      case Operation::Broadcast:
        return uses_rails ? rails_broadcast(call, turn) : broadcast(call, turn);
      case Operation::AllReduce:
        return uses_rails ? rails_all_reduce(call, turn) : all_reduce(call, turn);
      case Operation::Reduce:
        return uses_rails ? rails_reduce(call, turn) : reduce(call, turn);
      case Operation::AllGather:
        if (uses_rails) return rails_all_gather(call, turn);
        if (layout_.is_contiguous()) return all_gather(call, turn);
        break;
      case Operation::ReduceScatter:
        if (uses_rails) return rails_reduce_scatter(call, turn);
        break;
      case Operation::Gather:
        if (uses_rails) return rails_gather(call, turn);
        break;
      case Operation::Scatter:
        if (uses_rails) return rails_scatter(call, turn);
        break;
      case Operation::AllToAll:
        if (uses_rails) return rails_all_to_all(call, turn);
        break;
    }
    in(all_, call, turn, 1);
  }

 private:
  bool is_leader() const { return layout_.local_rank_of(rank_) == 0; }
  int root_node(const Call& call) const { return layout_.node_of(call.root); }
  bool is_on_roots_node(const Call& call) const {
    return layout_.node_of(rank_) == root_node(call);
  }

  // Where this rank takes no part in the backend: nothing.
  void in(const Member& member, const Call& call, const Turn& turn, std::size_t which) const {
    if (!member.backend) return;
    if (&member == &all_) return member.backend->run(call, numbered(layout_, turn, which));
    within(member, [&] { member.backend->run(call, numbered(layout_, turn, which)); });
  }
  void agree(const Call& call, const Turn& turn) const {
    const int size = layout_.size();
    check_same_calls(turn.sequence, told_by_all<Signature>({signature_of(call, size)}, turn, 0));
    if (!has_private_counts(call)) return;
    check_part_counts(call, turn.sequence, told_by_all(part_counts(call, rank_, size), turn, 2),
                      size);
  }
  // In rank order.
  template <typename T>
  std::vector<T> told_by_all(const std::vector<T>& mine, const Turn& turn,
                             std::size_t which) const {
    std::vector<T> told(mine.size() * static_cast<std::size_t>(layout_.size()));
    in(all_,
       {.operation = Operation::AllGather,
        .input = mine.data(),
        .output = told.data(),
        .count = mine.size() * sizeof(T)},
       turn, which);
    return told;
  }

  void barrier(const Call& call, const Turn& turn) const {
    in(node_, call, turn, 0);
    if (is_leader()) in(rail_, call, turn, 0);
    in(node_, call, turn, 1);
  }

  // --- Rails: each rank works on its share of the data, with the ranks of the same local rank on
  // the other nodes. All connections between the nodes are busy, and all ranks reduce.

  // False if the leaders are faster, or the counts of other ranks are needed and unknown.
  bool are_rails_faster(const Call& call) const {
    switch (call.operation) {
      case Operation::AllReduce:
      case Operation::Broadcast:
      case Operation::Reduce:
        return bytes_of(call) >= kRailBytes;
      case Operation::AllGather:
        return layout_.is_contiguous() && total_bytes(call) >= kRailBytes;
      case Operation::ReduceScatter:
        return layout_.is_contiguous();
      case Operation::Gather:
      case Operation::Scatter:
      case Operation::AllToAll:
        return layout_.is_contiguous() && !call.is_uneven;
      case Operation::Barrier:
        break;
    }
    return false;
  }

  std::size_t total_bytes(const Call& call) const {
    return Parts(call.counts_out, call.count, size_bytes(call.type), layout_.size()).total_bytes();
  }
  std::size_t locals() const { return node_.ranks.size(); }
  std::size_t local_rank() const { return static_cast<std::size_t>(layout_.local_rank_of(rank_)); }
  std::size_t nodes() const { return static_cast<std::size_t>(layout_.nodes()); }

  // The elements that each rank of a node works on.
  std::vector<std::size_t> shares_of(std::size_t count) const {
    return even_counts(count, locals());
  }
  // Not filled with zeros.
  using Memory = std::unique_ptr<char[]>;
  static Memory memory_for(std::size_t count, DataType type) {
    return Memory(new char[count * size_bytes(type)]);
  }

  // An operation of this node's ranks on parts of these sizes, with the type and op of `call`.
  Call on_parts(Operation operation, const Call& call, const void* input, void* output,
                const std::vector<std::size_t>& counts) const {
    const bool splits_input = shape_of(operation).splits_input;
    return {.operation = operation,
            .type = call.type,
            .op = adding(call.op),
            .input = input,
            .output = output,
            .count = counts[local_rank()],
            .counts_in = splits_input ? counts.data() : nullptr,
            .counts_out = splits_input ? nullptr : counts.data(),
            .is_uneven = true};
  }
  // This rank's share of the node's sum.
  Memory reduce_share(const Call& call, const void* input, const Turn& turn,
                      std::size_t which) const {
    const std::vector<std::size_t> shares = shares_of(call.count);
    Memory share = memory_for(shares[local_rank()], call.type);
    in(node_, on_parts(Operation::ReduceScatter, call, input, share.get(), shares), turn, which);
    return share;
  }
  void gather_shares(const Call& call, const void* share, const Turn& turn,
                     std::size_t which) const {
    const std::vector<std::size_t> shares = shares_of(call.count);
    in(node_, on_parts(Operation::AllGather, call, share, call.output, shares), turn, which);
  }

  // With a thread, the ranks of a node work on one chunk while the chunk before it is exchanged
  // along the rails.
  void rails_all_reduce(const Call& call, const Turn& turn) {
    const std::vector<Call> chunks = chunks_of(call);
    std::future<Memory> exchanged;  // this rank's share of the last chunk
    for (std::size_t i = 0; i <= chunks.size(); ++i) {
      Memory share;
      if (i < chunks.size()) share = reduce_share(chunks[i], chunks[i].output, turn, 2 * i);
      Memory sum;
      if (i > 0) sum = exchanged.get();
      if (i < chunks.size()) {
        exchanged = start(
            [this, chunk = chunks[i], turn, i, share = std::move(share)]() mutable {
              reduce_along_rail(chunk, share.get(), turn, i);
              return std::move(share);
            },
            options_.overlaps && chunks.size() > 1);
      }
      if (i > 0) gather_shares(chunks[i - 1], sum.get(), turn, 2 * i - 1);
    }
  }
  std::vector<Call> chunks_of(const Call& call) const {
    const std::size_t count =
        std::clamp(bytes_of(call) / locals() / kLeastChunkBytes, std::size_t{1}, kMostChunks);
    const std::size_t element = size_bytes(call.type);
    const Parts parts = Parts::shares(call.count, element, static_cast<int>(count));
    std::vector<Call> chunks(count, call);
    for (std::size_t i = 0; i < count; ++i) {
      const int part = static_cast<int>(i);
      chunks[i].input = chunks[i].output = static_cast<char*>(call.output) + parts.offset(part);
      chunks[i].count = parts.size_bytes(part) / element;
    }
    return chunks;
  }
  void reduce_along_rail(const Call& chunk, char* share, const Turn& turn,
                         std::size_t which) const {
    Call rail = chunk;
    rail.op = adding(chunk.op);
    rail.input = rail.output = share;
    rail.count = shares_of(chunk.count)[local_rank()];
    in(rail_, rail, turn, which);
    finish_average(rail, chunk.op, share);
  }
  // Runs it on a thread; if there is none, before returning. It must own all memory that it uses,
  // because no one waits for it after a failure.
  template <typename Action>
  std::future<Memory> start(Action action, bool uses_thread) {
    const auto task = std::make_shared<std::packaged_task<Memory()>>(std::move(action));
    std::future<Memory> result = task->get_future();
    if (!uses_thread || !threads_.try_submit([task] { (*task)(); })) (*task)();
    return result;
  }

  void rails_broadcast(Call call, const Turn& turn) const {
    const std::vector<std::size_t> shares = shares_of(call.count);
    const bool is_here = is_on_roots_node(call);
    const int root = call.root;
    call.root = layout_.local_rank_of(root);
    if (is_here) in(node_, call, turn, 0);
    std::size_t before = 0;
    for (std::size_t i = 0; i < local_rank(); ++i) before += shares[i] * size_bytes(call.type);
    const Memory share = memory_for(is_here ? 0 : shares[local_rank()], call.type);
    Call rail = call;
    rail.root = layout_.node_of(root);
    rail.input = rail.output = is_here ? static_cast<char*>(call.output) + before : share.get();
    rail.count = shares[local_rank()];
    in(rail_, rail, turn, 0);
    if (!is_here) gather_shares(call, share.get(), turn, 1);
  }

  void rails_reduce(const Call& call, const Turn& turn) const {
    const std::vector<std::size_t> shares = shares_of(call.count);
    const Memory share = reduce_share(call, call.input, turn, 0);
    Call rail = call;
    rail.op = adding(call.op);
    rail.root = root_node(call);
    rail.input = share.get();
    rail.output = is_on_roots_node(call) ? share.get() : nullptr;
    rail.count = shares[local_rank()];
    in(rail_, rail, turn, 0);
    if (!is_on_roots_node(call)) return;
    const bool is_root = rank_ == call.root;
    Call gather = on_parts(Operation::Gather, call, share.get(), call.output, shares);
    gather.root = layout_.local_rank_of(call.root);
    if (!is_root) gather.counts_out = nullptr;
    in(node_, gather, turn, 1);
    if (is_root) finish_average(call, call.op, call.output);
  }

  // Within each node for the ranks of one node after the other, then along the rails.
  void rails_reduce_scatter(const Call& call, const Turn& turn) const {
    const std::size_t element = size_bytes(call.type);
    const Parts parts(call.counts_in, call.count, element, layout_.size());
    const std::vector<std::size_t> along = counts_of(rail_.ranks, parts, element);
    const Memory partial =
        memory_for(std::accumulate(along.begin(), along.end(), std::size_t{0}), call.type);
    std::size_t done = 0;
    for (std::size_t node = 0; node < nodes(); ++node) {
      const std::vector<int>& ranks = layout_.ranks_of(static_cast<int>(node));
      const std::vector<std::size_t> counts = counts_of(ranks, parts, element);
      const char* const input = static_cast<const char*>(call.input) + parts.offset(ranks.front());
      in(node_, on_parts(Operation::ReduceScatter, call, input, partial.get() + done, counts), turn,
         node);
      done += along[node] * element;
    }
    Call rail = call;
    rail.op = adding(call.op);
    rail.input = partial.get();
    rail.count = along[static_cast<std::size_t>(layout_.node_of(rank_))];
    rail.counts_in = along.data();
    rail.is_uneven = true;
    in(rail_, rail, turn, 0);
    finish_average(rail, call.op, call.output);
  }

  // Along the rails, then within each node for the ranks of one node after the other.
  void rails_all_gather(const Call& call, const Turn& turn) const {
    const std::size_t element = size_bytes(call.type);
    const Parts parts(call.counts_out, call.count, element, layout_.size());
    const std::vector<std::size_t> along = counts_of(rail_.ranks, parts, element);
    const Memory gathered =
        memory_for(std::accumulate(along.begin(), along.end(), std::size_t{0}), call.type);
    Call rail = call;
    rail.output = gathered.get();
    rail.counts_out = call.is_uneven ? along.data() : nullptr;
    in(rail_, rail, turn, 0);
    std::size_t done = 0;
    for (std::size_t node = 0; node < nodes(); ++node) {
      const std::vector<int>& ranks = layout_.ranks_of(static_cast<int>(node));
      const std::vector<std::size_t> counts = counts_of(ranks, parts, element);
      char* const output = static_cast<char*>(call.output) + parts.offset(ranks.front());
      in(node_, on_parts(Operation::AllGather, call, gathered.get() + done, output, counts), turn,
         node);
      done += along[node] * element;
    }
  }
  static std::vector<std::size_t> counts_of(const std::vector<int>& ranks, const Parts& parts,
                                            std::size_t element) {
    std::vector<std::size_t> counts;
    counts.reserve(ranks.size());
    for (const int rank : ranks) counts.push_back(parts.size_bytes(rank) / element);
    return counts;
  }

  // To the ranks with the root's local rank, and from them to the root.
  void rails_gather(const Call& call, const Turn& turn) const {
    const bool is_on_rail = layout_.local_rank_of(rank_) == layout_.local_rank_of(call.root);
    const Memory block = memory_for(is_on_rail ? locals() * call.count : 0, call.type);
    Call within = call;
    within.root = layout_.local_rank_of(call.root);
    within.output = is_on_rail ? block.get() : nullptr;
    in(node_, within, turn, 0);
    if (!is_on_rail) return;
    Call rail = call;
    rail.root = root_node(call);
    rail.input = block.get();
    rail.count = locals() * call.count;
    in(rail_, rail, turn, 0);
  }
  void rails_scatter(const Call& call, const Turn& turn) const {
    const bool is_on_rail = layout_.local_rank_of(rank_) == layout_.local_rank_of(call.root);
    const Memory block = memory_for(is_on_rail ? locals() * call.count : 0, call.type);
    if (is_on_rail) {
      Call rail = call;
      rail.root = root_node(call);
      rail.output = block.get();
      rail.count = locals() * call.count;
      in(rail_, rail, turn, 0);
    }
    Call within = call;
    within.root = layout_.local_rank_of(call.root);
    within.input = is_on_rail ? block.get() : nullptr;
    in(node_, within, turn, 0);
  }

  // Each rank gets, for its whole node, what the ranks of its rail send there, and hands it to its
  // neighbors.
  void rails_all_to_all(const Call& call, const Turn& turn) const {
    const std::size_t part = bytes_of(call);
    std::vector<char> arrived(static_cast<std::size_t>(layout_.size()) * part);
    std::vector<char> sorted(arrived.size());
    Call rail = call;
    rail.output = arrived.data();
    rail.count = locals() * call.count;
    in(rail_, rail, turn, 0);
    for (std::size_t node = 0; node < nodes(); ++node)
      for (std::size_t to = 0; to < locals(); ++to)
        copy(sorted.data() + (to * nodes() + node) * part,
             arrived.data() + (node * locals() + to) * part, part);
    Call within = call;
    within.input = sorted.data();
    within.output = arrived.data();
    within.count = nodes() * call.count;
    in(node_, within, turn, 0);
    char* const output = static_cast<char*>(call.output);
    for (std::size_t from = 0; from < locals(); ++from)
      for (std::size_t node = 0; node < nodes(); ++node)
        copy(output + (node * locals() + from) * part,
             arrived.data() + (from * nodes() + node) * part, part);
  }

  // --- Leaders: one rank of each node exchanges all of the node's data

  void in_leaders(const Call& call, const Turn& turn) const {
    if (is_leader()) in(rail_, call, turn, 0);
  }

  // The root's node has it from the root, the others from their leaders.
  void broadcast(Call call, const Turn& turn) const {
    const int root = call.root;
    const bool is_here = is_on_roots_node(call);
    call.root = layout_.local_rank_of(root);
    if (is_here) in(node_, call, turn, 0);
    call.root = layout_.node_of(root);
    in_leaders(call, turn);
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
      in_leaders(among_leaders, turn);
      finish_average(call, call.op, call.output);
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
    in_leaders(among_leaders, turn);
    if (is_on_roots_node(call) && !root_leads) hand_to_root(call, sum, turn);
    if (is_root) finish_average(call, call.op, call.output);
  }

  // From the leader of the root's node: a scatter in which the others get nothing.
  void hand_to_root(const Call& call, const void* sum, const Turn& turn) const {
    const auto root = static_cast<std::size_t>(layout_.local_rank_of(call.root));
    std::vector<std::size_t> counts(node_.ranks.size(), 0);
    counts[root] = call.count;
    Call scatter = on_parts(Operation::Scatter, call, is_leader() ? sum : nullptr,
                            rank_ == call.root ? call.output : nullptr, counts);
    if (!is_leader()) scatter.counts_in = nullptr;
    in(node_, scatter, turn, 1);
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
    in_leaders(among_leaders, turn);
    in(node_,
       {.operation = Operation::Broadcast,
        .type = call.type,
        .input = call.output,
        .output = call.output,
        .count = parts.total_bytes() / element},
       turn, 1);
  }

  void gather_in_node(Call call, const Parts& parts, void* gathered, const Turn& turn) const {
    const std::vector<std::size_t> counts = counts_of(node_.ranks, parts, size_bytes(call.type));
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
  // `op`: of the whole operation; `call` may be a part of it.
  void finish_average(const Call& call, ReduceOp op, void* data) const {
    if (op == ReduceOp::Avg) divide(data, call.type, call.count, layout_.size());
  }

  const NodeLayout& layout_;
  const Member& all_;
  const Member& node_;
  const Member& rail_;
  const int rank_;
  const NodeOptions options_;
  Threads threads_;
};

}  // namespace

Member connect_member(const BackendContext& group, std::vector<int> ranks, std::string name,
                      std::string what, const BackendFactory& factory) {
  BackendContext context = group;
  const auto me = std::find(ranks.begin(), ranks.end(), group.rank);
  context.rank = static_cast<int>(me - ranks.begin());
  context.size = static_cast<int>(ranks.size());
  context.is_debug = false;  // compared by the group as a whole
  context.node_of = nodes_among(group.node_of, ranks);
  if (group.store) context.store = make_prefix_key_store(std::move(name), group.store);
  if (group.ended_rank) context.ended_rank = ended_among(group.ended_rank, ranks);
  Member member{.backend = nullptr, .ranks = std::move(ranks), .what = std::move(what)};
  member.backend = within(member, [&] { return factory(context); });
  return member;
}

BackendFailure translated(const Member& member, const BackendFailure& failure) {
  const std::string message =
      "among " + member.what + " (numbered from 0 there): " + failure.what();
  const bool is_known =
      failure.peer && *failure.peer >= 0 && *failure.peer < static_cast<int>(member.ranks.size());
  if (!is_known) return {failure.kind, std::nullopt, message, failure.has_peer_ended};
  const int peer = member.ranks[static_cast<std::size_t>(*failure.peer)];
  return {failure.kind, peer, "because of rank " + std::to_string(peer) + ", " + message,
          failure.has_peer_ended};
}

std::unique_ptr<NodeCollectives> make_node_collectives(const NodeLayout& layout,
                                                       const NodeMembers& members, int rank,
                                                       NodeOptions options) {
  return std::make_unique<Collectives>(layout, members, rank, options);
}

// At most two collectives for each chunk, or one for each node and two more.
Turn numbered(const NodeLayout& layout, const Turn& turn, std::size_t which) {
  const std::size_t most = std::max(static_cast<std::size_t>(layout.nodes()) + 2, 2 * kMostChunks);
  return {static_cast<std::uint32_t>(most * turn.sequence + which), turn.deadline};
}

}  // namespace drun::worker
