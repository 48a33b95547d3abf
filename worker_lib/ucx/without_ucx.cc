#include "drun/backend.h"
#include "worker_lib/ucx/ucx_mesh.h"

namespace drun::worker {

bool has_ucx() { return false; }

std::unique_ptr<Backend> connect_ucx(const BackendContext&) {
  throw BackendFailure(WorkerError::Kind::Unsupported, std::nullopt,
                       "this drun was built without UCX; choose tcp or shm+tcp, or install "
                       "libucx-dev and build again with -DDRUN_WITH_UCX=ON");
}

}  // namespace drun::worker
