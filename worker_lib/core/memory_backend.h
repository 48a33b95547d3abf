// core, but for asking CUDA where a pointer points. Two backends as one: of memory of the host, and
// of a GPU's. Each call goes to the one whose memory it is about.
//
// Where:   a call that names a GPU is about that one's memory. Otherwise the pointer is looked up,
//          if CUDA was loaded when this was made or has been used by it since; a program without
//          CUDA is not asked to look.
// Deadlines, deaths and aborts apply to both.
#pragma once

#include <memory>

#include "drun/backend.h"

namespace drun::worker {

std::unique_ptr<Backend> serve_both(std::unique_ptr<Backend> host, std::unique_ptr<Backend> gpu);

}  // namespace drun::worker
