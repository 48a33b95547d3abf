// edge. What a rank does to see that the backend nccl works: over the stand-in, or on a GPU that
// all ranks share.
//
// Errors:  throws std::runtime_error that says what is wrong.
// Thread:  any one.
#pragma once

#include "tests/support/ranks.h"

namespace drun::test {

// Every collective, type and op that NCCL has, compared with the model.
void check_nccl_collectives(const Ranks& ranks, int rank);
// Messages in both directions at once, in order, of all types.
void check_nccl_messages();
// Several collectives on their way at once; what a stream was given before comes first.
void check_nccl_async();
// The default backend: each call goes where its memory is.
void check_both_memories();
// new_group, split and their groups' groups.
void check_nccl_groups();

}  // namespace drun::test
