#include "worker_lib/nccl/collectives.h"

#include <array>
#include <cstddef>
#include <cstring>

#include "worker_lib/algorithms/exchange.h"
#include "worker_lib/nccl/library.h"

namespace drun::worker {
namespace {

// The number of a type for reductions, in the order of DataType. NCCL has no I16.
constexpr std::array kTypes = {nccl::kU8,  nccl::kI8,     nccl::kU8,    nccl::kI32,  nccl::kU32,
                               nccl::kI64, nccl::kU64,    nccl::kF16,   nccl::kBF16, nccl::kF32,
                               nccl::kF64, nccl::kF8E4M3, nccl::kF8E5M2};
// In the order of ReduceOp. NCCL has no Band, Bor and Bxor.
constexpr std::array kOps = {nccl::kSum, nccl::kProduct, nccl::kMin, nccl::kMax,
                             nccl::kSum, nccl::kSum,     nccl::kSum, nccl::kAverage};

// How elements are moved without computing. I16 and numbers of 8 bits, which NCCL supports only
// lately, are moved as bytes.
struct Moved {
  int type = 0;
  std::size_t units = 1;  // per element
};
Moved moved_as(DataType type) {
  if (type == DataType::I16 || is_float8(type)) return {nccl::kU8, size_bytes(type)};
  return {kTypes[static_cast<std::size_t>(type)], 1};
}

bool is_well(nccl::Result result) {
  return result == nccl::kSuccess || result == nccl::kInProgress;
}

// Operations of one group call. Reports the first that is refused.
class Together {
 public:
  explicit Together(const nccl::Api& api) : api_(api), result_(api.group_start()) {}
  Together(const Together&) = delete;
  Together& operator=(const Together&) = delete;

  void add(nccl::Result result) {
    if (is_well(result_)) result_ = result;
  }
  nccl::Result end() {
    const nccl::Result ended = api_.group_end();
    return is_well(result_) ? ended : result_;
  }

 private:
  const nccl::Api& api_;
  nccl::Result result_;
};

// The factor of a call, in the call's type.
struct Scalar {
  alignas(double) std::array<std::byte, sizeof(double)> bytes{};
};
Scalar scalar_of(const Call& call) {
  Scalar scalar;
  const auto put = [&](auto value) { std::memcpy(scalar.bytes.data(), &value, sizeof value); };
  const double factor = call.factor.value();
  if (call.type == DataType::F64) put(factor);
  if (call.type == DataType::F32) put(static_cast<float>(factor));
  if (call.type == DataType::F16) put(Float16(static_cast<float>(factor)));
  if (call.type == DataType::BF16) put(BFloat16(static_cast<float>(factor)));
  return scalar;
}

class Issue {
 public:
  Issue(const Gpu& gpu, const Communicator::RankInfo& self, const Call& call, nccl::Comm comm,
        cuda::Stream stream)
      : gpu_(gpu),
        self_(self),
        call_(call),
        comm_(comm),
        stream_(stream),
        moved_(moved_as(call.type)),
        element_(size_bytes(call.type)),
        op_(kOps[static_cast<std::size_t>(call.op)]) {}

  // With an op of NCCL's own for the factor, if there is one. NCCL copies the op with each
  // operation.
  nccl::Result run() {
    if (!call_.factor) return issue();
    Scalar scalar = scalar_of(call_);
    const nccl::Result made = api_.create_premul_sum(&op_, scalar.bytes.data(), type(),
                                                     nccl::kScalarHostImmediate, comm_);
    if (made != nccl::kSuccess) return made;
    const nccl::Result result = issue();
    const nccl::Result ended = api_.destroy_op(op_, comm_);
    return is_well(result) && ended != nccl::kSuccess ? ended : result;
  }

 private:
  nccl::Result issue() const {
    switch (call_.operation) {
      case Operation::Barrier:
        break;
      case Operation::Broadcast:
        return api_.broadcast(call_.input, call_.output, units(call_.count), moved_.type,
                              call_.root, comm_, stream_);
      case Operation::AllReduce:
        return api_.all_reduce(call_.input, call_.output, call_.count, type(), op_, comm_, stream_);
      case Operation::Reduce:
        return api_.reduce(call_.input, call_.output, call_.count, type(), op_, call_.root, comm_,
                           stream_);
      case Operation::Gather:
      case Operation::Scatter:
      case Operation::AllToAll:
        return move_parts();
      case Operation::AllGather:
        if (call_.is_uneven) return broadcast_all();
        return api_.all_gather(call_.input, call_.output, units(call_.count), moved_.type, comm_,
                               stream_);
      case Operation::ReduceScatter:
        if (call_.is_uneven) return reduce_all();
        return api_.reduce_scatter(call_.input, call_.output, call_.count, type(), op_, comm_,
                                   stream_);
    }
    return nccl::kInvalidUsage;
  }

  nccl::Result move_parts() const {
    const int me = self_.rank;
    const PartMoves parts(call_, me, self_.size);
    copy(parts.received_from(me).data, parts.sent_to(me).data, parts.sent_to(me).size_bytes);
    Together together(api_);
    for (int peer = 0; peer < self_.size; ++peer) {
      if (peer == me) continue;
      const auto out = parts.sent_to(peer);
      const auto in = parts.received_from(peer);
      // Parts of no size are not sent: both sides know it.
      if (out.size_bytes > 0)
        together.add(api_.send(out.data, units(out.size_bytes / element_), moved_.type, peer, comm_,
                               stream_));
      if (in.size_bytes > 0)
        together.add(
            api_.recv(in.data, units(in.size_bytes / element_), moved_.type, peer, comm_, stream_));
    }
    return together.end();
  }

  std::size_t units(std::size_t count) const { return count * moved_.units; }
  int type() const { return kTypes[static_cast<std::size_t>(call_.type)]; }

  void copy(void* to, const void* from, std::size_t bytes) const {
    if (bytes == 0) return;
    gpu_.must(gpu_.api().copy_on_device(reinterpret_cast<cuda::Address>(to),
                                        reinterpret_cast<cuda::Address>(from), bytes, stream_),
              "cuMemcpyDtoDAsync");
  }

  // all_gather_v: every rank broadcasts.
  nccl::Result broadcast_all() const {
    const PartMoves parts(call_, self_.rank, self_.size);
    Together together(api_);
    for (int root = 0; root < self_.size; ++root) {
      const auto part = parts.received_from(root);
      if (part.size_bytes == 0) continue;
      together.add(api_.broadcast(root == self_.rank ? call_.input : part.data, part.data,
                                  units(part.size_bytes / element_), moved_.type, root, comm_,
                                  stream_));
    }
    return together.end();
  }

  // reduce_scatter_v: every rank is the root of its part.
  nccl::Result reduce_all() const {
    const PartMoves parts(call_, self_.rank, self_.size);
    Together together(api_);
    for (int root = 0; root < self_.size; ++root) {
      const auto part = parts.sent_to(root);
      if (part.size_bytes == 0) continue;
      together.add(api_.reduce(part.data, root == self_.rank ? call_.output : nullptr,
                               part.size_bytes / element_, type(), op_, root, comm_, stream_));
    }
    return together.end();
  }

  const nccl::Api& api_ = need_nccl();
  const Gpu& gpu_;
  const Communicator::RankInfo& self_;
  const Call& call_;
  nccl::Comm comm_;
  cuda::Stream stream_;
  const Moved moved_;
  const std::size_t element_;
  int op_;
};

}  // namespace

bool is_float8(DataType type) { return type == DataType::F8E4M3 || type == DataType::F8E5M2; }

nccl::Result issue(const std::vector<MessageCall>& messages, nccl::Comm comm, cuda::Stream stream) {
  const nccl::Api& api = need_nccl();
  Together together(api);
  for (const MessageCall& each : messages) {
    const ConstElements data = each.data();
    if (data.count == 0) continue;
    const Moved moved = moved_as(data.type);
    const std::size_t units = data.count * moved.units;
    const int peer = each.peer.value();
    together.add(each.is_send
                     ? api.send(data.data, units, moved.type, peer, comm, stream)
                     : api.recv(each.incoming.data, units, moved.type, peer, comm, stream));
  }
  return together.end();
}

nccl::Result issue(const Gpu& gpu, const Communicator::RankInfo& self, const Call& call,
                   nccl::Comm comm, cuda::Stream stream) {
  return Issue(gpu, self, call, comm, stream).run();
}

}  // namespace drun::worker
