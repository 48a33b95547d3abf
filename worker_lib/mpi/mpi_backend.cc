#include "worker_lib/mpi/mpi_backend.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>

#include "drun/mpi.h"
#include "worker_lib/base/signature.h"
#include "worker_lib/math/reduce.h"
#include "worker_lib/mpi/mpi_types.h"

namespace drun {
namespace worker::mpi {
namespace {

using Kind = WorkerError::Kind;

// Counts and displacements of parts in a row.
struct Shares {
  std::vector<int> counts;
  std::vector<int> offsets;

  void set(const std::size_t* sizes, int size) {
    if (sizes == nullptr) return;
    std::size_t offset = 0;
    for (int rank = 0; rank < size; ++rank) {
      counts.push_back(to_int(sizes[rank]));
      offsets.push_back(to_int(offset));
      offset += sizes[rank];
    }
  }
};

// What MPI has of a collective while it is under way, beside the caller's data.
struct CollectiveState {
  Shares in{};
  Shares out{};
  std::array<MPI_Request, 1> requests = {MPI_REQUEST_NULL};
};
struct ComparisonState {
  Signature mine{};
  std::vector<Signature> all{};
  std::array<MPI_Request, 1> requests = {MPI_REQUEST_NULL};
};

// Displacements are ints too.
std::string refusal_of_counts(const Call& call, int size) {
  std::string refusal = refusal_of_count(call.count);
  for (const std::size_t* counts : {call.counts_in, call.counts_out}) {
    std::size_t total = 0;
    for (int rank = 0; counts != nullptr && rank < size; ++rank) total += counts[rank];
    if (refusal.empty()) refusal = refusal_of_count(total);
  }
  return refusal;
}

// Rank of each member in MPI_COMM_WORLD, told over the store.
std::vector<int> world_ranks(const BackendContext& context) {
  initialize();
  int mine = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &mine);
  if (context.size == 1) return {mine};
  const auto left = [&context] {
    using std::chrono::milliseconds;
    return std::max(std::chrono::duration_cast<milliseconds>(context.deadline -
                                                             std::chrono::steady_clock::now()),
                    milliseconds(1));
  };
  KeyStore& store = *context.store;
  store.set("mpi/" + std::to_string(context.rank), std::to_string(mine), left());
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<int> ranks;
  for (int rank = 0; rank < context.size; ++rank) {
    ranks.push_back(std::atoi(store.get("mpi/" + std::to_string(rank), left()).c_str()));
    const bool is_new = std::find(ranks.begin(), ranks.end() - 1, ranks.back()) == ranks.end() - 1;
    if (is_new && ranks.back() >= 0 && ranks.back() < size) continue;
    throw BackendFailure(Kind::Usage, rank,
                         "the backend mpi needs all ranks to be of one mpirun: rank " +
                             std::to_string(rank) + " has rank " + std::to_string(ranks.back()) +
                             " of " + std::to_string(size) + " in MPI_COMM_WORLD");
  }
  return ranks;
}

// What only moves is moved as bytes of an unsigned type as wide.
MPI_Datatype carrier(DataType type) { return mpi_type(type).value_or(MPI_UINT16_T); }

int issue(const Call& call, const Shares& in, const Shares& out, MPI_Request& request,
          MPI_Comm comm) {
  const MPI_Datatype type = carrier(call.type);
  const int count = to_int(call.count);
  const bool is_in_place = call.input == call.output;
  switch (call.operation) {
    case Operation::Barrier:
      return MPI_Ibarrier(comm, &request);
    case Operation::Broadcast:
      return MPI_Ibcast(call.output, count, type, call.root, comm, &request);
    case Operation::AllReduce:
      return MPI_Iallreduce(MPI_IN_PLACE, call.output, count, type, mpi_op(call.op), comm,
                            &request);
    case Operation::Reduce:
      return MPI_Ireduce(is_in_place ? MPI_IN_PLACE : call.input, call.output, count, type,
                         mpi_op(call.op), call.root, comm, &request);
    case Operation::Gather:
      if (!call.is_uneven) {
        return MPI_Igather(call.input, count, type, call.output, count, type, call.root, comm,
                           &request);
      }
      return MPI_Igatherv(call.input, count, type, call.output, out.counts.data(),
                          out.offsets.data(), type, call.root, comm, &request);
    case Operation::AllGather:
      if (!call.is_uneven) {
        return MPI_Iallgather(call.input, count, type, call.output, count, type, comm, &request);
      }
      return MPI_Iallgatherv(call.input, count, type, call.output, out.counts.data(),
                             out.offsets.data(), type, comm, &request);
    case Operation::Scatter:
      if (!call.is_uneven) {
        return MPI_Iscatter(call.input, count, type, call.output, count, type, call.root, comm,
                            &request);
      }
      return MPI_Iscatterv(call.input, in.counts.data(), in.offsets.data(), type, call.output,
                           count, type, call.root, comm, &request);
    case Operation::ReduceScatter:
      if (!call.is_uneven) {
        return MPI_Ireduce_scatter_block(call.input, call.output, count, type, mpi_op(call.op),
                                         comm, &request);
      }
      return MPI_Ireduce_scatter(call.input, call.output, in.counts.data(), type, mpi_op(call.op),
                                 comm, &request);
    case Operation::AllToAll:
      if (!call.is_uneven) {
        return MPI_Ialltoall(call.input, count, type, call.output, count, type, comm, &request);
      }
      return MPI_Ialltoallv(call.input, in.counts.data(), in.offsets.data(), type, call.output,
                            out.counts.data(), out.offsets.data(), type, comm, &request);
  }
  return MPI_ERR_OTHER;
}

}  // namespace

MpiBackend::MpiBackend(const BackendContext& context)
    : size_(context.size),
      is_debug_(context.is_debug),
      members_(world_ranks(context)),
      collectives_(make_communicator(1)),
      headers_(make_communicator(2)),
      payloads_(make_communicator(3)) {}

std::string MpiBackend::refusal(const Call& call) const {
  if (call.gpu) return "mpi works on memory of the host, not of a GPU";
  const bool is_moved_only = call.operation != Operation::AllReduce &&
                             call.operation != Operation::Reduce &&
                             call.operation != Operation::ReduceScatter;
  const std::string too_many = refusal_of_counts(call, size_);
  if (!too_many.empty()) return too_many;
  if (mpi_type(call.type) || is_moved_only) return "";
  return "MPI knows no " + std::string(to_string(call.type)) + "; use shm+tcp";
}

std::string MpiBackend::message_refusal(const ConstElements& data, bool, int) const {
  return refusal_of_count(data.count * size_bytes(data.type));
}

void MpiBackend::run(const Call& call, const Turn& turn) {
  if (is_debug_) compare(call, turn);
  const Held<CollectiveState> state;
  state->in.set(call.counts_in, size_);
  state->out.set(call.counts_out, size_);
  must(issue(call, state->in, state->out, state->requests[0], collectives_.get()), "MPI");
  wait(state->requests[0], turn.deadline);
  const bool has_result = call.op == ReduceOp::Avg && call.output != nullptr;
  if (has_result) divide(call.output, call.type, call.count, size_);
}

void MpiBackend::abort() noexcept {
  is_aborted_ = true;
  collectives_.abandon();
  headers_.abandon();
  payloads_.abandon();
}

bool MpiBackend::would_end(MPI_Request& request, MPI_Status* status, std::optional<int> peer) {
  int is_done = 0;
  must(MPI_Test(&request, &is_done, status), "MPI_Test", peer);
  return is_done != 0 || is_aborted_;
}

void MpiBackend::wait(MPI_Request& request, Deadline deadline, MPI_Status* status,
                      std::optional<int> peer) {
  int is_done = 0;
  for (int looks = 1; is_done == 0; ++looks) {
    must(MPI_Test(&request, &is_done, status), "MPI_Test", peer);
    if (is_done != 0) return;
    if (is_aborted_) throw BackendFailure(Kind::Broken, std::nullopt, "aborted");
    constexpr int kBetweenClocks = 64;
    if (looks % kBetweenClocks != 0) continue;
    sched_yield();
    if (std::chrono::steady_clock::now() >= deadline) {
      throw BackendFailure(Kind::Timeout, peer, "the others did not do their part in time");
    }
  }
}

MPI_Comm MpiBackend::make_communicator(int tag) const {
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  must(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  must(MPI_Group_incl(world, static_cast<int>(members_.size()), members_.data(), &group),
       "MPI_Group_incl");
  must(MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &comm), "MPI_Comm_create_group");
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  return comm;
}

void MpiBackend::compare(const Call& call, const Turn& turn) {
  const Held<ComparisonState> state;
  Signature& mine = state->mine;
  std::vector<Signature>& all = state->all;
  mine = signature_of(call, size_);
  all.resize(static_cast<std::size_t>(size_));
  must(MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE,
                      collectives_.get(), &state->requests[0]),
       "MPI_Iallgather");
  wait(state->requests[0], turn.deadline);
  if (std::all_of(all.begin(), all.end(), [&](const Signature& each) { return each == mine; })) {
    return;
  }
  throw BackendFailure(Kind::Mismatch, std::nullopt,
                       "the ranks disagree about collective number " +
                           std::to_string(turn.sequence) + ": " + describe_disagreement(all));
}

}  // namespace worker::mpi

void register_mpi_backend() {
  register_backend("mpi", [](const BackendContext& context) {
    return std::make_unique<worker::mpi::MpiBackend>(context);
  });
}

}  // namespace drun
