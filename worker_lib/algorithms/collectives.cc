#include "worker_lib/algorithms/collectives.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "worker_lib/algorithms/exchange.h"
#include "worker_lib/base/signature.h"
#include "worker_lib/math/reduce.h"

namespace drun::worker {
namespace {

using Handle = Exchange::Handle;
using Handles = std::vector<Handle>;

// --- Collectives of large data, which is divided into pieces that follow each other through a
// ring or chain of all ranks. Every connection is busy, and each piece is reduced while others are
// being sent. Each rank sends about as many bytes as the data has, independent of the number of
// ranks.
//
// Sizes:   at least 2 ranks; sizes in bytes are multiples of the element size.
// Result:  every element is reduced by one rank, in an order that depends on size, count and type,
//          and then passed on, so all ranks have the same bits. Avg only adds; the caller divides.
// Source:  the ring is Patarasuk and Yuan's (2009), as in Gloo and NCCL. It is divided into blocks,
//          so that received data that must not overwrite the input fits into a few pieces.

// Pieces that are on their way to this rank, or from it, at a time.
constexpr std::size_t kWindow = 2;
// The number of pieces that are buffered where data cannot arrive in place.
constexpr std::size_t kMostLag = 4;
constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kPieceAlignment = 64;
// How many pieces per rank a chain's data is cut into at least, if they are not smaller than that:
// until the last rank gets its first one, it has nothing to do.
constexpr std::size_t kChainPieces = 4;
constexpr std::size_t kLeastChainPieceBytes = 64 * 1024;

// Equal ones, at least `least_count`.
std::size_t piece_bytes_for(const Exchange& mesh, std::size_t total_bytes,
                            std::size_t least_count = 1) {
  const std::size_t count = std::max(least_count, total_bytes / mesh.piece_bytes(total_bytes) + 1);
  return (total_bytes / count / kPieceAlignment + 1) * kPieceAlignment;
}

// Memory for `count` pieces that arrive where they must not stay.
class Slots {
 public:
  Slots(std::size_t count, std::size_t piece_bytes)
      : count_(count),
        piece_bytes_(piece_bytes),
        bytes_(std::make_unique_for_overwrite<char[]>(count * piece_bytes)) {}
  char* at(std::size_t i) { return &bytes_[i % count_ * piece_bytes_]; }

 private:
  std::size_t count_;
  std::size_t piece_bytes_;
  std::unique_ptr<char[]> bytes_;
};

struct Piece {
  std::size_t step = 0;
  std::size_t offset = 0;       // in the buffer of all parts
  std::size_t part_offset = 0;  // in the part
  std::size_t size_bytes = 0;   // 0: the part has ended before
};

// The order in which pieces pass a rank: a block is a few pieces of each part, and goes all its
// steps before the next one does. In step s a rank passes on what it got in step s - 1, lag()
// pieces before; the first step's are its own.
class RingOrder {
 public:
  // In step 0 rank r sends part r - shift. A block is `most_lag` pieces wide, or all there are.
  RingOrder(const Exchange& mesh, const Parts& parts, std::size_t steps, int shift,
            std::size_t most_lag)
      : mesh_(mesh),
        parts_(parts),
        steps_(steps),
        shift_(shift),
        piece_bytes_(piece_bytes_for(mesh, parts.largest_bytes())),
        lag_(std::clamp(rounded_up(parts.largest_bytes(), piece_bytes_), kWindow, most_lag)) {}

  std::size_t piece_bytes() const { return piece_bytes_; }
  std::size_t lag() const { return lag_; }
  std::size_t length() const {
    return rounded_up(parts_.largest_bytes(), lag_ * piece_bytes_) * steps_ * lag_;
  }
  Piece sent(std::size_t i) const { return piece(i, 0); }
  Piece received(std::size_t i) const { return piece(i, 1); }

 private:
  static std::size_t rounded_up(std::size_t bytes, std::size_t by) { return (bytes + by - 1) / by; }

  Piece piece(std::size_t i, int further) const {
    Piece piece;
    piece.step = i / lag_ % steps_;
    const std::size_t block = i / (lag_ * steps_);
    const int part =
        mesh_.rank_after(mesh_.rank(), -(shift_ + static_cast<int>(piece.step) + further));
    const std::size_t part_bytes = parts_.size_bytes(part);
    piece.part_offset = std::min(part_bytes, (block * lag_ + i % lag_) * piece_bytes_);
    piece.offset = parts_.offset(part) + piece.part_offset;
    piece.size_bytes = std::min(piece_bytes_, part_bytes - piece.part_offset);
    return piece;
  }

  const Exchange& mesh_;
  const Parts& parts_;
  std::size_t steps_;
  int shift_;
  std::size_t piece_bytes_;
  std::size_t lag_;
};

// Passes all pieces from the rank before to the one after.
// source:   (i, piece) -> where the i-th that is sent lies; its own in step 0, else what arrived
//           lag() before
// inbox:    (i, piece) -> where the i-th is to arrive; what the (i - lag() - kWindow)-th needed has
//           been sent by then
// arrived:  (i, piece): it has
template <typename Source, typename Inbox, typename Arrived>
void run_ring(Exchange& mesh, const RingOrder& order, Source source, Inbox inbox, Arrived arrived) {
  const int before = mesh.rank_after(mesh.rank(), -1);
  const int after = mesh.rank_after(mesh.rank(), 1);
  const std::size_t length = order.length();
  std::array<Exchange::Handle, kWindow> arriving{};
  std::array<Exchange::Handle, kWindow> leaving{};
  const auto receive = [&](std::size_t i) {
    const Piece piece = order.received(i);
    arriving[i % kWindow] = mesh.recv(before, inbox(i, piece), piece.size_bytes);
  };
  const auto send = [&](std::size_t i) {
    const Piece piece = order.sent(i);
    leaving[i % kWindow] = mesh.send(after, source(i, piece), piece.size_bytes);
  };
  for (std::size_t i = 0; i < std::min(kWindow, length); ++i) {
    receive(i);
    send(i);
  }
  for (std::size_t i = 0; i < length; ++i) {
    mesh.wait(arriving[i % kWindow]);
    arrived(i, order.received(i));
    mesh.wait(leaving[i % kWindow]);
    if (i + kWindow >= length) continue;
    receive(i + kWindow);
    send(i + kWindow);
  }
}

// Passes all pieces from the rank before to the one after.
struct Chain {
  int before = 0;
  int after = 0;
  bool is_first = false;  // there is no rank before
  bool is_last = false;   // there is no rank after
  std::size_t total_bytes = 0;

  std::size_t piece_bytes = 0;
  static std::size_t piece_bytes_of(const Exchange& mesh, std::size_t total_bytes) {
    const std::size_t least_count = kChainPieces * static_cast<std::size_t>(mesh.size());
    return std::max(kLeastChainPieceBytes, piece_bytes_for(mesh, total_bytes, least_count));
  }
  std::size_t length() const { return (total_bytes + piece_bytes - 1) / piece_bytes; }
  Piece piece(std::size_t i) const {
    Piece piece;
    piece.offset = i * piece_bytes;
    piece.size_bytes = std::min(piece_bytes, total_bytes - piece.offset);
    return piece;
  }
};

template <typename Inbox, typename Arrived>
void run_chain(Exchange& mesh, const Chain& chain, Inbox inbox, Arrived arrived) {
  const std::size_t length = chain.length();
  std::array<Exchange::Handle, kWindow> arriving{};
  std::array<Exchange::Handle, kWindow> leaving{};
  leaving.fill(Exchange::kNothing);
  const auto receive = [&](std::size_t i) {
    if (chain.is_first) return;
    const Piece piece = chain.piece(i);
    arriving[i % kWindow] = mesh.recv(chain.before, inbox(i, piece), piece.size_bytes);
  };
  for (std::size_t i = 0; i < std::min(kWindow, length); ++i) receive(i);
  for (std::size_t i = 0; i < length; ++i) {
    if (!chain.is_first) mesh.wait(arriving[i % kWindow]);
    const Piece piece = chain.piece(i);
    const char* passed_on = arrived(i, piece);
    mesh.wait(leaving[i % kWindow]);
    leaving[i % kWindow] = Exchange::kNothing;
    if (!chain.is_last) leaving[i % kWindow] = mesh.send(chain.after, passed_on, piece.size_bytes);
    if (i + kWindow < length) receive(i + kWindow);
  }
  for (const Exchange::Handle handle : leaving) mesh.wait(handle);
}

void ring_all_reduce(Exchange& mesh, const Elements& data, ReduceOp op) {
  const std::size_t element = size_bytes(data.type);
  const Parts parts = Parts::shares(data.count, element, mesh.size());
  const auto reducing_steps = static_cast<std::size_t>(mesh.size() - 1);
  const RingOrder order(mesh, parts, 2 * reducing_steps, 0, kNoLimit);
  const ReduceFunction reduce = reduce_function(data.type, op);
  char* const all = static_cast<char*>(data.data);
  Slots slots(kWindow, order.piece_bytes());
  run_ring(
      mesh, order, [&](std::size_t, const Piece& piece) { return all + piece.offset; },
      [&](std::size_t i, const Piece& piece) {
        return piece.step < reducing_steps ? slots.at(i) : all + piece.offset;
      },
      [&](std::size_t i, const Piece& piece) {
        char* const here = all + piece.offset;
        if (piece.step < reducing_steps) {
          reduce(here, here, slots.at(i), piece.size_bytes / element);
        }
      });
}

// `input` has parts.total_bytes(), `output` has the size of this rank's part.
void ring_reduce_scatter(Exchange& mesh, const void* input, void* output, const Parts& parts,
                         DataType type, ReduceOp op) {
  const std::size_t element = size_bytes(type);
  const auto steps = static_cast<std::size_t>(mesh.size() - 1);
  const RingOrder order(mesh, parts, steps, 1, kMostLag);
  const ReduceFunction reduce = reduce_function(type, op);
  const char* const all = static_cast<const char*>(input);
  Slots slots(order.lag() + kWindow, order.piece_bytes());
  run_ring(
      mesh, order,
      [&](std::size_t i, const Piece& piece) -> const char* {
        return piece.step == 0 ? all + piece.offset : slots.at(i - order.lag());
      },
      [&](std::size_t i, const Piece&) { return slots.at(i); },
      [&](std::size_t i, const Piece& piece) {
        const bool is_mine = piece.step + 1 == steps;
        char* const to = is_mine ? static_cast<char*>(output) + piece.part_offset : slots.at(i);
        reduce(to, slots.at(i), all + piece.offset, piece.size_bytes / element);
      });
}

// This rank's part is in `output` already.
void ring_all_gather(Exchange& mesh, void* output, const Parts& parts) {
  const RingOrder order(mesh, parts, static_cast<std::size_t>(mesh.size() - 1), 0, kNoLimit);
  char* const all = static_cast<char*>(output);
  const auto place = [all](std::size_t, const Piece& piece) { return all + piece.offset; };
  run_ring(mesh, order, place, place, [](std::size_t, const Piece&) {});
}

void chain_broadcast(Exchange& mesh, void* data, std::size_t size_bytes, int root) {
  const int after = mesh.rank_after(mesh.rank(), 1);
  const Chain chain{.before = mesh.rank_after(mesh.rank(), -1),
                    .after = after,
                    .is_first = mesh.rank() == root,
                    .is_last = after == root,
                    .total_bytes = size_bytes,
                    .piece_bytes = Chain::piece_bytes_of(mesh, size_bytes)};
  const auto place = [data](std::size_t, const Piece& piece) {
    return static_cast<char*>(data) + piece.offset;
  };
  run_chain(mesh, chain, place, place);
}

// `output` is used on the root only, and may be equal to `input`. Other ranks do not change
// `input`.
void chain_reduce(Exchange& mesh, const ConstElements& input, void* output, ReduceOp op, int root) {
  const std::size_t element = size_bytes(input.type);
  const int before = mesh.rank_after(mesh.rank(), 1);
  const Chain chain{.before = before,
                    .after = mesh.rank_after(mesh.rank(), -1),
                    .is_first = before == root,
                    .is_last = mesh.rank() == root,
                    .total_bytes = input.count * element,
                    .piece_bytes = Chain::piece_bytes_of(mesh, input.count * element)};
  const ReduceFunction reduce = reduce_function(input.type, op);
  const char* const mine = static_cast<const char*>(input.data);
  Slots slots(2 * kWindow, chain.piece_bytes);
  run_chain(
      mesh, chain, [&](std::size_t i, const Piece&) { return slots.at(i); },
      [&](std::size_t i, const Piece& piece) -> const char* {
        if (chain.is_first) return mine + piece.offset;
        char* const to =
            mesh.rank() == root ? static_cast<char*>(output) + piece.offset : slots.at(i);
        reduce(to, slots.at(i), mine + piece.offset, piece.size_bytes / element);
        return to;
      });
}

// --- Collectives of small data, and the choice

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
