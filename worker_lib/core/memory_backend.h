// edge. A backend made of two, for host memory and for GPU memory. Each call goes to the one for
// its memory.
//
// If a call names a GPU, its memory belongs to that GPU. Otherwise CUDA looks up the pointer, if
// CUDA was loaded when this backend was created or this backend has used CUDA since. Programs
// without CUDA therefore pay nothing. Deadlines, deaths and aborts apply to both backends.
#pragma once

#include <memory>

#include "drun/backend.h"

namespace drun::worker {

std::unique_ptr<Backend> serve_both(std::unique_ptr<Backend> host, std::unique_ptr<Backend> gpu);

}  // namespace drun::worker
