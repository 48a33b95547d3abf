// The default group and the global functions of torch.distributed.
#include <mutex>
#include <optional>
#include <string>

#include "drun/process_group.h"
#include "worker_lib/base/threads.h"
#include "worker_lib/core/group.h"

namespace drun {
namespace {

struct Default {
  std::mutex mutex;
  std::optional<ProcessGroup> group;
  bool is_connecting = false;
};

// Never destroyed, because objects that a group needs may be destroyed by then. An exit handler
// closes the group before.
Default& the_default() {
  static Default& the = *new Default;
  return the;
}

WorkerError usage(const char* operation, const char* message) {
  return WorkerError(
      {.kind = WorkerError::Kind::Usage, .operation = operation, .message = message});
}

}  // namespace

// A group that is used by another thread or has operations pending is left to the kernel: its users
// would get errors.
void close_default_group() {
  const std::unique_lock lock(the_default().mutex, std::try_to_lock);
  if (!lock.owns_lock() || !the_default().group) return;
  const std::shared_ptr<ProcessGroup::Group>& group = the_default().group->group_;
  if (group.use_count() != 1 || !group->is_idle()) return;
  try {
    // This thread's thread_local objects, which libraries may use, are destroyed already.
    worker::start_thread([] { the_default().group.reset(); }).join();
  } catch (const BackendFailure&) {  // no thread can be started: left to the kernel, too
  }
}

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
    worker::at_exit(close_default_group);
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
