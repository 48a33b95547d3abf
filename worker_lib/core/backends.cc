#include "worker_lib/core/backends.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "worker_lib/base/solo_backend.h"
#include "worker_lib/core/memory_backend.h"
#include "worker_lib/gloo/gloo_backend.h"
#include "worker_lib/nccl/nccl_backend.h"
#include "worker_lib/node/node_backend.h"
#include "worker_lib/shm/shm_backend.h"
#include "worker_lib/tcp/tcp_mesh.h"
#include "worker_lib/ucx/ucx_mesh.h"

namespace drun {
namespace worker {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, BackendFactory, std::less<>> factories{{"gloo", connect_gloo},
                                                               {"nccl", connect_nccl},
                                                               {"shm", connect_shm},
                                                               {"tcp", connect_tcp},
                                                               {"ucx", connect_ucx}};
  bool has_our_nccl = true;
};

// Never destroyed, because a group can be created while the program ends.
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

constexpr char kNccl[] = "nccl";

bool is_name(std::string_view text) {
  return !text.empty() && text.find_first_of(":,") == std::string_view::npos;
}

// Takes one "cpu:name" or "cuda:name". False if it is invalid or the second of its kind.
bool take_part(std::string_view part, BackendChoice& choice) {
  constexpr std::string_view kCpu = "cpu:";
  constexpr std::string_view kCuda = "cuda:";
  const bool is_cpu = part.rfind(kCpu, 0) == 0;
  if (!is_cpu && part.rfind(kCuda, 0) != 0) return false;
  const std::string_view name = part.substr(is_cpu ? kCpu.size() : kCuda.size());
  std::string& field = is_cpu ? choice.name : choice.gpu;
  if (!is_name(name) || !field.empty()) return false;
  field = name;
  return true;
}

std::unique_ptr<Backend> connect_named(const std::string& name, const BackendContext& context) {
  const std::size_t plus = name.find('+');
  if (plus == std::string::npos) {
    const BackendFactory factory = need_factory(name);
    if (context.size == 1 && (name == "gloo" || name == "shm" || name == "tcp" || name == "ucx")) {
      return std::make_unique<SoloBackend>();
    }
    return factory(context);
  }
  const BackendFactory within = need_factory(name.substr(0, plus));
  const BackendFactory across = need_factory(name.substr(plus + 1));
  if (context.size == 1) return std::make_unique<SoloBackend>();
  return connect_by_node(context, within, across);
}

}  // namespace

Result<BackendChoice> parse_backend(std::string_view text) {
  BackendChoice choice;
  if (is_name(text)) {
    choice.name = text;
    return choice;
  }
  const std::size_t comma = text.find(',');
  bool is_good = take_part(text.substr(0, comma), choice);
  if (comma != std::string_view::npos) {
    is_good = is_good && take_part(text.substr(comma + 1), choice);
  }
  if (!is_good) {
    return Error{ErrorCode::Usage, "backend \"" + std::string(text) +
                                       "\" is neither a name nor cpu:name, cuda:name or "
                                       "cpu:name,cuda:name"};
  }
  if (choice.name.empty()) std::swap(choice.name, choice.gpu);
  return choice;
}

void check_is_here(const BackendChoice& choice) {
  if (choice.name != kNccl) return;
  {
    const std::lock_guard lock(registry().mutex);
    if (!registry().has_our_nccl) return;
  }
  check_nccl_is_here();
}

std::vector<std::string> backend_names() {
  const std::lock_guard lock(registry().mutex);
  std::vector<std::string> names;
  for (const auto& [name, factory] : registry().factories) names.push_back(name);
  return names;
}

bool needs_network(const std::string& name, bool is_one_node) {
  if (name.find('+') != std::string::npos) return !is_one_node;
  return name == "gloo" || name == "tcp" || name == "ucx";
}

std::unique_ptr<Backend> connect_chosen(const BackendChoice& choice,
                                        const BackendContext& context) {
  if (choice.gpu.empty()) return connect_named(choice.name, context);
  BackendContext of_gpu = context;
  of_gpu.connects_later = !context.device;
  if (context.store) of_gpu.store = make_prefix_key_store("gpu", context.store);
  BackendContext of_host = context;
  of_host.split_off = nullptr;
  of_host.is_lookout = true;  // GPUs detect no rank's end
  need_factory(choice.gpu);   // before anything is connected
  std::unique_ptr<Backend> host = connect_named(choice.name, of_host);
  return serve_both(std::move(host), connect_named(choice.gpu, of_gpu));
}

}  // namespace worker

void register_backend(std::string name, BackendFactory factory) {
  const std::lock_guard lock(worker::registry().mutex);
  if (name == worker::kNccl) worker::registry().has_our_nccl = false;
  worker::registry().factories.insert_or_assign(std::move(name), std::move(factory));
}

}  // namespace drun
