// edge. Loads NCCL and the CUDA driver when a program needs them: drun is built without either, and
// runs on machines that have none.
//
// Names:   DRUN_CUDA_LIBRARY and DRUN_NCCL_LIBRARY (a path, or a name for the dynamic loader), else
//          libcuda.so.1 and libnccl.so.2. A copy that the program has loaded already (such as
//          PyTorch's) is used.
// Owner:   loaded once, until the process exits.
// Thread:  any.
// Errors:  BackendFailure (Unsupported) with the library, the problem and the remedy.
#pragma once

#include <string>

#include "worker_lib/nccl/abi.h"

namespace drun::worker {

// The initialized driver. Fails if there is no driver or no GPU.
const cuda::Api& need_cuda();
// NCCL. Also fails if it is too old.
const nccl::Api& need_nccl();
// "2.28.9": the version of need_nccl()'s library.
std::string nccl_version();

// Whether an exit handler has called note_exit(). Neither library may be called from then on,
// because their own exit handlers follow.
bool has_exit_begun();
void note_exit();

// The number of GPUs visible to this process; at least one.
int gpu_count();

// The driver if this process has loaded it already, else null. Does not initialize it. Costs a
// lookup in the list of loaded libraries.
const cuda::Api* loaded_cuda();

// "out of memory (2)".
std::string error_text(const cuda::Api& cuda, cuda::Result result);

// Formats NCCL's version codes: 21403 is "2.14.3", 2804 is "2.8.4".
std::string version_text(int code);

}  // namespace drun::worker
