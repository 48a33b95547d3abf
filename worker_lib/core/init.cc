// The default group and the global functions of torch.distributed.
#include <mutex>
#include <optional>
#include <string>

#include "drun/process_group.h"

namespace drun {
namespace {

struct Default {
  std::mutex mutex;
  std::optional<ProcessGroup> group;
  bool is_connecting = false;
};

// Never destroyed: objects that a group needs may be destroyed by then, and the kernel closes
// everything.
Default& the_default() {
  static Default& the = *new Default;
  return the;
}

WorkerError usage(const char* operation, const char* message) {
  return WorkerError(
      {.kind = WorkerError::Kind::Usage, .operation = operation, .message = message});
}

}  // namespace

ProcessGroup init_process_group(const InitOptions& options) {
  std::unique_lock lock(the_default().mutex);
  if (the_default().group || the_default().is_connecting) {
    throw usage("init_process_group",
                "there is a default group already; call destroy_process_group() first, or "
                "ProcessGroup::connect for a separate group");
  }
  the_default().is_connecting = true;
  lock.unlock();
  try {
    ProcessGroup group = ProcessGroup::connect(options);
    lock.lock();
    the_default().is_connecting = false;
    the_default().group = group;
    return group;
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    the_default().is_connecting = false;
    throw;
  }
}

void destroy_process_group() {
  const std::lock_guard lock(the_default().mutex);
  if (!the_default().group) return;
  the_default().group->destroy();
  the_default().group.reset();
}

bool is_initialized() {
  const std::lock_guard lock(the_default().mutex);
  return the_default().group.has_value();
}

ProcessGroup default_group() {
  const std::lock_guard lock(the_default().mutex);
  if (!the_default().group) {
    throw usage("default_group", "there is no group yet; call init_process_group() first");
  }
  return *the_default().group;
}

int get_rank() { return default_group().rank(); }
int get_world_size() { return default_group().size(); }
int get_local_rank() { return default_group().local_rank(); }
std::string get_backend() { return default_group().backend(); }

}  // namespace drun
