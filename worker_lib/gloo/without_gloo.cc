#include "worker_lib/gloo/gloo_backend.h"

namespace drun::worker {

std::string gloo_build() { return ""; }

std::unique_ptr<Backend> connect_gloo(const BackendContext& context) {
  throw BackendFailure(WorkerError::Kind::Unsupported,
                       "a world of " + std::to_string(context.size) +
                           " ranks over gloo needs Gloo, which this drun was built without; choose "
                           "tcp or shm+tcp, or install libgloo-dev and build again with "
                           "-DDRUN_WITH_GLOO=ON");
}

}  // namespace drun::worker
