#include "worker_lib/core/backends.h"

#include <link.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <string_view>
#include <type_traits>
#include <utility>

#include "worker_lib/algorithms/collectives.h"
#include "worker_lib/gloo/gloo_backend.h"
#include "worker_lib/nccl/gpu.h"
#include "worker_lib/nccl/library.h"
#include "worker_lib/nccl/nccl_backend.h"
#include "worker_lib/node/node_backend.h"
#include "worker_lib/shm/shm_backend.h"
#include "worker_lib/tcp/tcp_mesh.h"
#include "worker_lib/ucx/ucx_mesh.h"

namespace drun {
namespace worker {
namespace {

constexpr char kNccl[] = "nccl";

struct BuiltIn {
  std::string_view name;
  std::unique_ptr<Backend> (*connect)(const BackendContext& context);
  bool is_needed_alone = false;  // by a single rank, too
  bool uses_network = false;
};
constexpr std::array kBuiltIn{
    BuiltIn{.name = "gloo", .connect = connect_gloo, .uses_network = true},
    BuiltIn{.name = kNccl, .connect = connect_nccl, .is_needed_alone = true},
    BuiltIn{.name = "shm", .connect = connect_shm},
    BuiltIn{.name = "tcp", .connect = connect_tcp, .uses_network = true},
    BuiltIn{.name = "ucx", .connect = connect_ucx, .uses_network = true},
};

class SoloBackend final : public Backend {
 public:
  std::string name() const override { return "solo"; }
  std::string refusal(const Call& call) const override {
    return call.gpu ? "solo works on memory of the host, not of a GPU" : "";
  }
  void run(const Call& call, const Turn&) override { run_alone(call); }
  void abort() noexcept override {}
};

// Null if there is none of that name.
const BuiltIn* built_in(std::string_view name) {
  const auto* const found = std::find_if(kBuiltIn.begin(), kBuiltIn.end(),
                                         [name](const BuiltIn& each) { return each.name == name; });
  return found == kBuiltIn.end() ? nullptr : found;
}

struct Registry {
  Registry() {
    for (const BuiltIn& each : kBuiltIn) factories.emplace(each.name, each.connect);
  }

  std::mutex mutex;
  std::map<std::string, BackendFactory, std::less<>> factories;
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
  throw BackendFailure(WorkerError::Kind::Usage,
                       "there is no backend \"" + name + "\"; there are: " + known);
}

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
    const BuiltIn* const ours = built_in(name);
    if (context.size == 1 && ours != nullptr && !ours->is_needed_alone)
      return std::make_unique<SoloBackend>();
    return factory(context);
  }
  const BackendFactory within = need_factory(name.substr(0, plus));
  const BackendFactory across = need_factory(name.substr(plus + 1));
  if (context.size == 1) return std::make_unique<SoloBackend>();
  return connect_by_node(context, within, across);
}

// --- A backend made of two, for host memory and for GPU memory. Each call goes to the one for its
// memory.
//
// If a call names a GPU, its memory belongs to that GPU. Otherwise CUDA looks up the pointer, if
// CUDA was loaded when this backend was created or this backend has used CUDA since. Programs
// without CUDA therefore pay nothing. Deadlines, deaths and aborts apply to both backends.

class MemoryBackend final : public Backend {
 public:
  MemoryBackend(std::unique_ptr<Backend> host, std::unique_ptr<Backend> gpu)
      : host_(std::move(host)),
        gpu_(std::move(gpu)),
        keeps_deadlines_(host_->keeps_deadlines() && gpu_->keeps_deadlines()),
        is_host_told_(!host_->lifelines().empty() || !host_->detects_ends()),
        cuda_(loaded_cuda()) {}

  std::string name() const override { return host_->name(); }

  std::string refusal(const Call& call) const override {
    look_for_cuda();
    if (is_surely_hosts(call)) return host_->refusal(call);
    if (!call.gpu) check_same_memory(cuda_, call.input, call.output);
    return serve(call, [](const Backend& by, const Call& what) { return by.refusal(what); });
  }
  void run(const Call& call, const Turn& turn) override {
    serve(call, [&](Backend& by, const Call& what) { by.run(what, turn); });
  }
  bool starts(const Call& call) const override {
    return serve(call, [](const Backend& by, const Call& what) { return by.starts(what); });
  }
  std::unique_ptr<Transfer> start(const Call& call, const Turn& turn) override {
    return serve(call, [&](Backend& by, const Call& what) { return by.start(what, turn); });
  }

  std::string message_refusal(const ConstElements& data, bool is_from_anyone,
                              int tag) const override {
    look_for_cuda();
    return serving(data).message_refusal(data, is_from_anyone, tag);
  }
  std::unique_ptr<Transfer> start_send(const ConstElements& data, int to, int tag) override {
    return serving(data).start_send(data, to, tag);
  }
  std::unique_ptr<Transfer> start_recv(const Elements& data, std::optional<int> from,
                                       int tag) override {
    return serving(data).start_recv(data, from, tag);
  }

  std::vector<std::unique_ptr<Transfer>> start_batch(
      const std::vector<MessageCall>& batch) override {
    look_for_cuda();
    std::vector<MessageCall> of_gpu;
    std::vector<MessageCall> of_host;
    std::vector<bool> is_on_gpu;
    for (const MessageCall& message : batch) {
      const ConstElements data = message.data();
      is_on_gpu.push_back(where(data.gpu, data.data).has_value());
      (is_on_gpu.back() ? of_gpu : of_host).push_back(message);
    }
    std::vector<std::unique_ptr<Transfer>> host = host_->start_batch(of_host);
    std::vector<std::unique_ptr<Transfer>> gpu = gpu_->start_batch(of_gpu);
    std::vector<std::unique_ptr<Transfer>> all;
    all.reserve(batch.size());
    auto next_host = host.begin();
    auto next_gpu = gpu.begin();
    for (const bool is_gpus : is_on_gpu)
      all.push_back(std::move(*(is_gpus ? next_gpu : next_host)++));
    return all;
  }

  bool splits() const override { return gpu_->splits(); }
  std::shared_ptr<void> split(std::optional<int> color, int key, const Turn& turn) override {
    return gpu_->split(color, key, turn);
  }

  void abort() noexcept override {
    host_->abort();
    gpu_->abort();
  }
  bool keeps_deadlines() const override { return keeps_deadlines_; }
  std::vector<Lifeline> lifelines() const override {
    std::vector<Lifeline> lines = host_->lifelines();
    for (const Lifeline& line : gpu_->lifelines()) lines.push_back(line);
    return lines;
  }
  bool detects_ends() const override { return gpu_->detects_ends(); }
  bool tell_lost(int rank) noexcept override {
    gpu_->tell_lost(rank);
    return !is_host_told_ || host_->tell_lost(rank);
  }
  std::shared_ptr<void> alloc_shared(std::size_t size_bytes, const Turn& turn) override {
    return host_->alloc_shared(size_bytes, turn);
  }

 private:
  // The program can load CUDA at any time. Looking for it costs much more than seeing whether
  // anything was loaded since the last look.
  void look_for_cuda() const {
    if (cuda_.load(std::memory_order_relaxed) != nullptr) return;
    const unsigned long long loads = libraries_loaded();
    if (loads_.load(std::memory_order_relaxed) == loads) return;
    if (const cuda::Api* const found = loaded_cuda()) cuda_ = found;
    loads_ = loads;
  }
  // How many libraries this process has loaded so far.
  static unsigned long long libraries_loaded() {
    unsigned long long loads = 0;
    const auto read_first = [](dl_phdr_info* info, std::size_t, void* to) {
      *static_cast<unsigned long long*>(to) = info->dlpi_adds;
      return 1;
    };
    dl_iterate_phdr(read_first, &loads);
    return loads;
  }

  // The only other cost for a program without CUDA.
  bool is_surely_hosts(const Call& call) const {
    return !call.gpu && cuda_.load(std::memory_order_relaxed) == nullptr;
  }
  std::optional<int> where(std::optional<int> named, const void* memory) const {
    const cuda::Api* cuda = cuda_.load(std::memory_order_relaxed);
    if (!named) return cuda == nullptr ? std::nullopt : gpu_of(cuda, memory);
    if (cuda == nullptr) cuda_ = loaded_cuda();
    return named;
  }
  // Calls `action` with the backend for the call's memory, and the call with its GPU.
  template <typename Action>
  std::invoke_result_t<Action, Backend&, const Call&> serve(const Call& call,
                                                            Action&& action) const {
    if (is_surely_hosts(call)) return action(*host_, call);
    const std::optional<int> gpu =
        where(call.gpu, call.input != nullptr ? call.input : call.output);
    if (!gpu) return action(*host_, call);
    Call located = call;
    located.gpu = gpu;
    return action(*gpu_, located);
  }
  Backend& serving(const ConstElements& data) const {
    return where(data.gpu, data.data) ? *gpu_ : *host_;
  }

  const std::unique_ptr<Backend> host_;
  const std::unique_ptr<Backend> gpu_;
  const bool keeps_deadlines_;
  const bool is_host_told_;
  mutable std::atomic<const cuda::Api*> cuda_;
  mutable std::atomic<unsigned long long> loads_ = 0;
};

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
  const BuiltIn* const ours = built_in(name);
  return ours != nullptr && ours->uses_network;
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
  return std::make_unique<MemoryBackend>(std::move(host), connect_named(choice.gpu, of_gpu));
}

}  // namespace worker

void register_backend(std::string name, BackendFactory factory) {
  const std::lock_guard lock(worker::registry().mutex);
  if (name == worker::kNccl) worker::registry().has_our_nccl = false;
  worker::registry().factories.insert_or_assign(std::move(name), std::move(factory));
}

}  // namespace drun
