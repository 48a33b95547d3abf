// core. Collectives of large data: cut into pieces that follow each other through a ring or a chain
// of all ranks, so that every connection is busy and each piece is reduced while others are on
// their way. Each rank sends about as many bytes as the data has, however many ranks there are.
//
// Shape:   at least 2 ranks; sizes in bytes are multiples of the element's.
// Result:  every element is reduced by one rank, in an order that size, count and type give, and
//          passed on: all ranks have the same bits. Avg adds; the caller divides.
// Thread:  of the Exchange.   Errors: the Exchange's.
// Source:  the ring is Patarasuk and Yuan's (2009), as in Gloo and NCCL, cut into blocks so that
//          what is received while it must not overwrite the input fits into a few pieces.
#pragma once

#include <cstddef>

#include "drun/elements.h"
#include "worker_lib/algorithms/exchange.h"

namespace drun::worker {

void ring_all_reduce(Exchange& mesh, const Elements& data, ReduceOp op);
// `input` of parts.total_bytes(), `output` of this rank's.
void ring_reduce_scatter(Exchange& mesh, const void* input, void* output, const Parts& parts,
                         DataType type, ReduceOp op);
// This rank's part lies in `output` already.
void ring_all_gather(Exchange& mesh, void* output, const Parts& parts);
void chain_broadcast(Exchange& mesh, void* data, std::size_t size_bytes, int root);
// `output` is the root's only; it may be `input`, which no other rank changes.
void chain_reduce(Exchange& mesh, const ConstElements& input, void* output, ReduceOp op, int root);

}  // namespace drun::worker
