#include "worker_lib/gloo/gloo_backend.h"

#include <utility>

#include "worker_lib/gloo/gloo_mesh.h"
#include "worker_lib/mesh/mesh_backend.h"
#include "worker_lib/tcp/tcp_mesh.h"

namespace drun::worker {

std::unique_ptr<Backend> connect_gloo(const BackendContext& context) {
  auto gloo = std::make_unique<GlooMesh>(context);
  // Messages that Gloo carries would need a thread each: a timed wait closes its connections.
  BackendContext of_messages = context;
  of_messages.is_lookout = false;
  return make_mesh_backend(std::move(gloo), context.is_debug,
                           std::make_unique<TcpMesh>(of_messages));
}

}  // namespace drun::worker
