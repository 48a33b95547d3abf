// core. Collectives that move parts between ranks: broadcast, gather, all_gather, scatter,
// all_to_all, and reduce_scatter, whose parts are reduced by their receivers.
//
// Lanes:   data for all ranks uses the whole station. If each rank gets a different part, the
//          station is divided into one lane per rank.
#pragma once

#include "worker_lib/shm/algorithm.h"
#include "worker_lib/shm/reduce.h"

namespace drun::worker::shm {

class Exchange final : public Algorithm {
 public:
  // `longest_bytes`: size of the longest part between any two ranks.
  Exchange(Rounds& rounds, const Call& call, std::size_t longest_bytes);

  std::size_t turns() const override;
  void put(std::size_t turn) override;
  void take(std::size_t turn) override;
  // Requires parts of the same size.
  void take_directly(const std::vector<std::byte*>& buffers) override;

 private:
  template <typename Byte>
  struct Part {
    Byte* at = nullptr;
    std::size_t bytes = 0;
  };
  using Given = std::vector<Part<const std::byte>>;
  using Taken = std::vector<Part<std::byte>>;

  void give(const Call& call);
  void take_from(const Call& call);
  template <typename Byte>
  std::vector<Part<Byte>> split(Byte* data, const std::size_t* counts, std::size_t count) const;
  // The bytes of a part that a turn moves.
  std::size_t bytes_now(std::size_t part_bytes, std::size_t turn) const;
  void keep_own() const;
  void reduce(std::size_t turn);

  Rounds& rounds_;
  const std::size_t own_;
  const std::size_t ranks_;
  const std::size_t element_bytes_;
  const bool has_lanes_;
  const bool is_reduced_;
  const std::size_t longest_bytes_;
  const std::size_t lane_bytes_;
  const Reduction reduction_;
  Given given_;  // one for all ranks, or one per rank
  Taken taken_;  // from each rank; the same one for all in a reduction
  Sources sources_;
};

// The size of the longest part between two ranks, for a call whose sizes every rank knows.
std::size_t longest_part_bytes(const Call& call, int size);

}  // namespace drun::worker::shm
