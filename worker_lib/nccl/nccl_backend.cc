#include "worker_lib/nccl/nccl_backend.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker_lib/base/deadline.h"
#include "worker_lib/base/signature.h"
#include "worker_lib/nccl/collectives.h"
#include "worker_lib/nccl/communicators.h"
#include "worker_lib/nccl/library.h"
#include "worker_lib/nccl/start_queue.h"

namespace drun::worker {
namespace {

constexpr char kBatch[] = "a batch of messages";
constexpr char kRemedy[] = "; copy it to memory of the host, where shm and gloo can";

// --- Why NCCL does not support a call or message; empty if it does

std::string refusal_of_reduction(const Call& call) {
  if (call.op == ReduceOp::Band || call.op == ReduceOp::Bor || call.op == ReduceOp::Bxor)
    return "NCCL has no " + std::string(to_string(call.op)) + kRemedy;
  if (call.type == DataType::I16) return std::string("NCCL reduces no i16") + kRemedy;
  return {};
}

// A graph repeats only the work on the GPU, not this library's deadlines and checks of calls.
std::string refusal_of_stream(void* stream) {
  if (!is_capturing(loaded_cuda(), static_cast<cuda::Stream>(stream))) return {};
  return "the stream is being captured into a CUDA graph, which worker_lib does not support; "
         "call the operation before or after the capture, or on another stream";
}

std::string refusal_of_float8(int gpu) {
  const cuda::Api& cuda = need_cuda();
  cuda::Device device = 0;
  int capability = 0;
  int version = 0;
  if (cuda.device_get(&device, gpu) != cuda::kSuccess ||
      cuda.device_get_attribute(&capability, cuda::kCapabilityMajor, device) != cuda::kSuccess)
    return "the driver does not tell the GPU's compute capability";
  need_nccl().get_version(&version);
  if (version < nccl::kFirstFloat8Version)
    return "NCCL reduces no numbers of 8 bits before 2.24" + std::string(kRemedy);
  if (capability >= nccl::kFirstFloat8Capability) return {};
  return "NCCL reduces no numbers of 8 bits on a GPU of compute capability " +
         std::to_string(capability) + ".x; 9.0 or later can" + kRemedy;
}

// --- Messages. Two ranks have one communicator for both directions, connected by the
// first message, so that no message waits for a collective or for another rank's message.
//
// Order:   NCCL runs the operations of a communicator one after the other, in the order in which
//          each of its ranks has started them. Two ranks that both send first wait for each other,
//          unless NCCL can buffer the message. Messages that are issued together do not.
// Debug:   NCCL has neither tags nor headers: with is_debug, the two ranks compare type and count
//          over the store.
// Thread:  any.
// Owner:   the backend; the Communicators outlive it.
class NcclMessages {
 public:
  explicit NcclMessages(Communicators& communicators) : communicators_(communicators) {}

  // Starts one message, or several with one rank that are issued together. The GPU of each message
  // is known. Once the two ranks are connected, the calling thread issues them.
  std::shared_ptr<StartQueue::Operation> start(const std::vector<MessageCall>& messages) {
    const int peer = messages.front().peer.value();
    const int own = communicators_.context().rank;
    Channel& channel = this->channel(peer);
    const bool is_empty =
        std::all_of(messages.begin(), messages.end(),
                    [](const MessageCall& each) { return each.data().count == 0; });
    const auto connected = [this, &channel, peer, own, is_empty](const Awaited& awaited) {
      if (is_empty) return std::shared_ptr<Communicator>();
      if (!channel.communicator) {
        channel.communicator = communicators_.connect(
            name(peer), std::min(own, peer), {.rank = own < peer ? 0 : 1, .size = 2}, awaited);
        channel.is_connected = true;
      }
      return channel.communicator;
    };
    auto operation = together(messages, "pair", {.peer = peer}, own < peer ? 1 : 0, connected);
    channel.queue.add(operation);
    // Connecting and comparing wait for the other rank.
    if (channel.is_connected && !communicators_.context().is_debug) channel.queue.issue(*operation);
    return operation;
  }

  StartQueue& queue(int peer) { return channel(peer).queue; }

  // Messages that are issued together, on the communicator that `connected` returns; null: there is
  // nothing to do. Call it in the order in which messages are started. `kind` is the same on both
  // sides of a message. `rank_of_peer`: of all the peers, in the communicator; absent: as in the
  // group.
  using Connected = std::function<std::shared_ptr<Communicator>(const Awaited& awaited)>;
  std::shared_ptr<StartQueue::Operation> together(const std::vector<MessageCall>& messages,
                                                  const char* kind, const Awaited& awaited,
                                                  std::optional<int> rank_of_peer,
                                                  Connected connected) {
    std::vector<MessageCall> issued = messages;
    auto after = std::make_shared<std::vector<Event>>();
    for (MessageCall& each : issued) {
      const ConstElements data = each.data();
      after->emplace_back(communicators_.gpu(data.gpu), static_cast<cuda::Stream>(data.stream));
      if (rank_of_peer) each.peer = rank_of_peer;
    }
    return std::make_shared<StartQueue::Operation>(
        [this, awaited, issued = std::move(issued), after, connected = std::move(connected),
         all = compared(messages, kind)](Deadline deadline) {
          Awaited now = awaited;
          now.deadline = deadline;
          now.since = coarse_now();
          const std::shared_ptr<Communicator> communicator = connected(now);
          compare(all, deadline);
          if (!communicator) return StartQueue::Issued{};
          Event end = communicator->start(*after, now, [&](nccl::Comm comm, cuda::Stream stream) {
            return issue(issued, comm, stream);
          });
          return StartQueue::Issued{.communicator = communicator, .end = std::move(end)};
        },
        awaited, communicators_.context().is_debug);
  }

 private:
  // This rank and another one.
  struct Channel {
    explicit Channel(CancelToken& stop) : queue(stop) {}
    StartQueue queue;
    std::shared_ptr<Communicator> communicator = nullptr;  // belongs to the thread that issues
    std::atomic<bool> is_connected = false;
  };

  // The description of a message that its two ranks compare.
  struct Compared {
    bool is_send = false;
    int peer = 0;
    std::string key = "";
    Signature signature{};
  };
  // Empty without is_debug.
  std::vector<Compared> compared(const std::vector<MessageCall>& messages, const char* kind) {
    std::vector<Compared> all;
    if (!communicators_.context().is_debug) return all;
    all.reserve(messages.size());
    const std::lock_guard lock(mutex_);
    for (const MessageCall& message : messages) {
      const int peer = message.peer.value();
      const int own = communicators_.context().rank;
      const std::string direction = "nccl/" + std::string(kind) + "/" +
                                    std::to_string(message.is_send ? own : peer) + "-" +
                                    std::to_string(message.is_send ? peer : own);
      const ConstElements data = message.data();
      all.push_back({.is_send = message.is_send,
                     .peer = peer,
                     .key = direction + "/" + std::to_string(numbers_[direction]++),
                     .signature = signature_of(data.type, data.count)});
    }
    return all;
  }

  // Publishes the sends, then waits for the other side of the receives.
  void compare(const std::vector<Compared>& all, Deadline deadline) const {
    if (all.empty()) return;
    KeyStore& store = *communicators_.context().store;
    for (const Compared& mine : all) {
      if (!mine.is_send) continue;
      const char* const bytes = reinterpret_cast<const char*>(&mine.signature);
      store.set(mine.key, std::string(bytes, sizeof mine.signature), left_until(deadline));
    }
    for (const Compared& mine : all) {
      if (mine.is_send) continue;
      const Awaited awaited{.peer = mine.peer, .deadline = deadline};
      const std::string told =
          communicators_.read(mine.key, mine.peer, awaited, "compare a message");
      Signature theirs{};
      if (told.size() == sizeof theirs) std::memcpy(&theirs, told.data(), sizeof theirs);
      if (theirs != mine.signature) throw message_mismatch(mine.peer, theirs, mine.signature);
      store.remove(mine.key, left_until(deadline));
    }
  }

  Channel& channel(int peer) {
    const std::lock_guard lock(mutex_);
    return channels_.try_emplace(peer, communicators_.stop()).first->second;
  }
  std::string name(int peer) const {
    const auto [low, high] = std::minmax(communicators_.context().rank, peer);
    return "pair/" + std::to_string(low) + "-" + std::to_string(high);
  }

  Communicators& communicators_;
  std::mutex mutex_;
  std::map<int, Channel> channels_;               // by peer; never removed
  std::map<std::string, std::uint64_t> numbers_;  // messages of each kind and direction
};

// --- The backend

const void* memory_of(const Call& call) { return call.input != nullptr ? call.input : call.output; }

// A word of the GPU for the barriers of all groups, whose value does not matter. Never freed:
// cuMemFree waits for all running kernels, so the end of a group would wait for another group's
// collective.
void* shared_word(const std::shared_ptr<const Gpu>& gpu) {
  static std::mutex& mutex = *new std::mutex;
  static auto& words = *new std::map<int, GpuMemory>;
  const std::lock_guard lock(mutex);
  return words.try_emplace(gpu->number(), gpu, sizeof(std::uint32_t)).first->second.data();
}

class NcclBackend final : public Backend {
 public:
  explicit NcclBackend(const BackendContext& context)
      : communicators_(context), self_{context.rank, context.size}, messages_(communicators_) {
    if (context.split_off) {
      use(communicators_.adopt(std::static_pointer_cast<Communicator>(context.split_off)));
      is_wanted_ = true;
    } else if (!context.connects_later) {
      check_nccl_is_here();
      connect({.deadline = context.deadline});
      is_wanted_ = true;
    }
  }

  // Closed before the memory below is freed, because cuMemFree waits for all running kernels.
  ~NcclBackend() override {
    if (!communicators_.close()) static_cast<void>(comparison_.release());
  }

  std::string name() const override { return "nccl"; }

  std::string refusal(const Call& call) const override {
    if (!call.gpu) check_same_memory(loaded_cuda(), call.input, call.output);
    const bool reduces = shape_of(call.operation).is_reduction;
    std::string reason = reduces ? refusal_of_reduction(call) : "";
    if (reason.empty()) reason = refusal_of_memory(memory_of(call), call.gpu);
    if (reason.empty() && reduces && is_float8(call.type)) {
      const std::shared_ptr<const Gpu>& gpu = communicators_.known_gpu();
      reason = refusal_of_float8(gpu ? gpu->number()
                                     : gpu_number(call.gpu, memory_of(call)).value_or(0));
    }
    if (reason.empty()) reason = refusal_of_stream(call.stream);
    if (reason.empty()) is_wanted_ = true;
    return reason;
  }
  std::string message_refusal(const ConstElements& data, bool is_from_anyone,
                              int tag) const override {
    if (is_from_anyone) return std::string("NCCL does not receive from anyone") + kRemedy;
    if (tag != 0) return "NCCL has no tags, and this is " + std::to_string(tag) + kRemedy;
    std::string reason = refusal_of_memory(data.data, data.gpu);
    if (reason.empty()) reason = refusal_of_stream(data.stream);
    return reason;
  }

  void run(const Call& call, const Turn& turn) override {
    start(call, turn)->finish(turn.deadline);
  }

  bool starts(const Call&) const override { return true; }
  std::unique_ptr<Transfer> start(const Call& call, const Turn& turn) override {
    if (!communicators_.known_gpu()) communicators_.gpu(gpu_number(call.gpu, memory_of(call)));
    const std::shared_ptr<const Gpu>& gpu = communicators_.known_gpu();
    const Current current(*gpu);
    const auto after = std::make_shared<Event>(gpu, static_cast<cuda::Stream>(call.stream));
    const Awaited awaited{.sequence = turn.sequence};
    auto operation = std::make_shared<StartQueue::Operation>(
        [this, call, after, awaited](Deadline deadline) {
          Awaited now = awaited;
          now.deadline = deadline;
          return issue_collective(call, now, *after);
        },
        awaited, communicators_.context().is_debug);
    order_.add(operation);
    order_.issue(*operation, turn.deadline);
    order_.check(*operation);
    return std::make_unique<StartedTransfer>(order_, std::move(operation));
  }

  std::unique_ptr<Transfer> start_send(const ConstElements& data, int to, int) override {
    return start_pair({.is_send = true, .outgoing = data, .peer = to});
  }
  std::unique_ptr<Transfer> start_recv(const Elements& data, std::optional<int> from,
                                       int) override {
    return start_pair({.incoming = data, .peer = from});
  }

  // On the communicator of the group, so that a batch with many ranks is one operation of the GPU;
  // before there is one, as one operation with each other rank. The two ranks of a message decide
  // alike, because a batch takes part in the order of collectives.
  std::vector<std::unique_ptr<Transfer>> start_batch(
      const std::vector<MessageCall>& batch) override {
    std::vector<std::unique_ptr<Transfer>> transfers;
    if (batch.empty()) return transfers;
    transfers.reserve(batch.size());
    std::vector<MessageCall> located_batch;
    located_batch.reserve(batch.size());
    for (const MessageCall& message : batch) located_batch.push_back(located(message));
    if (is_wanted_) {
      const std::shared_ptr<StartQueue::Operation> operation = start_together(located_batch);
      for (const MessageCall& message : batch) {
        transfers.push_back(
            std::make_unique<StartedTransfer>(order_, operation, message.peer.value()));
      }
      return transfers;
    }
    std::map<int, std::vector<MessageCall>> by_peer;
    for (const MessageCall& message : located_batch)
      by_peer[message.peer.value()].push_back(message);
    std::map<int, std::shared_ptr<StartQueue::Operation>> operations;
    for (const auto& [peer, messages] : by_peer) operations[peer] = messages_.start(messages);
    for (const MessageCall& message : batch) {
      const int peer = message.peer.value();
      transfers.push_back(
          std::make_unique<StartedTransfer>(messages_.queue(peer), operations[peer], peer));
    }
    return transfers;
  }

  void abort() noexcept override { communicators_.close(); }
  bool detects_ends() const override { return false; }
  bool tell_lost(int rank) noexcept override {
    communicators_.stop().tell_lost(rank);
    return true;
  }

  bool splits() const override { return is_wanted_ && need_nccl().split != nullptr; }
  std::shared_ptr<void> split(std::optional<int> color, int key, const Turn& turn) override {
    const auto part = std::make_shared<std::shared_ptr<Communicator>>();
    const auto operation = std::make_shared<StartQueue::Operation>(
        [this, color, key, part](Deadline deadline) {
          const Awaited awaited{.deadline = deadline};
          if (!all_) connect(awaited);
          *part = all_->split(color, key, awaited);
          return StartQueue::Issued{};
        },
        Awaited{}, true);
    order_.add(operation);
    order_.await_end(*operation, turn.deadline);
    return *part;
  }

 private:
  StartQueue::Issued issue_collective(const Call& call, const Awaited& awaited, Event& after) {
    if (!all_) connect({.deadline = awaited.deadline});
    if (communicators_.context().is_debug) compare(call, awaited);
    const Call done = call.operation == Operation::Barrier ? barrier() : call;
    Event end = all_->start({&after, 1}, awaited, [&](nccl::Comm comm, cuda::Stream stream) {
      return issue(*all_->gpu(), self_, done, comm, stream);
    });
    return {.communicator = all_, .end = std::move(end)};
  }

  // The signatures that ranks compare before each collective with DRUN_DEBUG=1. It lives as long as
  // the backend, because cuMemFree would wait for a comparison that another rank never joins.
  struct Comparison {
    Comparison(const std::shared_ptr<const Gpu>& gpu, std::size_t ranks)
        : told(ranks), memory(gpu, sizeof(Signature) * (ranks + 1)) {}
    Signature mine{};
    std::vector<Signature> told;
    GpuMemory memory;
  };

  std::shared_ptr<StartQueue::Operation> start_together(const std::vector<MessageCall>& batch) {
    const auto connected = [this](const Awaited& awaited) {
      if (!all_) connect({.deadline = awaited.deadline});
      return all_;
    };
    auto operation = messages_.together(batch, "batch", {.what = kBatch}, std::nullopt, connected);
    order_.add(operation);
    if (!communicators_.context().is_debug) order_.issue(*operation);
    return operation;
  }

  std::unique_ptr<Transfer> start_pair(const MessageCall& message) {
    const int peer = message.peer.value();
    return std::make_unique<StartedTransfer>(messages_.queue(peer),
                                             messages_.start({located(message)}), peer);
  }

  static MessageCall located(MessageCall message) {
    message.outgoing.gpu = gpu_number(message.outgoing.gpu, message.outgoing.data);
    message.incoming.gpu = gpu_number(message.incoming.gpu, message.incoming.data);
    return message;
  }

  void connect(const Awaited& awaited) { use(communicators_.connect("all", 0, self_, awaited)); }

  void use(std::shared_ptr<Communicator> communicator) {
    all_ = std::move(communicator);
    barrier_word_ = shared_word(all_->gpu());
    if (communicators_.context().is_debug) {
      comparison_ = std::make_unique<Comparison>(all_->gpu(), static_cast<std::size_t>(self_.size));
    }
  }

  std::string refusal_of_memory(const void* memory, std::optional<int> gpu) const {
    const std::shared_ptr<const Gpu>& known = communicators_.known_gpu();
    if (!known) {
      try {
        check_nccl_is_here();
      } catch (const BackendFailure& failure) {
        return failure.what();
      }
    }
    if (memory == nullptr && !gpu) return {};
    if (!gpu) gpu = gpu_of(loaded_cuda(), memory);
    if (!gpu) {
      return "nccl works on memory of a GPU, not of the host; shm and gloo can, and "
             "cpu:shm+tcp,cuda:nccl does both";
    }
    if (*gpu < 0 || *gpu >= gpu_count()) {
      return "there is no GPU " + std::to_string(*gpu) + ": this process sees " +
             std::to_string(gpu_count());
    }
    if (!known || known->number() == *gpu) return {};
    return "this group works on GPU " + std::to_string(known->number()) +
           " here, and the data is on GPU " + std::to_string(*gpu);
  }

  static std::optional<int> gpu_number(std::optional<int> named, const void* memory) {
    return named ? named : gpu_of(loaded_cuda(), memory);
  }

  // A small sum, which completes once every rank has started it.
  Call barrier() const {
    return {.operation = Operation::AllReduce,
            .type = DataType::U32,
            .input = barrier_word_,
            .output = barrier_word_,
            .count = 1};
  }

  void compare(const Call& call, const Awaited& awaited) {
    check_same_calls(awaited.sequence, told_by_all(signature_of(call, self_.size), awaited));
    if (!has_private_counts(call)) return;
    const PartCounts mine = part_counts(call, self_.rank, self_.size);
    const auto size = static_cast<std::size_t>(self_.size);
    PartCounts all(size * mine.size());
    // The memory has room for two numbers of each rank.
    for (std::size_t peer = 0; peer < size; ++peer) {
      const auto& told = told_by_all({.what = mine[peer], .count = mine[size + peer]}, awaited);
      for (std::size_t rank = 0; rank < size; ++rank) {
        all[rank * mine.size() + peer] = told[rank].what;
        all[rank * mine.size() + size + peer] = told[rank].count;
      }
    }
    check_part_counts(call, awaited.sequence, all, self_.size);
  }

  // In rank order; valid until the next call.
  const std::vector<Signature>& told_by_all(const Signature& mine, const Awaited& awaited) {
    const std::shared_ptr<const Gpu>& gpu = all_->gpu();
    Comparison& the = *comparison_;
    the.mine = mine;
    constexpr std::size_t kBytes = sizeof the.mine;
    const cuda::Address all = the.memory.address() + kBytes;
    const auto in_order = [&](const Communicator::Action& action) {
      Event none(gpu, nullptr);
      all_->wait(all_->start({&none, 1}, awaited, action), awaited);
      all_->release();
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
    return the.told;
  }

  Communicators communicators_;
  const Communicator::RankInfo self_;
  NcclMessages messages_;
  StartQueue order_{communicators_.stop()};
  std::shared_ptr<Communicator> all_;  // belongs to the thread that issues order_
  void* barrier_word_ = nullptr;
  std::unique_ptr<Comparison> comparison_;  // lives as long as all_
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
