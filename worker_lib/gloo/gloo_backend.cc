#include "worker_lib/gloo/gloo_backend.h"

#include "worker_lib/gloo/gloo_mesh.h"
#include "worker_lib/mesh/mesh_backend.h"

namespace drun::worker {

std::unique_ptr<Backend> connect_gloo(const BackendContext& context) {
  return make_mesh_backend(std::make_unique<GlooMesh>(context), context.is_debug);
}

}  // namespace drun::worker
