#include "worker_lib/node/node_backend.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <future>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "worker_lib/algorithms/exchange.h"
#include "worker_lib/base/signature.h"
#include "worker_lib/base/threads.h"
#include "worker_lib/math/reduce.h"
#include "worker_lib/mesh/matcher.h"

namespace drun::worker {
namespace {

// Up to here one exchange between the leaders takes less time than one more step within the nodes.
constexpr std::size_t kRailBytes = std::size_t{64} << 10;
// Large data is divided into chunks, which are exchanged between the nodes while the ranks of a
// node work on others. Each rank's share of a chunk has at least this size: smaller ones cost more
// than the overlap gains.
constexpr std::size_t kLeastChunkBytes = std::size_t{1} << 20;
constexpr std::size_t kMostChunks = 4;

// A backend of some of the group's ranks.
struct Member {
  std::unique_ptr<Backend> backend;
  std::vector<int> ranks;  // the group's numbers of its ranks
  std::string what;        // "the leaders"
};

// Its ranks are not the group's.
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

// Runs the action on a backend of some of the ranks.
template <typename Action>
auto within(const Member& member, Action&& action) {
  try {
    return action();
  } catch (const BackendFailure& failure) {
    throw translated(member, failure);
  }
}

// A message between ranks of one node.
class LocalMessage final : public Transfer {
 public:
  LocalMessage(const Member& node, std::unique_ptr<Transfer> transfer)
      : node_(node), transfer_(std::move(transfer)) {}
  int finish(Deadline deadline) override {
    const int from = within(node_, [&] { return transfer_->finish(deadline); });
    return node_.ranks[static_cast<std::size_t>(from)];
  }
  std::optional<bool> is_done() override { return transfer_->is_done(); }

 private:
  const Member& node_;
  std::unique_ptr<Transfer> transfer_;
};

// A receive from any rank, which waits on both backends.
class ReceiveFromAny final : public Transfer {
 public:
  ReceiveFromAny(const Member& node, const Member& all, const Elements& data, int tag) {
    sides_[0] = std::make_unique<LocalMessage>(
        node, within(node, [&] { return start(node, data, tag, 0); }));
    sides_[1] = start(all, data, tag, 1);
  }
  int finish(Deadline deadline) override {
    const Deadline began = Deadline::clock::now();
    while (is_done() != true) {
      const Deadline now = Deadline::clock::now();
      if (now >= deadline)
        throw BackendFailure(WorkerError::Kind::Timeout, "no message came in time");
      pause(now - began);
    }
    return sides_[static_cast<std::size_t>(claim_.owner().value_or(1))]->finish(deadline);
  }
  // A side without a message that is over has lost all its ranks, or the group has failed.
  std::optional<bool> is_done() override {
    std::array<bool, 2> is_over{};
    for (std::size_t i = 0; i < 2; ++i) is_over[i] = sides_[i]->is_done().value_or(false);
    if (const std::optional<int> owner = claim_.owner())
      return is_over[static_cast<std::size_t>(*owner)];
    return is_over[0] && is_over[1];
  }

 private:
  std::unique_ptr<Transfer> start(const Member& member, const Elements& data, int tag, int side) {
    return dynamic_cast<SharesReceives&>(*member.backend)
        .start_recv_any(data, tag, {.claim = &claim_, .side = side});
  }
  // No event covers both backends. Short at first, since most messages come soon.
  static void pause(Deadline::duration passed) {
    constexpr std::chrono::microseconds kPollTime{250};
    constexpr std::chrono::milliseconds kMostPause{1};
    if (passed < kPollTime) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::min<Deadline::duration>(passed / 4, kMostPause));
    }
  }

  Claim claim_;
  std::array<std::unique_ptr<Transfer>, 2> sides_;
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

class NodeBackend final : public Backend {
 public:
  NodeBackend(const BackendContext& context, const BackendFactory& local,
              const BackendFactory& across)
      : layout_(context.node_of), rank_(context.rank), is_debug_(context.is_debug) {
    std::vector<int> ranks(static_cast<std::size_t>(context.size));
    std::iota(ranks.begin(), ranks.end(), 0);
    all_ = connect_some(context, std::move(ranks), "all", "all ranks", across);
    const int node = layout_.node_of(rank_);
    const std::vector<int>& neighbors = layout_.ranks_of(node);
    BackendContext of_some = context;
    of_some.is_lookout = false;  // the one of all ranks sees them all
    if (neighbors.size() > 1) {
      const std::string name = "node" + std::to_string(node);
      node_ = connect_some(of_some, neighbors, name, "the ranks of one node", local);
    }
    if (is_leader() || layout_.is_uniform()) {
      const int on_node = layout_.local_rank_of(rank_);
      rail_ = connect_some(of_some, layout_.rail(on_node), "rail" + std::to_string(on_node),
                           on_node == 0 ? "the nodes' leaders" : "the ranks with one local rank",
                           across);
    }
    routes_ = dynamic_cast<SharesReceives*>(node_.backend.get()) != nullptr &&
              dynamic_cast<SharesReceives*>(all_.backend.get()) != nullptr;
  }

  ~NodeBackend() override {
    abort();
    threads_.stop();
  }
  NodeBackend(const NodeBackend&) = delete;
  NodeBackend& operator=(const NodeBackend&) = delete;

  std::string name() const override {
    const std::string across = all_.backend->name();
    return node_.backend ? node_.backend->name() + "+" + across : across;
  }
  std::string refusal(const Call& call) const override { return all_.backend->refusal(call); }

  void run(const Call& call, const Turn& turn) override {
    if (is_debug_) agree(call, turn);
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

  std::unique_ptr<Transfer> start_send(const ConstElements& data, int to, int tag) override {
    if (!is_local(to)) return all_.backend->start_send(data, to, tag);
    return start_local(
        [&] { return node_.backend->start_send(data, layout_.local_rank_of(to), tag); });
  }
  std::unique_ptr<Transfer> start_recv(const Elements& data, std::optional<int> from,
                                       int tag) override {
    if (!from && routes_) return std::make_unique<ReceiveFromAny>(node_, all_, data, tag);
    if (!from || !is_local(*from)) return all_.backend->start_recv(data, from, tag);
    return start_local(
        [&] { return node_.backend->start_recv(data, layout_.local_rank_of(*from), tag); });
  }

  void abort() noexcept override {
    for (const Member* member : members()) member->backend->abort();
  }
  bool keeps_deadlines() const override {
    const std::vector<const Member*> all = members();
    return std::all_of(all.begin(), all.end(),
                       [](const Member* member) { return member->backend->keeps_deadlines(); });
  }
  std::vector<Lifeline> lifelines() const override {
    std::vector<Lifeline> lines;
    for (const Member* member : members()) {
      for (Lifeline line : member->backend->lifelines()) {
        line.rank = member->ranks[static_cast<std::size_t>(line.rank)];
        lines.push_back(line);
      }
    }
    return lines;
  }
  void tell_lost(int rank) noexcept override {
    for (const Member* member : members()) {
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
  // Whether messages to or from that rank use the `local` backend.
  bool is_local(int rank) const {
    return routes_ && layout_.node_of(rank) == layout_.node_of(rank_);
  }
  template <typename Start>
  std::unique_ptr<Transfer> start_local(Start&& start) const {
    std::unique_ptr<Transfer> transfer = within(node_, start);
    if (!transfer) return nullptr;
    return std::make_unique<LocalMessage>(node_, std::move(transfer));
  }
  bool is_leader() const { return layout_.local_rank_of(rank_) == 0; }
  int root_node(const Call& call) const { return layout_.node_of(call.root); }
  bool is_on_roots_node(const Call& call) const {
    return layout_.node_of(rank_) == root_node(call);
  }

  // Those that include this rank.
  std::vector<const Member*> members() const {
    std::vector<const Member*> all;
    for (const Member* member : {&all_, &node_, &rail_}) {
      if (member->backend) all.push_back(member);
    }
    return all;
  }

  // A backend runs at most two collectives for each chunk, or one for each node, for one of the
  // group's.
  Turn numbered(const Turn& turn, std::size_t which) const {
    const std::size_t most = std::max(nodes() + 2, 2 * kMostChunks);
    return {static_cast<std::uint32_t>(most * turn.sequence + which), turn.deadline};
  }
  // Where this rank takes no part in the backend: nothing.
  void in(const Member& member, const Call& call, const Turn& turn, std::size_t which) const {
    if (!member.backend) return;
    if (&member == &all_) return member.backend->run(call, numbered(turn, which));
    within(member, [&] { member.backend->run(call, numbered(turn, which)); });
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
    check_same_calls(turn.sequence, told);
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
    std::vector<std::size_t> shares(locals(), count / locals());
    for (std::size_t i = 0; i < count % locals(); ++i) ++shares[i];
    return shares;
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

  // The ranks of a node work on one chunk while the chunk before it is exchanged along the rails.
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
            chunks.size() > 1);
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
  // On a thread, if there is one; otherwise it has ended when this returns. What it uses must be
  // its own: after a failure no one waits for it.
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
        copy(&sorted[(to * nodes() + node) * part], &arrived[(node * locals() + to) * part], part);
    Call within = call;
    within.input = sorted.data();
    within.output = arrived.data();
    within.count = nodes() * call.count;
    in(node_, within, turn, 0);
    char* const output = static_cast<char*>(call.output);
    for (std::size_t from = 0; from < locals(); ++from)
      for (std::size_t node = 0; node < nodes(); ++node)
        copy(output + (node * locals() + from) * part, &arrived[(from * nodes() + node) * part],
             part);
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

  const NodeLayout layout_;
  const int rank_;
  const bool is_debug_;
  bool routes_ = false;  // messages, by node
  Member all_;
  Member node_;  // none: this rank is alone on its node
  Member rail_;  // the ranks with this local rank; none: this rank has no peer on some node
  Threads threads_;
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
