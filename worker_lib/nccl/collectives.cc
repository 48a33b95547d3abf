#include "worker_lib/nccl/collectives.h"

#include <array>
#include <cstddef>
#include <cstring>

#include "worker_lib/algorithms/exchange.h"
#include "worker_lib/nccl/library.h"
#include "worker_lib/nccl/types.h"

namespace drun::worker {
namespace {

// Operations of one group call. Reports the first that is refused.
class Together {
 public:
  explicit Together(const nccl::Api& api) : api_(api), result_(api.group_start()) {}
  Together(const Together&) = delete;
  Together& operator=(const Together&) = delete;

  void add(nccl::Result result) {
    if (result_ == nccl::kSuccess || result_ == nccl::kInProgress) result_ = result;
  }
  nccl::Result end() {
    const nccl::Result ended = api_.group_end();
    const bool is_well = result_ == nccl::kSuccess || result_ == nccl::kInProgress;
    return is_well ? ended : result_;
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
  Issue(const Gpu& gpu, const Communicator::RankInfo& seat, const Call& call, nccl::Comm comm,
        cuda::Stream stream)
      : gpu_(gpu),
        seat_(seat),
        call_(call),
        comm_(comm),
        stream_(stream),
        moved_(nccl::moved_as(call.type)),
        element_(size_bytes(call.type)),
        op_(nccl::number_of(call.op)) {}

  // Runs `issue` with an op of NCCL's own for the factor, if there is one. NCCL copies the op with
  // each operation.
  template <typename Action>
  nccl::Result with_op(const Action& action) {
    if (!call_.factor) return action(*this);
    Scalar scalar = scalar_of(call_);
    const nccl::Result made = api_.create_premul_sum(&op_, scalar.bytes.data(), type(),
                                                     nccl::kScalarHostImmediate, comm_);
    if (made != nccl::kSuccess) return made;
    const nccl::Result result = action(*this);
    const nccl::Result ended = api_.destroy_op(op_, comm_);
    const bool is_well = result == nccl::kSuccess || result == nccl::kInProgress;
    return is_well && ended != nccl::kSuccess ? ended : result;
  }

  nccl::Result broadcast() const {
    return api_.broadcast(call_.input, call_.output, units(call_.count), moved_.type, call_.root,
                          comm_, stream_);
  }
  nccl::Result all_reduce() const {
    return api_.all_reduce(call_.input, call_.output, call_.count, type(), op_, comm_, stream_);
  }
  nccl::Result reduce() const {
    return api_.reduce(call_.input, call_.output, call_.count, type(), op_, call_.root, comm_,
                       stream_);
  }
  nccl::Result all_gather() const {
    if (call_.is_uneven) return broadcast_all();
    return api_.all_gather(call_.input, call_.output, units(call_.count), moved_.type, comm_,
                           stream_);
  }
  nccl::Result reduce_scatter() const {
    if (call_.is_uneven) return reduce_all();
    return api_.reduce_scatter(call_.input, call_.output, call_.count, type(), op_, comm_, stream_);
  }

  nccl::Result gather() const {
    const Parts out(call_.counts_out, call_.count, element_, seat_.size);
    if (is_root()) copy(at(call_.output, out.offset(seat_.rank)), call_.input, call_.count);
    Together together(api_);
    if (!is_root()) together.add(send(call_.input, call_.count, call_.root));
    for (int from = 0; is_root() && from < seat_.size; ++from) {
      if (from == seat_.rank) continue;
      together.add(recv(at(call_.output, out.offset(from)), out.size_bytes(from), from));
    }
    return together.end();
  }

  nccl::Result scatter() const {
    const Parts in(call_.counts_in, call_.count, element_, seat_.size);
    if (is_root()) copy(call_.output, at(call_.input, in.offset(seat_.rank)), call_.count);
    Together together(api_);
    if (!is_root()) together.add(recv(call_.output, call_.count * element_, call_.root));
    for (int to = 0; is_root() && to < seat_.size; ++to) {
      if (to == seat_.rank) continue;
      together.add(send(at(call_.input, in.offset(to)), in.size_bytes(to) / element_, to));
    }
    return together.end();
  }

  nccl::Result all_to_all() const {
    const Parts in(call_.counts_in, call_.count, element_, seat_.size);
    const Parts out(call_.counts_out, call_.count, element_, seat_.size);
    copy(at(call_.output, out.offset(seat_.rank)), at(call_.input, in.offset(seat_.rank)),
         in.size_bytes(seat_.rank) / element_);
    Together together(api_);
    for (int peer = 0; peer < seat_.size; ++peer) {
      if (peer == seat_.rank) continue;
      together.add(send(at(call_.input, in.offset(peer)), in.size_bytes(peer) / element_, peer));
      together.add(recv(at(call_.output, out.offset(peer)), out.size_bytes(peer), peer));
    }
    return together.end();
  }

 private:
  bool is_root() const { return seat_.rank == call_.root; }
  std::size_t units(std::size_t count) const { return count * moved_.units; }
  int type() const { return nccl::number_of(call_.type); }
  static const char* at(const void* data, std::size_t offset) {
    return static_cast<const char*>(data) + offset;
  }
  static char* at(void* data, std::size_t offset) { return static_cast<char*>(data) + offset; }

  // Parts of no size are not sent: both sides know it.
  nccl::Result send(const void* data, std::size_t count, int to) const {
    if (count == 0) return nccl::kSuccess;
    return api_.send(data, units(count), moved_.type, to, comm_, stream_);
  }
  nccl::Result recv(void* data, std::size_t bytes, int from) const {
    if (bytes == 0) return nccl::kSuccess;
    return api_.recv(data, units(bytes / element_), moved_.type, from, comm_, stream_);
  }
  void copy(void* to, const void* from, std::size_t count) const {
    if (count == 0) return;
    gpu_.must(
        gpu_.api().copy_on_device(reinterpret_cast<cuda::Address>(to),
                                  reinterpret_cast<cuda::Address>(from), count * element_, stream_),
        "cuMemcpyDtoDAsync");
  }

  // all_gather_v: every rank broadcasts.
  nccl::Result broadcast_all() const {
    const Parts out(call_.counts_out, call_.count, element_, seat_.size);
    Together together(api_);
    for (int root = 0; root < seat_.size; ++root) {
      const std::size_t count = out.size_bytes(root) / element_;
      if (count == 0) continue;
      char* const part = at(call_.output, out.offset(root));
      together.add(api_.broadcast(root == seat_.rank ? call_.input : part, part, units(count),
                                  moved_.type, root, comm_, stream_));
    }
    return together.end();
  }

  // reduce_scatter_v: every rank is the root of its part.
  nccl::Result reduce_all() const {
    const Parts in(call_.counts_in, call_.count, element_, seat_.size);
    Together together(api_);
    for (int root = 0; root < seat_.size; ++root) {
      const std::size_t count = in.size_bytes(root) / element_;
      if (count == 0) continue;
      together.add(api_.reduce(at(call_.input, in.offset(root)),
                               root == seat_.rank ? call_.output : nullptr, count, type(), op_,
                               root, comm_, stream_));
    }
    return together.end();
  }

  const nccl::Api& api_ = need_nccl();
  const Gpu& gpu_;
  const Communicator::RankInfo& seat_;
  const Call& call_;
  nccl::Comm comm_;
  cuda::Stream stream_;
  const nccl::Moved moved_;
  const std::size_t element_;
  int op_;
};

}  // namespace

nccl::Result issue(const std::vector<P2P>& messages, nccl::Comm comm, cuda::Stream stream) {
  const nccl::Api& api = need_nccl();
  Together together(api);
  for (const P2P& each : messages) {
    if (each.count == 0) continue;
    const nccl::Moved moved = nccl::moved_as(each.type);
    const std::size_t units = each.count * moved.units;
    together.add(each.is_send ? api.send(each.data, units, moved.type, each.peer, comm, stream)
                              : api.recv(each.data, units, moved.type, each.peer, comm, stream));
  }
  return together.end();
}

nccl::Result issue(const Gpu& gpu, const Communicator::RankInfo& seat, const Call& call,
                   nccl::Comm comm, cuda::Stream stream) {
  Issue issue(gpu, seat, call, comm, stream);
  switch (call.operation) {
    case Operation::Barrier:
      break;
    case Operation::Broadcast:
      return issue.broadcast();
    case Operation::AllReduce:
      return issue.with_op([](const Issue& each) { return each.all_reduce(); });
    case Operation::Reduce:
      return issue.with_op([](const Issue& each) { return each.reduce(); });
    case Operation::Gather:
      return issue.gather();
    case Operation::AllGather:
      return issue.all_gather();
    case Operation::Scatter:
      return issue.scatter();
    case Operation::ReduceScatter:
      return issue.with_op([](const Issue& each) { return each.reduce_scatter(); });
    case Operation::AllToAll:
      return issue.all_to_all();
  }
  return nccl::kInvalidUsage;
}

}  // namespace drun::worker
