// core. all_reduce and reduce.
//
// Short:   every rank puts all of it; the ranks that need the result reduce all. One meeting.
// Long:    each rank reduces its share of a stationful, from what the others have put, and puts the
//          result; a second meeting, and the ranks that need it copy the shares together.
// Direct:  each rank reduces its share from all buffers into all of them.
// Read:    each rank reads the others' part of its share, a block at a time, and reduces it; then
//          the others' shares.
#pragma once

#include "worker_lib/shm/algorithm.h"
#include "worker_lib/shm/reduce.h"

namespace drun::worker::shm {

class Sum final : public Algorithm {
 public:
  // The deadline of the second meeting.
  Sum(Rounds& rounds, const Call& call, Deadline deadline);

  std::size_t turns() const override;
  void put(std::size_t turn) override;
  void take(std::size_t turn) override;
  void take_directly(const std::vector<std::byte*>& buffers) override;
  std::size_t reads() const override;
  bool read(std::size_t step, const PeerBuffers& peers) override;

 private:
  // Bytes of a whole, or of this turn's part of it.
  struct Span {
    std::size_t begin = 0;
    std::size_t bytes = 0;
  };
  Span turn_span(std::size_t turn) const;
  Span share_of(std::size_t rank, std::size_t bytes) const;
  void reduce_whole(const Span& now);
  void reduce_share(const Span& now);
  void collect_shares(const Span& now);
  bool read_share(const PeerBuffers& peers);
  bool read_results(const PeerBuffers& peers);

  Rounds& rounds_;
  const std::size_t own_;
  const std::size_t ranks_;
  const std::size_t bytes_;
  const bool is_short_;
  const bool is_for_all_;
  const Deadline deadline_;
  const Reduction reduction_;
  const std::byte* input_;
  std::byte* output_;  // null: another rank's
  Sources sources_;
};

}  // namespace drun::worker::shm
