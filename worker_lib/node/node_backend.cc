#include "worker_lib/node/node_backend.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "worker_lib/base/cores.h"
#include "worker_lib/mesh/matcher.h"
#include "worker_lib/node/node_collectives.h"
#include "worker_lib/node/node_layout.h"

namespace drun::worker {
namespace {

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

class NodeBackend final : public Backend {
 public:
  NodeBackend(const BackendContext& context, const BackendFactory& local,
              const BackendFactory& across, std::optional<bool> overlaps)
      : layout_(context.node_of), rank_(context.rank) {
    std::vector<int> ranks(static_cast<std::size_t>(context.size));
    std::iota(ranks.begin(), ranks.end(), 0);
    members_.all = connect_member(context, std::move(ranks), "all", "all ranks", across);
    BackendContext of_some = context;
    of_some.is_lookout = false;  // the one of all ranks sees them all
    if (neighbors().size() > 1) {
      const std::string name = "node" + std::to_string(layout_.node_of(rank_));
      members_.node = connect_member(of_some, neighbors(), name, "the ranks of one node", local);
    }
    if (layout_.local_rank_of(rank_) == 0 || layout_.is_uniform()) {
      const int on_node = layout_.local_rank_of(rank_);
      members_.rail = connect_member(
          of_some, layout_.rail(on_node), "rail" + std::to_string(on_node),
          on_node == 0 ? "the nodes' leaders" : "the ranks with one local rank", across);
    }
    collectives_ = make_node_collectives(
        layout_, members_, rank_,
        {.is_debug = context.is_debug, .overlaps = overlaps.value_or(has_cores_for_overlap())});
    routes_ = dynamic_cast<SharesReceives*>(members_.node.backend.get()) != nullptr &&
              dynamic_cast<SharesReceives*>(members_.all.backend.get()) != nullptr;
  }

  // The thread of the collectives may still be in the one that has failed.
  ~NodeBackend() override {
    if (has_failed_) abort();
  }
  NodeBackend(const NodeBackend&) = delete;
  NodeBackend& operator=(const NodeBackend&) = delete;

  std::string name() const override {
    const std::string across = members_.all.backend->name();
    return members_.node.backend ? members_.node.backend->name() + "+" + across : across;
  }
  std::string refusal(const Call& call) const override {
    return members_.all.backend->refusal(call);
  }

  void run(const Call& call, const Turn& turn) override {
    has_failed_ = true;
    collectives_->run(call, turn);
    has_failed_ = false;
  }

  std::unique_ptr<Transfer> start_send(const ConstElements& data, int to, int tag) override {
    if (!is_local(to)) return members_.all.backend->start_send(data, to, tag);
    return start_local(
        [&] { return members_.node.backend->start_send(data, layout_.local_rank_of(to), tag); });
  }
  std::unique_ptr<Transfer> start_recv(const Elements& data, std::optional<int> from,
                                       int tag) override {
    if (!from && routes_)
      return std::make_unique<ReceiveFromAny>(members_.node, members_.all, data, tag);
    if (!from || !is_local(*from)) return members_.all.backend->start_recv(data, from, tag);
    return start_local(
        [&] { return members_.node.backend->start_recv(data, layout_.local_rank_of(*from), tag); });
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
  bool tell_lost(int rank) noexcept override {
    // The others have connections, and lose them, too.
    if (!members_.all.backend->tell_lost(rank)) return false;
    for (const Member* member : members()) {
      const auto found = std::find(member->ranks.begin(), member->ranks.end(), rank);
      if (found == member->ranks.end()) continue;
      member->backend->tell_lost(static_cast<int>(found - member->ranks.begin()));
    }
    return true;
  }
  std::shared_ptr<void> alloc_shared(std::size_t size_bytes, const Turn& turn) override {
    if (!members_.node.backend) return nullptr;
    return members_.node.backend->alloc_shared(size_bytes, numbered(layout_, turn, 0));
  }

 private:
  // On each rank by itself: the data is divided in the same way without overlap.
  bool has_cores_for_overlap() const {
    return usable_cores(online_cores()) >= 2 * static_cast<int>(neighbors().size());
  }
  const std::vector<int>& neighbors() const { return layout_.ranks_of(layout_.node_of(rank_)); }
  // Whether messages to or from that rank use the `local` backend.
  bool is_local(int rank) const {
    return routes_ && layout_.node_of(rank) == layout_.node_of(rank_);
  }
  template <typename Start>
  std::unique_ptr<Transfer> start_local(Start&& start) const {
    std::unique_ptr<Transfer> transfer = within(members_.node, start);
    if (!transfer) return nullptr;
    return std::make_unique<LocalMessage>(members_.node, std::move(transfer));
  }
  // Those that include this rank.
  std::vector<const Member*> members() const {
    std::vector<const Member*> all;
    for (const Member* member : {&members_.all, &members_.node, &members_.rail}) {
      if (member->backend) all.push_back(member);
    }
    return all;
  }

  const NodeLayout layout_;
  const int rank_;
  bool routes_ = false;      // messages, by node
  bool has_failed_ = false;  // the last collective
  NodeMembers members_;
  std::unique_ptr<NodeCollectives> collectives_;
};

}  // namespace

std::unique_ptr<Backend> connect_by_node(const BackendContext& context, const BackendFactory& local,
                                         const BackendFactory& across,
                                         std::optional<bool> overlaps) {
  const NodeLayout layout(context.node_of);
  if (layout.nodes() <= 1) return local(context);
  if (layout.nodes() == layout.size()) return across(context);
  return std::make_unique<NodeBackend>(context, local, across, overlaps);
}

}  // namespace drun::worker
