// edge. Checks that a rank makes of the nccl backend, over the stand-in or on a GPU that all ranks
// share.
//
// The checks throw std::runtime_error with the reason. They can run on any thread.
#pragma once

#include "tests/support/ranks.h"

namespace drun::test {

// Compares every collective, type and op of NCCL with the model.
void check_nccl_collectives(const Ranks& ranks, int rank);
// Messages in both directions, in a batch and one by one.
void check_nccl_messages();
// Several pending collectives, which run after earlier work on the stream.
void check_nccl_async();
// The default backend: each call goes to the backend for its memory.
void check_both_memories();
// new_group, split, and groups of those groups.
void check_nccl_groups();

}  // namespace drun::test
