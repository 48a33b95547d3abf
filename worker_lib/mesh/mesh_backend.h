// core. A backend over a mesh: all collectives, with the algorithms of worker_lib/algorithms, and
// messages.
//
// The mesh identifies every call by a hash of its arguments. Calls that differ between ranks are
// therefore never matched: they time out, or with DRUN_DEBUG=1 fail at once with Mismatch on every
// rank.
#pragma once

#include <memory>

#include "worker_lib/mesh/mesh.h"

namespace drun::worker {

// `messages`: the mesh for messages, which also has the lifelines; null: the same.
std::unique_ptr<Backend> make_mesh_backend(std::unique_ptr<Mesh> mesh, bool is_debug,
                                           std::unique_ptr<Mesh> messages = nullptr);

}  // namespace drun::worker
