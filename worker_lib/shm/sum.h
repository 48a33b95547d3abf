// core. all_reduce and reduce.
//
// Short:   every rank puts its whole input; the ranks that need the result reduce all inputs. One
//          meeting.
// Long:    per turn, each rank reduces its share from the data that the others have put, and puts
//          the result. After a second meeting, the ranks that need the result copy all shares.
// Direct:  each rank reduces its share from all buffers into all buffers.
// Read:    each rank reads the others' data of its share, a block at a time, and reduces it; then
//          it reads the others' shares.
#pragma once

#include "worker_lib/shm/algorithm.h"
#include "worker_lib/shm/reduce.h"

namespace drun::worker::shm {

class Sum final : public Algorithm {
 public:
  // `deadline`: for the second meeting.
  Sum(Rounds& rounds, const Call& call, Deadline deadline);

  std::size_t turns() const override;
  void put(std::size_t turn) override;
  void take(std::size_t turn) override;
  void take_directly(const std::vector<std::byte*>& buffers) override;
  std::size_t reads() const override;
  bool read(std::size_t step, const PeerBuffers& peers) override;

 private:
  // A range of bytes, in the whole buffer or in this turn's part.
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
  std::byte* output_;  // null: this rank does not get the result
  Sources sources_;
};

}  // namespace drun::worker::shm
