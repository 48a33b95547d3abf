// edge. The backend over MPI.
//
// Every operation is started without blocking and polled until it is done, so that deadlines, and
// an abort by another thread, can end the wait. The thread yields the processor between polls.
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "drun/backend.h"
#include "drun/mpi.h"
#include "worker_lib/base/signature.h"
#include "worker_lib/math/reduce.h"
#include "worker_lib/mesh/gather_texts.h"

namespace drun {
namespace worker::mpi {
namespace {

using Kind = WorkerError::Kind;

// --- Types, operations, counts and errors of MPI

// Throws System with MPI's text for the code, unless it is MPI_SUCCESS.
void must(int code, const char* what, std::optional<int> peer = {}) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw BackendFailure(
      Kind::System, peer,
      std::string(what) + ": " + std::string(text.data(), static_cast<std::size_t>(length)));
}

// Initializes MPI with MPI_THREAD_MULTIPLE if the program has not, and then finalizes it at exit.
void initialize() {
  int is_done = 0;
  MPI_Initialized(&is_done);
  if (is_done == 0) {
    int provided = 0;
    must(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    // Else mpirun takes the end of this process for a crash.
    std::atexit([] {
      int is_over = 0;
      MPI_Finalized(&is_over);
      if (is_over == 0) MPI_Finalize();
    });
  }
  int level = 0;
  MPI_Query_thread(&level);
  if (level < MPI_THREAD_MULTIPLE) {
    throw BackendFailure(Kind::Unsupported,
                         "MPI was initialized without MPI_THREAD_MULTIPLE, which the backend mpi "
                         "needs; use MPI_Init_thread, or leave it to drun");
  }
}

// Absent if MPI has no such type.
std::optional<MPI_Datatype> mpi_type(DataType type) {
  // In the order of DataType.
  const MPI_Datatype none = MPI_DATATYPE_NULL;
  const std::array<MPI_Datatype, 13> types = {
      MPI_UINT8_T, MPI_INT8_T, MPI_INT16_T, MPI_INT32_T, MPI_UINT32_T, MPI_INT64_T, MPI_UINT64_T,
      none,        none,       MPI_FLOAT,   MPI_DOUBLE,  none,         none};
  const MPI_Datatype found = types[static_cast<std::size_t>(type)];
  return found == none ? std::nullopt : std::optional<MPI_Datatype>(found);
}

// A type of the same size, for elements that are only moved.
MPI_Datatype moved_as(DataType type) {
  return mpi_type(type).value_or(size_bytes(type) == 1 ? MPI_UINT8_T : MPI_UINT16_T);
}

// For Avg: the sum.
MPI_Op mpi_op(ReduceOp op) {
  // In the order of ReduceOp.
  const std::array<MPI_Op, 8> ops = {MPI_SUM,  MPI_PROD, MPI_MIN,  MPI_MAX,
                                     MPI_BAND, MPI_BOR,  MPI_BXOR, MPI_SUM};
  return ops[static_cast<std::size_t>(op)];
}

// Why MPI, which counts with int, does not support this number of elements; empty if it does.
std::string refusal_of_count(std::size_t count) {
  if (count <= static_cast<std::size_t>(std::numeric_limits<int>::max())) return "";
  return "MPI takes at most 2^31 - 1 elements at once, not " + std::to_string(count) +
         "; split the operation, or use shm+tcp";
}

// Requires that refusal_of_count() is empty.
int to_int(std::size_t count) {
  assert(refusal_of_count(count).empty());
  return static_cast<int>(count);
}

void keep_for_ever(std::shared_ptr<void> state) {
  static std::mutex& mutex = *new std::mutex;
  static std::vector<std::shared_ptr<void>>& kept = *new std::vector<std::shared_ptr<void>>;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(state));
}

// Whether any of these is pending. Polls once.
bool are_under_way(MPI_Request* requests, std::size_t count) noexcept {
  int is_over = 0;
  MPI_Finalized(&is_over);
  if (is_over != 0) return false;
  bool is_any = false;
  for (MPI_Request* request = requests; request != requests + count; ++request) {
    int is_done = 1;
    if (*request != MPI_REQUEST_NULL) MPI_Test(request, &is_done, MPI_STATUS_IGNORE);
    if (is_done == 0) is_any = true;
  }
  return is_any;
}

// MPI cannot be interrupted: it accesses a request's memory until the request is done. If a Held is
// destroyed while its State (with an array `requests`) has pending requests, the State is kept
// until the process ends, and `has_left` is set.
template <typename State>
class Held {
 public:
  explicit Held(std::atomic<bool>& has_left)
      : state_(std::make_shared<State>()), has_left_(has_left) {}
  ~Held() {
    if (!are_under_way(state_->requests.data(), state_->requests.size())) return;
    has_left_ = true;
    keep_for_ever(state_);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  State* operator->() const { return state_.get(); }
  State& operator*() const { return *state_; }

 private:
  std::shared_ptr<State> state_;
  std::atomic<bool>& has_left_;
};

// --- Communicators

class Communicator {
 public:
  // `has_left`: set if requests were left pending, and freeing would wait for the other ranks.
  Communicator(MPI_Comm comm, const std::atomic<bool>& has_left)
      : comm_(comm), has_left_(has_left) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }
  ~Communicator() {
    int is_over = 0;
    MPI_Finalized(&is_over);
    if (is_over == 0 && !has_left_) MPI_Comm_free(&comm_);
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  MPI_Comm get() const { return comm_; }

 private:
  MPI_Comm comm_;
  const std::atomic<bool>& has_left_;
};

// MPI_COMM_WORLD returns its errors instead of ending the program.
class WorldErrorsReturned {
 public:
  WorldErrorsReturned() {
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before_);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }
  ~WorldErrorsReturned() {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, before_);
    MPI_Errhandler_free(&before_);
  }
  WorldErrorsReturned(const WorldErrorsReturned&) = delete;
  WorldErrorsReturned& operator=(const WorldErrorsReturned&) = delete;

 private:
  MPI_Errhandler before_ = MPI_ERRHANDLER_NULL;
};

// --- Collectives

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
template <typename T>
struct ComparisonState {
  std::vector<T> mine{};
  std::vector<T> all{};
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

int most_tag() {
  int* most = nullptr;
  int is_set = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &is_set);
  return is_set != 0 ? *most : 32767;  // the least that the standard allows
}

// Rank of each member in MPI_COMM_WORLD, told over the store.
std::vector<int> world_ranks(const BackendContext& context) {
  initialize();
  int mine = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &mine);
  if (context.size == 1) return {mine};
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const std::vector<std::string> texts = gather_texts(context, "mpi", std::to_string(mine));
  std::vector<int> ranks;
  for (int rank = 0; rank < context.size; ++rank) {
    ranks.push_back(std::atoi(texts[static_cast<std::size_t>(rank)].c_str()));
    const bool is_new = std::find(ranks.begin(), ranks.end() - 1, ranks.back()) == ranks.end() - 1;
    if (is_new && ranks.back() >= 0 && ranks.back() < size) continue;
    throw BackendFailure(Kind::Usage, rank,
                         "the backend mpi needs all ranks to be of one mpirun: rank " +
                             std::to_string(rank) + " has rank " + std::to_string(ranks.back()) +
                             " of " + std::to_string(size) + " in MPI_COMM_WORLD");
  }
  return ranks;
}

int issue(const Call& call, int rank, const Shares& in, const Shares& out, MPI_Request& request,
          MPI_Comm comm) {
  const MPI_Datatype type = moved_as(call.type);
  const int count = to_int(call.count);
  // Only the root may ask for that. Without elements, all pointers can be null.
  const bool is_in_place = rank == call.root && call.input == call.output;
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

class MpiBackend final : public Backend {
 public:
  explicit MpiBackend(const BackendContext& context)
      : rank_(context.rank),
        size_(context.size),
        is_debug_(context.is_debug),
        members_(world_ranks(context)),
        most_tag_(most_tag()),
        collectives_(make_communicator(1), has_left_),
        headers_(make_communicator(2), has_left_),
        payloads_(make_communicator(3), has_left_) {}

  std::string name() const override { return "mpi"; }
  std::string refusal(const Call& call) const override {
    if (call.gpu) return "mpi works on memory of the host, not of a GPU";
    const std::string too_many = refusal_of_counts(call, size_);
    if (!too_many.empty()) return too_many;
    if (mpi_type(call.type) || !shape_of(call.operation).is_reduction) return "";
    return "MPI knows no " + std::string(to_string(call.type)) + "; use shm+tcp";
  }
  std::string message_refusal(const ConstElements& data, bool, int tag) const override {
    if (tag > most_tag_) return "this MPI's largest tag is " + std::to_string(most_tag_);
    return refusal_of_count(data.count * size_bytes(data.type));
  }
  void run(const Call& call, const Turn& turn) override {
    if (is_debug_) compare(call, turn);
    const Held<CollectiveState> state(has_left_);
    state->in.set(call.counts_in, size_);
    state->out.set(call.counts_out, size_);
    must(issue(call, rank_, state->in, state->out, state->requests[0], collectives_.get()), "MPI");
    wait(state->requests[0], turn.deadline);
    const bool has_result = call.op == ReduceOp::Avg && call.output != nullptr;
    if (has_result) divide(call.output, call.type, call.count, size_);
  }

  std::unique_ptr<Transfer> start_send(const ConstElements& data, int to, int tag) override;
  std::unique_ptr<Transfer> start_recv(const Elements& data, std::optional<int> from,
                                       int tag) override;
  void abort() noexcept override { is_aborted_ = true; }

  // Waits until the request is done. Throws after the deadline or an abort.
  void wait(MPI_Request& request, Deadline deadline, MPI_Status* status = MPI_STATUS_IGNORE,
            std::optional<int> peer = {}) {
    int is_done = 0;
    for (int looks = 1; is_done == 0; ++looks) {
      must(MPI_Test(&request, &is_done, status), "MPI_Test", peer);
      if (is_done != 0) return;
      if (is_aborted_) throw BackendFailure(Kind::Broken, "aborted");
      constexpr int kBetweenClocks = 64;
      if (looks % kBetweenClocks != 0) continue;
      sched_yield();
      if (std::chrono::steady_clock::now() >= deadline) {
        throw BackendFailure(Kind::Timeout, peer, "the others did not do their part in time");
      }
    }
  }

  // Whether wait() would return or throw at once.
  bool would_end(MPI_Request& request, MPI_Status* status = MPI_STATUS_IGNORE,
                 std::optional<int> peer = {}) {
    int is_done = 0;
    must(MPI_Test(&request, &is_done, status), "MPI_Test", peer);
    return is_done != 0 || is_aborted_;
  }
  MPI_Comm headers() const { return headers_.get(); }
  MPI_Comm payloads() const { return payloads_.get(); }
  // Of a Held.
  std::atomic<bool>& has_left() { return has_left_; }

 private:
  MPI_Comm make_communicator(int tag) const {
    const WorldErrorsReturned errors;
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

  void compare(const Call& call, const Turn& turn) {
    check_same_calls(turn.sequence, told_by_all<Signature>({signature_of(call, size_)}, turn));
    if (!has_private_counts(call)) return;
    check_part_counts(call, turn.sequence, told_by_all(part_counts(call, rank_, size_), turn),
                      size_);
  }
  // In rank order.
  template <typename T>
  std::vector<T> told_by_all(std::vector<T> mine, const Turn& turn) {
    const Held<ComparisonState<T>> state(has_left_);
    state->all.resize(mine.size() * static_cast<std::size_t>(size_));
    state->mine = std::move(mine);
    const int bytes = to_int(state->mine.size() * sizeof(T));
    must(MPI_Iallgather(state->mine.data(), bytes, MPI_BYTE, state->all.data(), bytes, MPI_BYTE,
                        collectives_.get(), &state->requests[0]),
         "MPI_Iallgather");
    wait(state->requests[0], turn.deadline);
    return std::move(state->all);
  }

  const int rank_;
  const int size_;
  const bool is_debug_;
  const std::vector<int> members_;  // their ranks in MPI_COMM_WORLD
  const int most_tag_;
  std::atomic<bool> has_left_ = false;
  Communicator collectives_;
  Communicator headers_;
  Communicator payloads_;
  std::atomic<bool> is_aborted_ = false;
  std::atomic<std::uint32_t> messages_ = 0;  // sent
};

// --- Messages: a header that describes the payload, then the payload under a separate tag, so that
// several messages of one rank can be received at the same time

// The header: type and count of the payload, and its tag.
struct Header {
  Signature signature{};
  std::uint32_t number = 0;
};

// What MPI has of a message while it is under way, beside the caller's data.
struct State {
  Header header;
  std::array<MPI_Request, 2> requests = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
};

// The least that every MPI has.
constexpr std::uint32_t kPayloadTags = 32768;

class MpiSend final : public Transfer {
 public:
  MpiSend(MpiBackend& backend, const ConstElements& data, int to, int tag, std::uint32_t number)
      : backend_(backend), to_(to), state_(backend.has_left()) {
    state_->header = {signature_of(data.type, data.count), number};
    const std::size_t bytes = data.count * size_bytes(data.type);
    must(MPI_Isend(&state_->header, sizeof(Header), MPI_BYTE, to, tag, backend.headers(),
                   &state_->requests[0]),
         "MPI_Isend", to);
    if (bytes == 0) return;
    must(MPI_Isend(data.data, to_int(bytes), MPI_BYTE, to, static_cast<int>(number % kPayloadTags),
                   backend.payloads(), &state_->requests[1]),
         "MPI_Isend", to);
  }
  int finish(Deadline deadline) override {
    for (MPI_Request& request : state_->requests) {
      backend_.wait(request, deadline, MPI_STATUS_IGNORE, to_);
    }
    return to_;
  }
  // A failed test fails again in finish().
  std::optional<bool> is_done() override {
    try {
      return backend_.would_end(state_->requests[0]) && backend_.would_end(state_->requests[1]);
    } catch (const BackendFailure&) {
      return true;
    }
  }

 private:
  MpiBackend& backend_;
  int to_;
  const Held<State> state_;
};

class MpiReceive final : public Transfer {
 public:
  MpiReceive(MpiBackend& backend, const Elements& data, std::optional<int> from, int tag)
      : backend_(backend), data_(data), from_(from), state_(backend.has_left()) {
    must(MPI_Irecv(&state_->header, sizeof(Header), MPI_BYTE, from.value_or(MPI_ANY_SOURCE), tag,
                   backend.headers(), &state_->requests[0]),
         "MPI_Irecv", from);
  }
  int finish(Deadline deadline) override {
    if (failure_) std::rethrow_exception(failure_);
    if (!sender_) {
      MPI_Status status;
      backend_.wait(state_->requests[0], deadline, &status, from_);
      take_header(status);
    }
    backend_.wait(state_->requests[1], deadline, MPI_STATUS_IGNORE, sender_);
    return *sender_;
  }
  std::optional<bool> is_done() override {
    try {
      MPI_Status status{};
      status.MPI_SOURCE = MPI_ANY_SOURCE;
      if (!sender_ && backend_.would_end(state_->requests[0], &status, from_)) {
        if (status.MPI_SOURCE < 0) return true;  // aborted
        take_header(status);
      }
      return sender_ && backend_.would_end(state_->requests[1], MPI_STATUS_IGNORE, sender_);
    } catch (...) {
      failure_ = std::current_exception();
      return true;
    }
  }

 private:
  void take_header(const MPI_Status& status) {
    const int from = status.MPI_SOURCE;
    const Signature expected = signature_of(data_.type, data_.count);
    const Header& header = state_->header;
    if (header.signature != expected) throw message_mismatch(from, header.signature, expected);
    if (data_.count > 0)
      must(MPI_Irecv(data_.data, to_int(data_.count * size_bytes(data_.type)), MPI_BYTE, from,
                     static_cast<int>(header.number % kPayloadTags), backend_.payloads(),
                     &state_->requests[1]),
           "MPI_Irecv", from);
    sender_ = from;
  }

  MpiBackend& backend_;
  Elements data_;
  std::optional<int> from_;
  std::optional<int> sender_{};   // set: the header has arrived
  std::exception_ptr failure_{};  // found by is_done()
  const Held<State> state_;
};

std::unique_ptr<Transfer> MpiBackend::start_send(const ConstElements& data, int to, int tag) {
  return std::make_unique<MpiSend>(*this, data, to, tag, messages_++);
}

std::unique_ptr<Transfer> MpiBackend::start_recv(const Elements& data, std::optional<int> from,
                                                 int tag) {
  return std::make_unique<MpiReceive>(*this, data, from, tag);
}

}  // namespace
}  // namespace worker::mpi

void register_mpi_backend() {
  register_backend("mpi", [](const BackendContext& context) {
    return std::make_unique<worker::mpi::MpiBackend>(context);
  });
}

}  // namespace drun
