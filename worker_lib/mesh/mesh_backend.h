// core. The backend over a mesh: every collective, by the algorithms of worker_lib/algorithms, and
// messages.
//
// Calls that differ never meet, as each is known to the mesh by a hash of what it is: they end at
// their deadlines, or with DRUN_DEBUG=1 at once with a Mismatch on every rank.
#pragma once

#include <memory>

#include "worker_lib/mesh/mesh.h"

namespace drun::worker {

std::unique_ptr<Backend> make_mesh_backend(std::unique_ptr<Mesh> mesh, bool is_debug);

}  // namespace drun::worker
