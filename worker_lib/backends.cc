#include "worker_lib/backends.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "worker_lib/gloo/gloo_backend.h"
#include "worker_lib/node/node_backend.h"
#include "worker_lib/shm/shm_backend.h"
#include "worker_lib/solo_backend.h"

namespace drun {
namespace worker {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, BackendFactory, std::less<>> factories{{"gloo", connect_gloo},
                                                               {"shm", connect_shm}};
};

// Never destroyed: a group may be made while the program ends.
Registry& registry() {
  static Registry& the = *new Registry;
  return the;
}

std::optional<BackendFactory> factory_of(const std::string& name) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().factories.find(name);
  if (found == registry().factories.end()) return std::nullopt;
  return found->second;
}

BackendFactory need_factory(const std::string& name) {
  if (std::optional<BackendFactory> factory = factory_of(name)) return *std::move(factory);
  std::string known;
  for (const std::string& each : backend_names()) known += (known.empty() ? "" : ", ") + each;
  throw BackendFailure(WorkerError::Kind::Usage, std::nullopt,
                       "there is no backend \"" + name + "\"; there are: " + known);
}

}  // namespace

Result<std::string> parse_backend(std::string_view text) {
  constexpr std::string_view kCpu = "cpu:";
  const std::string_view name = text.substr(text.rfind(kCpu, 0) == 0 ? kCpu.size() : 0);
  if (!name.empty() && name.find_first_of(":,") == std::string_view::npos) return std::string(name);
  return Error{ErrorCode::Usage,
               "backend \"" + std::string(text) +
                   "\" is neither a name nor cpu:name; memory of GPUs is served by "
                   "none"};
}

std::vector<std::string> backend_names() {
  const std::lock_guard lock(registry().mutex);
  std::vector<std::string> names;
  for (const auto& [name, factory] : registry().factories) names.push_back(name);
  return names;
}

bool needs_network(const std::string& name, bool is_one_node) {
  if (name.find('+') != std::string::npos) return !is_one_node;
  return name == "gloo";
}

std::unique_ptr<Backend> connect_named(const std::string& name, const BackendContext& context) {
  const std::size_t plus = name.find('+');
  if (plus == std::string::npos) {
    const BackendFactory factory = need_factory(name);
    if (context.size == 1 && (name == "gloo" || name == "shm")) {
      return std::make_unique<SoloBackend>();
    }
    return factory(context);
  }
  const BackendFactory within = need_factory(name.substr(0, plus));
  const BackendFactory across = need_factory(name.substr(plus + 1));
  if (context.size == 1) return std::make_unique<SoloBackend>();
  return connect_by_node(context, within, across);
}

}  // namespace worker

void register_backend(std::string name, BackendFactory factory) {
  const std::lock_guard lock(worker::registry().mutex);
  worker::registry().factories.insert_or_assign(std::move(name), std::move(factory));
}

}  // namespace drun
