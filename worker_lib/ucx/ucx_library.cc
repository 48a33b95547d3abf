#include "worker_lib/ucx/ucx_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>

#include "drun/backend.h"
#include "rendezvous/base/late_library.h"
#include "worker_lib/base/process.h"

namespace drun::worker::ucx {
namespace {

constexpr char kName[] = "libucp.so.0";

[[noreturn]] void refuse(const std::string& reason) {
  throw BackendFailure(WorkerError::Kind::Unsupported, std::nullopt,
                       std::string("cannot load ") + kName + ": " + reason +
                           "; install UCX 1.13 or later (Debian's libucx0), or choose tcp or "
                           "shm+tcp");
}

Library load() {
  Library library;
  const bool is_used_otherwise = dlopen("libucs.so.0", RTLD_NOW | RTLD_NOLOAD) != nullptr;
  // Never closed: UCX has threads of its own.
  void* const loaded = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    const char* const reason = dlerror();
    refuse(reason != nullptr ? reason : "no reason given");
  }
#define DRUN_UCX_FIND(name)                   \
  find_function(loaded, #name, library.name); \
  if (library.name == nullptr) refuse("it has no " #name);
  DRUN_UCX_FUNCTIONS(DRUN_UCX_FIND)
#undef DRUN_UCX_FIND
  // The log is one for the whole process: the user's choice stays, and that of a program that uses
  // UCX itself.
  if (getenv("UCX_LOG_LEVEL") == nullptr && !is_used_otherwise)
    find_function(loaded, "ucs_global_opts_set_value", library.set_log_option);
  return library;
}

}  // namespace

const Library& Library::get() {
  static const Library library = load();
  return library;
}

void check(ucs_status_t status, const char* what) {
  if (status == UCS_OK) return;
  throw BackendFailure(
      WorkerError::Kind::System, std::nullopt,
      std::string("UCX cannot ") + what + ": " + Library::get().ucs_status_string(status));
}

std::shared_ptr<ucp_context> context_of_process() {
  static std::mutex mutex;
  static std::weak_ptr<ucp_context> current;
  const Library& library = Library::get();
  const std::lock_guard lock(mutex);
  if (std::shared_ptr<ucp_context> context = current.lock()) return context;

  const SignalsBlocked blocked;  // inherited by UCX's threads
  ucp_config_t* config = nullptr;
  check(library.ucp_config_read(nullptr, nullptr, &config), "read its variables, UCX_*");
  // Shared memory is shm's task (shm+ucx), which notices the end of a rank at once.
  if (getenv("UCX_TLS") == nullptr) library.ucp_config_modify(config, "TLS", "^shm");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;
  ucp_context_h made = nullptr;
  const ucs_status_t status =
      library.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &made);
  library.ucp_config_release(config);
  check(status, "find a network");
  // From here on this library reports what fails. Until here, UCX's log has the details.
  if (library.set_log_option != nullptr) library.set_log_option("LOG_LEVEL", "fatal");
  std::shared_ptr<ucp_context> context(made, library.ucp_cleanup);
  current = context;
  return context;
}

}  // namespace drun::worker::ucx
