// edge. Functions of the CUDA stand-in that CUDA does not have, for the NCCL stand-in and for
// tests.
#pragma once

#include <cstddef>

#include "worker_lib/nccl/abi.h"

extern "C" {

// Runs the function on the stream's thread, after the stream's earlier tasks.
void standin_enqueue(drun::worker::cuda::Stream stream, void (*action)(void*), void* argument);
// The GPU of the current context on this thread, or -1.
int standin_current_gpu();
bool standin_is_gpu_memory(const void* memory, std::size_t bytes);

}  // extern "C"
