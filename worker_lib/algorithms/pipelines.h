// core. Collectives of large data, which is divided into pieces that follow each other through a
// ring or chain of all ranks. Every connection is busy, and each piece is reduced while others are
// being sent. Each rank sends about as many bytes as the data has, independent of the number of
// ranks.
//
// Sizes:   at least 2 ranks; sizes in bytes are multiples of the element size.
// Result:  every element is reduced by one rank, in an order that depends on size, count and type,
//          and then passed on, so all ranks have the same bits. Avg only adds; the caller divides.
// Thread:  as for the Exchange.   Errors: those of the Exchange.
// Source:  the ring is Patarasuk and Yuan's (2009), as in Gloo and NCCL. It is divided into blocks,
//          so that received data that must not overwrite the input fits into a few pieces.
#pragma once

#include <cstddef>

#include "drun/elements.h"
#include "worker_lib/algorithms/exchange.h"

namespace drun::worker {

void ring_all_reduce(Exchange& mesh, const Elements& data, ReduceOp op);
// `input` has parts.total_bytes(), `output` has the size of this rank's part.
void ring_reduce_scatter(Exchange& mesh, const void* input, void* output, const Parts& parts,
                         DataType type, ReduceOp op);
// This rank's part is in `output` already.
void ring_all_gather(Exchange& mesh, void* output, const Parts& parts);
void chain_broadcast(Exchange& mesh, void* data, std::size_t size_bytes, int root);
// `output` is used on the root only, and may be equal to `input`. Other ranks do not change
// `input`.
void chain_reduce(Exchange& mesh, const ConstElements& input, void* output, ReduceOp op, int root);

}  // namespace drun::worker
