// edge. Issues messages, and one collective with NCCL's operations: its own if it has one,
// otherwise a group of sends, broadcasts or reductions.
//
// Thread:  the caller holds the communicator and has made its GPU current.
// Errors:  returns NCCL's result; BackendFailure if a CUDA copy fails.
#pragma once

#include <vector>

#include "drun/backend.h"
#include "worker_lib/nccl/communicator.h"

namespace drun::worker {

bool is_float8(DataType type);

// All messages in one group, so that none waits for another one's end. Those without elements are
// left out. Their peers are ranks of the communicator.
nccl::Result issue(const std::vector<MessageCall>& messages, nccl::Comm comm, cuda::Stream stream);

// Any operation except Barrier, of a type and op that NCCL supports.
nccl::Result issue(const Gpu& gpu, const Communicator::RankInfo& self, const Call& call,
                   nccl::Comm comm, cuda::Stream stream);

}  // namespace drun::worker
