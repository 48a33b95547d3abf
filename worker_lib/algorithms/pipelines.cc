#include "worker_lib/algorithms/pipelines.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>

#include "worker_lib/math/reduce.h"

namespace drun::worker {
namespace {

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

}  // namespace

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

}  // namespace drun::worker
