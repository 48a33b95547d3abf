#include "worker_lib/algorithms/collectives.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <vector>

#include "worker_lib/algorithms/exchange.h"
#include "worker_lib/algorithms/pipelines.h"
#include "worker_lib/base/signature.h"
#include "worker_lib/math/reduce.h"

namespace drun::worker {
namespace {

using Handle = Exchange::Handle;
using Handles = std::vector<Handle>;

// Up to here (all ranks' data together) fewer rounds count for more than busy connections: measured
// with Gloo over loopback.
constexpr std::size_t kSmallBytes = 256 * 1024;

void wait_all(Exchange& mesh, const Handles& handles) {
  for (const Handle handle : handles) mesh.wait(handle);
}

void copy(void* to, const void* from, std::size_t size_bytes) {
  if (size_bytes > 0 && to != from) std::memcpy(to, from, size_bytes);
}

char* at(void* data, std::size_t offset) { return static_cast<char*>(data) + offset; }

// Distances from this rank.
struct Partners {
  int to = 0;
  int from = 0;
};
// Sends and receives as many bytes at the same time.
void exchange(Exchange& mesh, Partners partners, const void* out, void* in,
              std::size_t size_bytes) {
  const Handle arriving = mesh.recv(mesh.rank_after(mesh.rank(), partners.from), in, size_bytes);
  const Handle leaving = mesh.send(mesh.rank_after(mesh.rank(), partners.to), out, size_bytes);
  mesh.wait(arriving);
  mesh.wait(leaving);
}

// In round k each rank notifies the rank 2^k after it; in the end every rank depends on all others.
void barrier(Exchange& mesh) {
  char told = 0;
  char heard = 0;
  for (int distance = 1; distance < mesh.size(); distance *= 2) {
    exchange(mesh, {.to = distance, .from = -distance}, &told, &heard, sizeof heard);
  }
}

// The tree with `root` as its rank 0.
TreePlace place_under(const Exchange& mesh, int root) {
  TreePlace place = place_in_tree(mesh.rank_after(mesh.rank(), -root), mesh.size());
  if (place.parent) place.parent = mesh.rank_after(*place.parent, root);
  for (int& child : place.children) child = mesh.rank_after(child, root);
  return place;
}

// The largest subtrees first: they have the longest way.
void send_down(Exchange& mesh, const TreePlace& place, const void* data, std::size_t size_bytes) {
  Handles sent;
  for (auto child = place.children.rbegin(); child != place.children.rend(); ++child) {
    sent.push_back(mesh.send(*child, data, size_bytes));
  }
  wait_all(mesh, sent);
}

void tree_broadcast(Exchange& mesh, void* data, std::size_t size_bytes, int root) {
  const TreePlace place = place_under(mesh, root);
  if (place.parent) mesh.wait(mesh.recv(*place.parent, data, size_bytes));
  send_down(mesh, place, data, size_bytes);
}

// What this rank and those below it have together, always added in the same order. On the root it
// lands in `output`; other ranks with children need memory for it, leaves send their input.
void tree_reduce(Exchange& mesh, const TreePlace& place, const ConstElements& input, void* output,
                 ReduceOp op) {
  const std::size_t bytes = input.count * size_bytes(input.type);
  const ReduceFunction reduce = reduce_function(input.type, op);
  const std::size_t children = place.children.size();
  std::vector<char> inboxes(children * bytes);
  std::vector<char> sum(output == nullptr && children > 0 ? bytes : 0);
  if (output == nullptr) output = sum.data();
  Handles arriving;
  for (std::size_t i = 0; i < children; ++i) {
    arriving.push_back(mesh.recv(place.children[i], &inboxes[i * bytes], bytes));
  }
  const void* so_far = input.data;
  for (std::size_t i = 0; i < children; ++i) {
    mesh.wait(arriving[i]);
    reduce(output, so_far, &inboxes[i * bytes], input.count);
    so_far = output;
  }
  if (place.parent) mesh.wait(mesh.send(*place.parent, so_far, bytes));
}

void broadcast(Exchange& mesh, const Call& call) {
  const std::size_t bytes = call.count * size_bytes(call.type);
  // Of two ranks, one sends all at once: pieces would only cost handshakes.
  if (bytes <= kSmallBytes || mesh.size() == 2) {
    tree_broadcast(mesh, call.output, bytes, call.root);
  } else {
    chain_broadcast(mesh, call.output, bytes, call.root);
  }
}

// Recursive doubling: in round k the ranks 2^k apart exchange their sums, so that log2(size) rounds
// suffice. Ranks beyond the largest power of two add theirs to a neighbor's first, and get the
// result from it. Both ranks of a pair add in the order of their ranks, and get the same bits.
void doubling_all_reduce(Exchange& mesh, const Elements& data, ReduceOp op) {
  const std::size_t bytes = data.count * size_bytes(data.type);
  const ReduceFunction reduce = reduce_function(data.type, op);
  const auto inbox = std::make_unique_for_overwrite<char[]>(bytes);
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(mesh.size())));
  const int extra = mesh.size() - power;  // pairs of ranks that act as one
  const int me = mesh.rank();
  const bool is_paired = me < 2 * extra;
  if (is_paired && me % 2 == 0) {
    mesh.wait(mesh.send(me + 1, data.data, bytes));
    return mesh.wait(mesh.recv(me + 1, data.data, bytes));
  }
  if (is_paired) {
    mesh.wait(mesh.recv(me - 1, inbox.get(), bytes));
    reduce(data.data, inbox.get(), data.data, data.count);
  }
  const int index = is_paired ? me / 2 : me - extra;
  for (int bit = 1; bit < power; bit *= 2) {
    const int other = index ^ bit;
    const int partner = other < extra ? 2 * other + 1 : other + extra;
    const int distance = partner - me;
    exchange(mesh, {.to = distance, .from = distance}, data.data, inbox.get(), bytes);
    if (partner < me) {
      reduce(data.data, inbox.get(), data.data, data.count);
    } else {
      reduce(data.data, data.data, inbox.get(), data.count);
    }
  }
  if (is_paired) mesh.wait(mesh.send(me - 1, data.data, bytes));
}

// Of all_reduce and reduce.
void finish_average(const Call& call, std::size_t count, int size) {
  if (call.op == ReduceOp::Avg) divide(call.output, call.type, count, size);
}

void all_reduce(Exchange& mesh, const Call& call) {
  const Elements data(call.output, call.count, call.type);
  const std::size_t bytes = data.count * size_bytes(data.type);
  if (bytes <= kSmallBytes) {
    doubling_all_reduce(mesh, data, call.op);
  } else {
    ring_all_reduce(mesh, data, call.op);
  }
  finish_average(call, call.count, mesh.size());
}

void reduce(Exchange& mesh, const Call& call) {
  const ConstElements input(call.input, call.count, call.type);
  const bool is_root = mesh.rank() == call.root;
  void* const output = is_root ? call.output : nullptr;
  if (call.count * size_bytes(call.type) <= kSmallBytes) {
    tree_reduce(mesh, place_under(mesh, call.root), input, output, call.op);
  } else {
    chain_reduce(mesh, input, output, call.op, call.root);
  }
  if (is_root) finish_average(call, call.count, mesh.size());
}

Parts parts_of(const Exchange& mesh, const Call& call, const std::size_t* counts) {
  return Parts(counts, call.count, size_bytes(call.type), mesh.size());
}

// Starts to send to and receive from all other ranks at once; each rank begins with a different
// one. `received` and `sent` return the part that is exchanged with a rank.
template <typename Received, typename Sent>
Handles start_all(Exchange& mesh, Received received, Sent sent) {
  Handles moving;
  for (int step = 1; step < mesh.size(); ++step) {
    const int from = mesh.rank_after(mesh.rank(), -step);
    const auto part = received(from);
    moving.push_back(mesh.recv(from, part.data, part.size_bytes));
  }
  for (int step = 1; step < mesh.size(); ++step) {
    const int to = mesh.rank_after(mesh.rank(), step);
    const auto part = sent(to);
    moving.push_back(mesh.send(to, part.data, part.size_bytes));
  }
  return moving;
}

// gather, scatter and all_to_all.
void move_parts(Exchange& mesh, const Call& call) {
  const int me = mesh.rank();
  const PartMoves parts(call, me, mesh.size());
  const Handles moving = start_all(
      mesh, [&](int from) { return parts.received_from(from); },
      [&](int to) { return parts.sent_to(to); });
  const auto in = parts.sent_to(me);
  const auto out = parts.received_from(me);
  copy(out.data, in.data, std::min(in.size_bytes, out.size_bytes));
  wait_all(mesh, moving);
}

// Bruck, Ho, Kipnis, Upfal, Weathersby (1997): in round k a rank gets from the one 2^k further on
// what that one has, which lies in the order rank, rank + 1, ... until the end.
void bruck_all_gather(Exchange& mesh, const void* input, void* output, std::size_t part_bytes) {
  const auto size = static_cast<std::size_t>(mesh.size());
  std::vector<char> all(size * part_bytes);
  copy(all.data(), input, part_bytes);
  for (std::size_t have = 1; have < size; have *= 2) {
    const std::size_t bytes = std::min(have, size - have) * part_bytes;
    const int distance = static_cast<int>(have);
    exchange(mesh, {.to = -distance, .from = distance}, all.data(), &all[have * part_bytes], bytes);
  }
  const std::size_t before = static_cast<std::size_t>(mesh.rank()) * part_bytes;
  copy(at(output, before), all.data(), all.size() - before);
  copy(output, all.data() + (all.size() - before), before);
}

void all_gather(Exchange& mesh, const Call& call) {
  const Parts parts = parts_of(mesh, call, call.counts_out);
  if (!call.is_uneven && parts.total_bytes() > 0 && parts.total_bytes() <= kSmallBytes) {
    return bruck_all_gather(mesh, call.input, call.output, parts.size_bytes(0));
  }
  const int me = mesh.rank();
  copy(at(call.output, parts.offset(me)), call.input, parts.size_bytes(me));
  ring_all_gather(mesh, call.output, parts);
}

// Every rank sends each part to its owner, which adds them in rank order.
void direct_reduce_scatter(Exchange& mesh, const Call& call) {
  const PartMoves parts(call, mesh.rank(), mesh.size());
  const auto own = parts.sent_to(mesh.rank());
  std::vector<std::byte> inboxes(static_cast<std::size_t>(mesh.size()) * own.size_bytes);
  const auto inbox = [&](int rank) {
    return PartMoves::Part<std::byte>{
        inboxes.data() + static_cast<std::size_t>(rank) * own.size_bytes, own.size_bytes};
  };
  const Handles moving = start_all(mesh, inbox, [&](int to) { return parts.sent_to(to); });
  copy(inbox(mesh.rank()).data, own.data, own.size_bytes);
  wait_all(mesh, moving);
  const ReduceFunction reduce = reduce_function(call.type, call.op);
  const void* so_far = inbox(0).data;
  for (int rank = 1; rank < mesh.size(); ++rank) {
    reduce(call.output, so_far, inbox(rank).data, own.size_bytes / size_bytes(call.type));
    so_far = call.output;
  }
}

void reduce_scatter(Exchange& mesh, const Call& call) {
  const Parts parts = parts_of(mesh, call, call.counts_in);
  if (parts.total_bytes() <= kSmallBytes) {
    direct_reduce_scatter(mesh, call);
  } else {
    ring_reduce_scatter(mesh, call.input, call.output, parts, call.type, call.op);
  }
  finish_average(call, parts.size_bytes(mesh.rank()) / size_bytes(call.type), mesh.size());
}

}  // namespace

void run_alone(const Call& call) {
  std::size_t count = call.count;
  if (call.is_uneven && call.operation == Operation::AllToAll) count = call.counts_in[0];
  if (call.output != nullptr) copy(call.output, call.input, count * size_bytes(call.type));
}

void run_collective(Exchange& mesh, const Call& call) {
  if (mesh.size() == 1) return run_alone(call);
  if (call.operation != Operation::Barrier && !call.is_uneven && call.count == 0) return;
  switch (call.operation) {
    case Operation::Barrier:
      return barrier(mesh);
    case Operation::Broadcast:
      return broadcast(mesh, call);
    case Operation::AllReduce:
      return all_reduce(mesh, call);
    case Operation::Reduce:
      return reduce(mesh, call);
    case Operation::Gather:
    case Operation::Scatter:
    case Operation::AllToAll:
      return move_parts(mesh, call);
    case Operation::AllGather:
      return all_gather(mesh, call);
    case Operation::ReduceScatter:
      return reduce_scatter(mesh, call);
  }
}

// --- Comparison of calls

namespace {

// What ranks tell each other.
struct Note {
  Signature call{};
  char is_agreed = 1;  // as far as the sender has heard
};

// In round k each rank notifies the rank 2^k after it; in the end a difference on any rank has
// reached all others.
bool is_agreed_by_all(Exchange& mesh, const Signature& call) {
  bool is_agreed = true;
  for (int distance = 1; distance < mesh.size(); distance *= 2) {
    const Note told{call, static_cast<char>(is_agreed)};
    Note heard;
    exchange(mesh, {.to = distance, .from = -distance}, &told, &heard, sizeof heard);
    is_agreed = is_agreed && heard.is_agreed != 0 && heard.call == call;
  }
  return is_agreed;
}

// Each rank's `mine`, in rank order.
template <typename T>
std::vector<T> all_of(Exchange& mesh, const std::vector<T>& mine) {
  std::vector<T> all(mine.size() * static_cast<std::size_t>(mesh.size()));
  run_collective(mesh, {.operation = Operation::AllGather,
                        .input = mine.data(),
                        .output = all.data(),
                        .count = mine.size() * sizeof(T)});
  return all;
}

}  // namespace

void agree(Exchange& mesh, const Call& call, std::uint32_t sequence) {
  const Signature mine = signature_of(call, mesh.size());
  if (is_agreed_by_all(mesh, mine)) return;
  check_same_calls(sequence, all_of<Signature>(mesh, {mine}));
}

void compare_counts(Exchange& mesh, const Call& call, std::uint32_t sequence) {
  if (!has_private_counts(call)) return;
  const PartCounts mine = part_counts(call, mesh.rank(), mesh.size());
  check_part_counts(call, sequence, all_of(mesh, mine), mesh.size());
}

}  // namespace drun::worker
