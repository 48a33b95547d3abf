#include "worker_lib/nccl/nccl_backend.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "worker_lib/base/signature.h"
#include "worker_lib/nccl/collectives.h"
#include "worker_lib/nccl/communicators.h"
#include "worker_lib/nccl/library.h"
#include "worker_lib/nccl/messages.h"
#include "worker_lib/nccl/types.h"

namespace drun::worker {
namespace {

using Kind = WorkerError::Kind;

const void* memory_of(const Call& call) { return call.input != nullptr ? call.input : call.output; }

Awaited awaited_by(const Turn& turn) {
  return {.sequence = turn.sequence, .deadline = turn.deadline};
}

// A started collective.
class PendingCollective final : public Transfer {
 public:
  PendingCollective(std::shared_ptr<Communicator> line, Event end, const Awaited& awaited)
      : line_(std::move(line)), end_(std::move(end)), awaited_(awaited) {}
  int finish(Deadline deadline) override {
    awaited_.deadline = deadline;
    line_->wait(end_, awaited_);
    return 0;
  }

 private:
  std::shared_ptr<Communicator> line_;
  Event end_;
  Awaited awaited_;
};

class NcclBackend final : public Backend {
 public:
  explicit NcclBackend(const BackendContext& context)
      : lines_(context), seat_{context.rank, context.size}, messages_(lines_) {
    if (context.split_off) {
      use(lines_.adopt(std::static_pointer_cast<Communicator>(context.split_off)));
      is_wanted_ = true;
    } else if (!context.connects_later) {
      check_nccl_is_here();
      connect({.deadline = context.deadline});
      is_wanted_ = true;
    }
  }

  // Closed before the memory below is freed, because cuMemFree waits for all running kernels.
  ~NcclBackend() override { lines_.close(); }

  std::string name() const override { return "nccl"; }

  std::string refusal(const Call& call) const override {
    std::string reason = nccl::refusal(call);
    if (reason.empty()) reason = refusal_of_memory(memory_of(call), call.gpu);
    if (reason.empty()) reason = refusal_of_stream(call.stream);
    if (reason.empty()) is_wanted_ = true;
    return reason;
  }
  std::string message_refusal(const ConstElements& data, bool is_from_anyone,
                              int tag) const override {
    std::string reason = nccl::refusal(is_from_anyone, tag);
    if (reason.empty()) reason = refusal_of_memory(data.data, data.gpu);
    if (reason.empty()) reason = refusal_of_stream(data.stream);
    return reason;
  }

  void run(const Call& call, const Turn& turn) override {
    start(call, turn)->finish(turn.deadline);
  }

  bool starts(const Call&) const override { return true; }
  std::unique_ptr<Transfer> start(const Call& call, const Turn& turn) override {
    const Awaited awaited = awaited_by(turn);
    const std::shared_ptr<const Gpu> gpu = lines_.gpu(gpu_number(call.gpu, memory_of(call)));
    const Event after(gpu, static_cast<cuda::Stream>(call.stream));
    if (!all_) connect(awaited);
    if (lines_.context().is_debug) compare(call, awaited);
    Call done = call;
    if (call.operation == Operation::Barrier) done = barrier();
    Event end = all_->start(after, awaited, [&](nccl::Comm comm, cuda::Stream stream) {
      return issue(*gpu, seat_, done, comm, stream);
    });
    return std::make_unique<PendingCollective>(all_, std::move(end), awaited);
  }

  std::unique_ptr<Transfer> start_send(const ConstElements& data, int to, int) override {
    ConstElements located = data;
    located.gpu = gpu_number(data.gpu, data.data);
    return messages_.start_send(located, to);
  }
  std::unique_ptr<Transfer> start_recv(const Elements& data, std::optional<int> from,
                                       int) override {
    Elements located = data;
    located.gpu = gpu_number(data.gpu, data.data);
    return messages_.start_recv(located, from.value());
  }

  void abort() noexcept override { lines_.close(); }
  void tell_lost(int rank) noexcept override { lines_.stop().tell_lost(rank); }

  bool splits() const override { return is_wanted_ && need_nccl().split != nullptr; }
  std::shared_ptr<void> split(const std::vector<int>& ranks, const Turn& turn) override {
    const auto mine = std::find(ranks.begin(), ranks.end(), seat_.rank);
    std::optional<int> key;
    if (mine != ranks.end()) key = static_cast<int>(mine - ranks.begin());
    if (!all_) connect(awaited_by(turn));
    return all_->split(key, awaited_by(turn));
  }

 private:
  // The signatures that ranks compare before each collective with DRUN_DEBUG=1. It lives as long as
  // the backend, because cuMemFree would wait for a comparison that another rank never joins.
  struct Comparison {
    Comparison(const std::shared_ptr<const Gpu>& gpu, std::size_t ranks)
        : told(ranks), memory(gpu, sizeof(Signature) * (ranks + 1)) {}
    Signature mine{};
    std::vector<Signature> told;
    GpuMemory memory;
  };

  void connect(const Awaited& awaited) { use(lines_.connect("all", 0, seat_, awaited)); }

  void use(std::shared_ptr<Communicator> line) {
    all_ = std::move(line);
    barrier_word_.emplace(all_->gpu(), sizeof(std::uint32_t));
    if (lines_.context().is_debug) {
      comparison_.emplace(all_->gpu(), static_cast<std::size_t>(seat_.size));
    }
  }

  std::string refusal_of_memory(const void* memory, std::optional<int> gpu) const {
    const std::shared_ptr<const Gpu> known = lines_.known_gpu();
    if (!known) {
      try {
        check_nccl_is_here();
      } catch (const BackendFailure& failure) {
        return failure.what();
      }
    }
    if (memory == nullptr && !gpu) return "";
    if (!gpu) gpu = gpu_of(loaded_cuda(), memory);
    if (!gpu) {
      return "nccl works on memory of a GPU, not of the host; shm and gloo can, and "
             "cpu:shm+tcp,cuda:nccl does both";
    }
    if (*gpu < 0 || *gpu >= gpu_count()) {
      return "there is no GPU " + std::to_string(*gpu) + ": this process sees " +
             std::to_string(gpu_count());
    }
    if (!known || known->number() == *gpu) return "";
    return "this group works on GPU " + std::to_string(known->number()) +
           " here, and the data is on GPU " + std::to_string(*gpu);
  }

  // A graph repeats only the work on the GPU, not this library's deadlines and checks of calls.
  static std::string refusal_of_stream(void* stream) {
    if (!is_capturing(loaded_cuda(), static_cast<cuda::Stream>(stream))) return "";
    return "the stream is being captured into a CUDA graph, which worker_lib does not support; "
           "call the operation before or after the capture, or on another stream";
  }

  static std::optional<int> gpu_number(std::optional<int> named, const void* memory) {
    return named ? named : gpu_of(loaded_cuda(), memory);
  }

  // A small sum, which completes once every rank has started it.
  Call barrier() const {
    return {.operation = Operation::AllReduce,
            .type = DataType::U32,
            .input = barrier_word_->data(),
            .output = barrier_word_->data(),
            .count = 1};
  }

  void compare(const Call& call, const Awaited& awaited) {
    const std::shared_ptr<const Gpu>& gpu = all_->gpu();
    Comparison& the = *comparison_;
    the.mine = signature_of(call, seat_.size);
    constexpr std::size_t kBytes = sizeof the.mine;
    const cuda::Address all = the.memory.address() + kBytes;
    const auto in_order = [&](const Communicator::Action& action) {
      all_->wait(all_->start(Event(gpu, nullptr), awaited, action), awaited);
    };
    in_order([&](nccl::Comm comm, cuda::Stream stream) {
      gpu->must(gpu->api().copy_to_device(the.memory.address(), &the.mine, kBytes, stream),
                "cuMemcpyHtoDAsync");
      return need_nccl().all_gather(the.memory.data(), reinterpret_cast<void*>(all), kBytes,
                                    nccl::kU8, comm, stream);
    });
    in_order([&](nccl::Comm, cuda::Stream stream) {
      gpu->must(gpu->api().copy_to_host(the.told.data(), all, kBytes * the.told.size(), stream),
                "cuMemcpyDtoHAsync");
      return nccl::kSuccess;
    });
    if (std::count(the.told.begin(), the.told.end(), the.mine) == seat_.size) return;
    throw BackendFailure(Kind::Mismatch, std::nullopt,
                         "the ranks disagree about collective number " +
                             std::to_string(awaited.sequence) + ": " +
                             describe_disagreement(the.told));
  }

  Communicators lines_;
  const Communicator::RankInfo seat_;
  NcclMessages messages_;
  std::shared_ptr<Communicator> all_;      // changes within collectives only
  std::optional<GpuMemory> barrier_word_;  // these two live as long as all_
  std::optional<Comparison> comparison_;
  // Set when a collective has been requested, as on every rank. There is then a communicator to
  // split once earlier operations are done.
  mutable std::atomic<bool> is_wanted_ = false;
};

}  // namespace

std::unique_ptr<Backend> connect_nccl(const BackendContext& context) {
  return std::make_unique<NcclBackend>(context);
}

void check_nccl_is_here() {
  need_cuda();
  need_nccl();
}

}  // namespace drun::worker
