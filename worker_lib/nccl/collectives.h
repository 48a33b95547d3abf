// edge. One collective as NCCL's operations: its own where it has one, otherwise sends, broadcasts
// or reduces that go together.
//
// Thread:  the caller has the communicator and made its GPU current.
// Errors:  what NCCL said is returned; BackendFailure for a copy that CUDA refuses.
#pragma once

#include "drun/backend.h"
#include "worker_lib/nccl/communicator.h"

namespace drun::worker {

// Any but Barrier.
nccl::Result issue(const Gpu& gpu, const Communicator::RankInfo& seat, const Call& call,
                   nccl::Comm comm, cuda::Stream stream);

}  // namespace drun::worker
