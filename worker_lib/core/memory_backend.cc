#include "worker_lib/core/memory_backend.h"

#include <link.h>

#include <atomic>
#include <utility>

#include "worker_lib/nccl/gpu.h"
#include "worker_lib/nccl/library.h"

namespace drun::worker {
namespace {

class MemoryBackend final : public Backend {
 public:
  MemoryBackend(std::unique_ptr<Backend> host, std::unique_ptr<Backend> gpu)
      : host_(std::move(host)),
        gpu_(std::move(gpu)),
        keeps_deadlines_(host_->keeps_deadlines() && gpu_->keeps_deadlines()),
        cuda_(loaded_cuda()) {}

  std::string name() const override { return host_->name(); }

  std::string refusal(const Call& call) const override {
    look_for_cuda();
    if (is_surely_hosts(call)) return host_->refusal(call);
    if (const std::optional<int> gpu = gpu_of_call(call)) return gpu_->refusal(on(*gpu, call));
    return host_->refusal(call);
  }
  void run(const Call& call, const Turn& turn) override {
    if (is_surely_hosts(call)) return host_->run(call, turn);
    if (const std::optional<int> gpu = gpu_of_call(call)) return gpu_->run(on(*gpu, call), turn);
    host_->run(call, turn);
  }
  bool starts(const Call& call) const override {
    if (const std::optional<int> gpu = gpu_of_call(call)) return gpu_->starts(on(*gpu, call));
    return host_->starts(call);
  }
  std::unique_ptr<Transfer> start(const Call& call, const Turn& turn) override {
    if (const std::optional<int> gpu = gpu_of_call(call)) return gpu_->start(on(*gpu, call), turn);
    return host_->start(call, turn);
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
      const ConstElements data = message.is_send ? message.outgoing : message.incoming;
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
  void tell_lost(int rank) noexcept override {
    host_->tell_lost(rank);
    gpu_->tell_lost(rank);
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
  std::optional<int> gpu_of_call(const Call& call) const {
    return where(call.gpu, call.input != nullptr ? call.input : call.output);
  }
  Backend& serving(const ConstElements& data) const {
    return where(data.gpu, data.data) ? *gpu_ : *host_;
  }
  static Call on(int gpu, Call call) {
    call.gpu = gpu;
    return call;
  }

  const std::unique_ptr<Backend> host_;
  const std::unique_ptr<Backend> gpu_;
  const bool keeps_deadlines_;
  mutable std::atomic<const cuda::Api*> cuda_;
  mutable std::atomic<unsigned long long> loads_ = 0;
};

}  // namespace

std::unique_ptr<Backend> serve_both(std::unique_ptr<Backend> host, std::unique_ptr<Backend> gpu) {
  return std::make_unique<MemoryBackend>(std::move(host), std::move(gpu));
}

}  // namespace drun::worker
