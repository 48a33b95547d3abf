// edge. Issues messages, and one collective with NCCL's operations: its own if it has one,
// otherwise a group of sends, broadcasts or reductions.
//
// Thread:  the caller holds the communicator and has made its GPU current.
// Errors:  returns NCCL's result; BackendFailure if a CUDA copy fails.
#pragma once

#include <cstddef>
#include <vector>

#include "drun/backend.h"
#include "worker_lib/nccl/communicator.h"

namespace drun::worker {

// One message. `peer` is a rank of the communicator.
struct P2P {
  bool is_send = false;
  void* data = nullptr;
  std::size_t count = 0;
  DataType type = DataType::U8;
  int peer = 0;
};
// All messages in one group, so that none waits for another one's end. Those without elements are
// left out.
nccl::Result issue(const std::vector<P2P>& messages, nccl::Comm comm, cuda::Stream stream);

// Any operation except Barrier.
nccl::Result issue(const Gpu& gpu, const Communicator::RankInfo& seat, const Call& call,
                   nccl::Comm comm, cuda::Stream stream);

}  // namespace drun::worker
