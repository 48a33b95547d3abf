// edge. What the stand-in for NCCL, and tests, ask of the one for CUDA beyond CUDA's functions.
// Thread: any.
#pragma once

#include <cstddef>

#include "worker_lib/nccl/abi.h"

extern "C" {

// Does it in the stream's turn, on its thread.
void standin_enqueue(drun::worker::cuda::Stream stream, void (*deed)(void*), void* argument);
// Whose context is current on this thread; -1: none's.
int standin_current_gpu();
bool standin_is_gpu_memory(const void* memory, std::size_t bytes);

}  // extern "C"
