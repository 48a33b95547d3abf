// edge. NCCL and the CUDA driver, found when a program asks for them: it is built without either,
// and runs on machines that have none.
//
// Where:   what DRUN_CUDA_LIBRARY and DRUN_NCCL_LIBRARY name, a file or a name for the dynamic
//          loader; else libcuda.so.1 and libnccl.so.2. A copy that the program has loaded already
//          (PyTorch's, say) is the one that is used.
// Owner:   loaded once, for as long as the process lives.
// Thread:  any.
// Errors:  BackendFailure (Unsupported) that names the library, what is wrong with it, the remedy.
#pragma once

#include <string>

#include "worker_lib/nccl/abi.h"

namespace drun::worker {

// The driver, initialised. Fails where there is no driver, or no GPU.
const cuda::Api& need_cuda();
// NCCL; fails also if it is too old.
const nccl::Api& need_nccl();
// "2.28.9", of the one that need_nccl gave.
std::string nccl_version();

// How many GPUs this process sees; at least one.
int gpu_count();

// The driver, if this process has loaded it already; null otherwise. Costs a look at the list of
// loaded libraries. Does not initialize it.
const cuda::Api* loaded_cuda();

// "2.14.3" of 21403, "2.8.4" of 2804: how NCCL counts its versions.
std::string version_text(int code);

}  // namespace drun::worker
