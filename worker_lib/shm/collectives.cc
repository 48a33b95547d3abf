#include "worker_lib/shm/collectives.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>

#include "worker_lib/shm/algorithms.h"

namespace drun::worker::shm {
namespace {

using Kind = WorkerError::Kind;

// Copying shorter buffers is faster than a last meeting.
constexpr std::size_t kDirectBytes = 16 * 1024;

// Instead of a region: the offset is an address in the rank's own memory.
constexpr std::uint32_t kOwnMemory = ~std::uint32_t{0};

// The buffer of a call that other ranks could read in place.
struct Buffer {
  const void* data = nullptr;
  std::size_t bytes = 0;
};
Buffer buffer_of(const Call& call, int ranks) {
  const std::size_t bytes = call.count * size_bytes(call.type);
  if (call.is_uneven) return {};
  switch (call.operation) {
    case Operation::AllReduce:
    case Operation::Broadcast:
      return {.data = call.output, .bytes = bytes};
    case Operation::Reduce:
    case Operation::Gather:
    case Operation::AllGather:
      return {.data = call.input, .bytes = bytes};
    case Operation::ReduceScatter:
    case Operation::AllToAll:
      return {.data = call.input, .bytes = bytes * static_cast<std::size_t>(ranks)};
    default:
      return {};
  }
}

// The size of the longest part between two ranks, for a call whose sizes every rank knows.
std::size_t longest_part_bytes(const Call& call, int size) {
  std::size_t longest = call.count;
  const std::size_t* counts =
      call.operation == Operation::AllGather ? call.counts_out : call.counts_in;
  if (call.is_uneven) longest = *std::max_element(counts, counts + size);
  return longest * size_bytes(call.type);
}

}  // namespace

void Collectives::run(const Call& call, const Turn& turn) {
  if (call.operation == Operation::Barrier) {
    open(signature_of(call, rounds_.size()), std::nullopt, turn);
    return;
  }
  const bool is_told = has_private_counts(call);
  const std::size_t longest =
      is_told ? agree_on_sizes(call, turn) : longest_part_bytes(call, rounds_.size());
  const auto move = [&](Algorithm& algorithm) { perform(call, turn, algorithm, is_told); };
  with_algorithm(rounds_, call, turn.deadline, longest, std::ref(move));  // allocates nothing
}

void Collectives::perform(const Call& call, const Turn& turn, Algorithm& algorithm, bool is_open) {
  if (is_open) return move_in_turns(algorithm, 0, turn.deadline);
  const std::optional<Place> place = place_of(call, algorithm);
  if (!place && algorithm.turns() > 0) algorithm.put(0);
  switch (open(signature_of(call, rounds_.size()), place, turn)) {
    case Way::Direct:
      return move_directly(call, algorithm, turn.deadline);
    case Way::Read:
      return move_by_reading(call, algorithm, turn.deadline);
    case Way::InTurns:
      return move_in_turns(algorithm, 0, turn.deadline);
    case Way::WithData:
      if (algorithm.turns() > 0) algorithm.take(0);
      return move_in_turns(algorithm, 1, turn.deadline);
  }
}

void Collectives::move_in_turns(Algorithm& algorithm, std::size_t first, Deadline deadline) {
  for (std::size_t turn = first; turn < algorithm.turns(); ++turn) {
    algorithm.put(turn);
    rounds_.meet(deadline);
    algorithm.take(turn);
  }
}

void Collectives::move_directly(const Call& call, Algorithm& algorithm, Deadline deadline) {
  const std::size_t bytes = buffer_of(call, rounds_.size()).bytes;
  std::vector<std::byte*> buffers;
  for (int rank = 0; rank < rounds_.size(); ++rank) {
    const Station& station = rounds_.station_of(rank);
    const Place place{.region = station.region, .offset = station.offset};
    buffers.push_back(regions_.at(rank, place, bytes));
    if (buffers.back() != nullptr) continue;
    throw BackendFailure(Kind::System, rank,
                         "rank " + std::to_string(rank) + "'s buffer is outside its region");
  }
  algorithm.take_directly(buffers);
  rounds_.check_alarm();
  rounds_.meet(deadline);
}

void Collectives::move_by_reading(const Call& call, Algorithm& algorithm, Deadline deadline) {
  std::vector<std::uint64_t> addresses;
  addresses.reserve(static_cast<std::size_t>(rounds_.size()));
  for (int rank = 0; rank < rounds_.size(); ++rank) {
    addresses.push_back(rounds_.station_of(rank).offset);
  }
  const PeerBuffers buffers(peers_, rounds_.rank(), std::move(addresses),
                            buffer_of(call, rounds_.size()).bytes);
  if (!are_all_well(buffers.are_there(), deadline)) return move_in_turns(algorithm, 0, deadline);
  for (std::size_t step = 0; step < algorithm.reads(); ++step) {
    const bool is_well = algorithm.read(step, buffers);
    rounds_.check_alarm();
    if (are_all_well(is_well, deadline)) continue;
    // A rank that has ended since, with its memory, cannot reach this meeting.
    rounds_.meet(deadline);
    throw BackendFailure(Kind::System,
                         "another rank's buffer can be read at its ends, but not in between");
  }
}

bool Collectives::are_all_well(bool is_well, Deadline deadline) {
  rounds_.my_station().region = is_well ? kOwnMemory : 0;
  rounds_.meet(deadline);
  for (int rank = 0; rank < rounds_.size(); ++rank) {
    if (rounds_.station_of(rank).region != kOwnMemory) return false;
  }
  return true;
}

// What this rank has said it does not read again: it may be on its way out of this core still.
Collectives::Way Collectives::open(Signature signature, const std::optional<Place>& place,
                                   const Turn& turn) {
  const std::uint32_t region = place ? place->region : 0;
  Station& mine = rounds_.my_station();
  mine.signature = signature;
  mine.region = region;
  mine.offset = place ? place->offset : 0;
  rounds_.meet(turn.deadline);
  bool is_agreed = true;
  bool is_same_region = true;
  bool is_any_region = region != 0;
  for (int rank = 0; rank < rounds_.size(); ++rank) {
    if (rank == rounds_.rank()) continue;
    const Station& station = rounds_.station_of(rank);
    is_agreed = is_agreed && station.signature == signature;
    is_same_region = is_same_region && station.region == region;
    is_any_region = is_any_region || station.region != 0;
  }
  if (!is_agreed) check_calls(turn);
  if (!is_any_region) return Way::WithData;
  if (!is_same_region) return Way::InTurns;
  return region == kOwnMemory ? Way::Read : Way::Direct;
}

void Collectives::check_calls(const Turn& turn) const {
  std::vector<Signature> all;
  all.reserve(static_cast<std::size_t>(rounds_.size()));
  for (int rank = 0; rank < rounds_.size(); ++rank) {
    all.push_back(rounds_.station_of(rank).signature);
  }
  check_same_calls(turn.sequence, all);
}

std::size_t Collectives::agree_on_sizes(const Call& call, const Turn& turn) {
  const int size = rounds_.size();
  const PartCounts mine = part_counts(call, rounds_.rank(), size);
  const std::size_t bytes = mine.size() * sizeof mine[0];
  std::memcpy(rounds_.mine(), mine.data(), bytes);
  open(signature_of(call, size), std::nullopt, turn);
  // From other processes, and only compared as numbers.
  PartCounts all(mine.size() * static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    std::memcpy(&all[mine.size() * static_cast<std::size_t>(rank)], rounds_.of(rank), bytes);
  }
  check_part_counts(call, turn.sequence, all, size);
  return *std::max_element(all.begin(), all.end()) * size_bytes(call.type);
}

std::optional<Place> Collectives::place_of(const Call& call, const Algorithm& algorithm) const {
  const Buffer buffer = buffer_of(call, rounds_.size());
  if (buffer.bytes <= kDirectBytes) return {};
  if (auto place = regions_.find(buffer.data, buffer.bytes)) return place;
  if (algorithm.reads() == 0 || !peers_.seems_open()) return {};
  return Place{.region = kOwnMemory, .offset = reinterpret_cast<std::uintptr_t>(buffer.data)};
}

std::shared_ptr<void> Collectives::alloc(std::size_t size_bytes, const Turn& turn) {
  // No call has this signature, so that it differs from all of them.
  const Signature signature{.what = ~std::uint64_t{0}};
  const std::uint64_t wanted = size_bytes;
  std::memcpy(rounds_.mine(), &wanted, sizeof wanted);
  open(signature, std::nullopt, turn);
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(rounds_.size()));
  for (int rank = 0; rank < rounds_.size(); ++rank) {
    std::memcpy(&sizes[static_cast<std::size_t>(rank)], rounds_.of(rank), sizeof wanted);
  }
  if (rounds_.rank() == 0) regions_.grow(sizes);
  rounds_.meet(turn.deadline);
  return regions_.map(sizes);
}

}  // namespace drun::worker::shm
