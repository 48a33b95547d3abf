// edge. Runs one collective with NCCL's operations: its own if it has one, otherwise a group of
// sends, broadcasts or reductions.
//
// Thread:  the caller holds the communicator and has made its GPU current.
// Errors:  returns NCCL's result; BackendFailure if a CUDA copy fails.
#pragma once

#include "drun/backend.h"
#include "worker_lib/nccl/communicator.h"

namespace drun::worker {

// Any operation except Barrier.
nccl::Result issue(const Gpu& gpu, const Communicator::RankInfo& seat, const Call& call,
                   nccl::Comm comm, cuda::Stream stream);

}  // namespace drun::worker
