// edge. Functions of the stand-ins that CUDA and NCCL do not have, for the NCCL stand-in and for
// tests.
#pragma once

#include <cstddef>

#include "worker_lib/nccl/abi.h"

extern "C" {

// Runs the function on the stream's thread, after the stream's earlier tasks.
void standin_enqueue(drun::worker::cuda::Stream stream, void (*action)(void*), void* argument);
// The GPU of the current context on this thread, or -1.
int standin_current_gpu();
// Where the bytes of a GPU's memory are, or `memory` itself.
void* standin_bytes(const void* memory);
bool standin_is_gpu_memory(const void* memory, std::size_t bytes);
// What this process has created so far; of communicators, only blocking ones.
int standin_events();
// Calls on this thread so far that made a context current.
int standin_context_pushes();
int standin_nccl_communicators();
// Operations, or groups of them, on one communicator.
int standin_nccl_launches();

}  // extern "C"
