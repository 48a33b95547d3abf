// core. The interface of backends, which move data between the ranks of a group, and their
// registry.
//
// A ProcessGroup checks arguments, orders calls, and handles deadlines and the first failure; a
// backend only moves bytes. drun includes tcp, ucx, shm, gloo, nccl and mpi. To add one, derive a
// class from Backend and register it before init_process_group():
//
//     drun::register_backend("mine", [](const drun::BackendContext& context) {
//       return std::make_unique<MyBackend>(context);
//     });
//     drun::init_process_group({.backend = "mine"});
//
// Example: worker_lib/examples/own_backend.cc.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "drun/elements.h"
#include "drun/error.h"
#include "drun/key_store.h"

namespace drun {

using Deadline = std::chrono::steady_clock::time_point;

// The collectives. rendezvous/base/pulse_page.h mirrors this list (kPulseKinds): keep the order,
// and add new operations there too.
enum class Operation : std::uint8_t {
  Barrier,
  Broadcast,
  AllReduce,
  Reduce,
  Gather,
  AllGather,
  Scatter,
  ReduceScatter,
  AllToAll,
};
std::string_view to_string(Operation operation);  // "all_reduce"

// The arguments of one collective on one rank. Sizes are in elements; n is the number of ranks, and
// parts of several ranks are in rank order.
//
//   operation      input                   output                  counts
//   Barrier        -                       -                       -
//   Broadcast      count                   = input                 -
//   AllReduce      count                   = input                 -
//   Reduce         count                   root: count             -
//   Gather         count                   root: n * count         root: counts_out
//   AllGather      count                   n * count               counts_out
//   Scatter        root: n * count         count                   root: counts_in
//   ReduceScatter  n * count               count                   counts_in
//   AllToAll       n * count               n * count               counts_in and counts_out
//
// "root:" means null on other ranks. "= input" means that the operation works in place. Buffers do
// not overlap otherwise, except that the output of Reduce may be its input.
//
// If is_uneven, which is the same on all ranks, the parts have different sizes: counts has one
// entry per rank, with the sizes of the n parts, and `count` is the size of this rank's own part
// (unused for AllToAll). For ReduceScatter, every rank has all counts.
//
// The pointers are valid until the operation is done.
struct Call {
  Operation operation = Operation::Barrier;
  DataType type = DataType::U8;
  ReduceOp op = ReduceOp::Sum;  // for AllReduce, Reduce, ReduceScatter
  // Set for premul_sum, and only in calls for start(): before run(), the group multiplies.
  std::optional<double> factor = std::nullopt;
  int root = 0;  // for Broadcast, Reduce, Gather, Scatter
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  const std::size_t* counts_in = nullptr;
  const std::size_t* counts_out = nullptr;
  bool is_uneven = false;
  std::optional<int> gpu = std::nullopt;
  void* stream = nullptr;  // CUDA: the operation follows earlier work on it; null: default stream
};

// The number of a collective, and its deadline.
struct Turn {
  std::uint32_t sequence = 0;  // from 1; the same on all ranks, different for each collective
  Deadline deadline{};
};

// Thrown by backends. The group converts it to a WorkerError with rank and operation.
struct BackendFailure : std::runtime_error {
  BackendFailure(WorkerError::Kind what_kind, std::optional<int> which_peer,
                 const std::string& message, bool peer_has_ended = false)
      : std::runtime_error(message),
        kind(what_kind),
        peer(which_peer),
        has_peer_ended(peer_has_ended) {}
  // Not caused by one rank.
  BackendFailure(WorkerError::Kind what_kind, const std::string& message)
      : BackendFailure(what_kind, std::nullopt, message) {}
  WorkerError::Kind kind;
  std::optional<int> peer;
  // For PeerLost: tell_lost has named the peer. If false, the group determines whether the peer's
  // process has ended.
  bool has_peer_ended;
};

// A started message. Owned by the group, which destroys it after finish has returned or thrown.
// Thread: any, one at a time.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // Blocks until the message is delivered or received. Returns the other rank.
  virtual int finish(Deadline deadline) = 0;
  // Whether finish would return or throw at once; once true, it stays true. Return a value if the
  // message makes progress whenever this rank waits for or polls any message of the group; finish
  // may then be called late. Return nullopt if it makes progress only in its own finish, which is
  // then called soon, by the waiting thread or a thread of the group. Of a collective that the
  // backend starts, always return a value.
  virtual std::optional<bool> is_done() { return std::nullopt; }
  // For an operation on a GPU: queues a wait for it on `stream`, a cudaStream_t, and returns true.
  // Blocks only until the operation has been started. Otherwise false. Thread: any, at any time.
  virtual bool wait_on(void* stream);
};

// The arguments of one message on one rank.
struct MessageCall {
  bool is_send = false;
  ConstElements outgoing = {};             // of a send
  Elements incoming = {};                  // of a receive
  std::optional<int> peer = std::nullopt;  // absent: from anyone
  int tag = 0;

  ConstElements data() const { return is_send ? outgoing : ConstElements(incoming); }
};

// A descriptor that becomes readable (or hangs up) when that rank's process ends.
struct Lifeline {
  int fd = -1;  // owned by the backend; never read
  int rank = 0;
};

// Blocks:  run, split and Transfer::finish block until done, failed, aborted or past the deadline.
// Thread:  run and split: one at a time, in the same order on every rank, from different threads.
//          Other functions: any, at any time.
// Errors:  throws BackendFailure. After a failure or abort(), no other function needs to work. The
//          kind Broken means that another operation of this rank failed at the same time and
//          reports the cause.
// Owner:   the group, which destroys it when no operation is running.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;  // "gloo"

  // Why this backend does not support a call; empty if it does. Depends only on operation, type, op
  // and memory, so that every rank gets the same answer. Throws BackendFailure (Usage) if no
  // backend supports it.
  virtual std::string refusal(const Call& call) const = 0;
  virtual void run(const Call& call, const Turn& turn) = 0;

  // Collectives that make progress without the CPU once started, such as on a GPU: starts() returns
  // whether this call does. The group then calls start() instead of run(), on the caller's thread,
  // also while other operations are running, and finishes the Transfers in any order. start() may
  // block only while it connects. Calls that are made meanwhile return at once, and are started in
  // the order in which they were made.
  virtual bool starts(const Call& call) const { return static_cast<void>(call), false; }
  virtual std::unique_ptr<Transfer> start(const Call& call, const Turn& turn);

  // Messages, started in the caller's order. Messages between the same two ranks with the same tag
  // arrive in that order. `from` absent: from any rank. Null if the message is done already, which
  // can be only if its other rank is known. Throws Mismatch on the receiver if type or count
  // differ. By default: Unsupported.
  virtual std::unique_ptr<Transfer> start_send(const ConstElements& data, int to, int tag);
  virtual std::unique_ptr<Transfer> start_recv(const Elements& data, std::optional<int> from,
                                               int tag);
  // Starts messages that may depend on each other: each makes progress without the others' end. By
  // default, one after the other. Returns a Transfer or null for each.
  virtual std::vector<std::unique_ptr<Transfer>> start_batch(const std::vector<MessageCall>& batch);
  // Like refusal, for a message.
  virtual std::string message_refusal(const ConstElements& data, bool is_from_anyone,
                                      int tag) const;

  // For subgroups: whether subgroups can share resources of this backend; every rank gets the same
  // answer. If so, every rank calls split: ranks with the same color, which is not negative, form a
  // group, in the order of their keys, then ranks. A rank without a color is in none. The new
  // group's BackendContext gets the result.
  virtual bool splits() const { return false; }
  virtual std::shared_ptr<void> split(std::optional<int> color, int key, const Turn& turn);

  // Wakes all threads inside an operation, and closes all connections, which the other ranks
  // detect. The group calls it after a failure: immediately if a process has ended, otherwise after
  // it has published the cause. A backend that fails does not call it. May be called again.
  virtual void abort() noexcept = 0;
  // Whether run and finish return soon after their deadlines. If not, the group calls abort() at
  // the deadline.
  virtual bool keeps_deadlines() const { return true; }

  // The ranks whose end this process can detect itself. Valid for the backend's lifetime.
  virtual std::vector<Lifeline> lifelines() const { return {}; }
  // Whether this backend detects the end of another rank itself, in order with what that rank has
  // sent. If not, the group also tells it the ends that the kernel reports: of ranks on this node.
  virtual bool detects_ends() const { return true; }
  // That rank's lifeline has ended, or the kernel reports the end of its process: fails operations
  // that still need it. It is not a failure if the rank had already done its part of an operation.
  // False: its process may live, since the backend knows that only the network to it has failed.
  virtual bool tell_lost(int rank) noexcept { return static_cast<void>(rank), true; }

  // Allocates memory that this backend moves fastest; null if it has none. A collective. Freed with
  // the last copy.
  virtual std::shared_ptr<void> alloc_shared(std::size_t size_bytes, const Turn& turn);
};

// The parameters of a new backend.
struct BackendContext {
  int rank = 0;
  int size = 1;
  // The node of each rank. Nodes are numbered from 0, in the order of their first ranks. Ranks of a
  // node share memory and the loopback interface.
  std::vector<int> node_of = {0};
  std::shared_ptr<KeyStore> store = nullptr;  // with a separate prefix for this group
  int local_rank = 0;                         // of this process in the whole job
  std::optional<int> device = std::nullopt;   // InitOptions::device
  std::string address = "";                   // numeric address of this rank for other nodes
  bool is_debug = false;                      // DRUN_DEBUG=1
  bool connects_later = false;                // may never be used: connect with the first operation
  bool is_lookout = false;                    // another backend beside this one needs its lifelines
  std::shared_ptr<void> split_off = nullptr;  // returned by split() of the parent group's backend
  // For a subgroup, while it connects: one of these ranks whose process has ended, as far as this
  // process knows. Null for the first group.
  std::function<std::optional<int>(const std::vector<int>& ranks)> ended_rank = nullptr;
  Deadline deadline{};  // for connecting
};

// Called on every rank of a new group; returns when connected. Throws BackendFailure or
// WorkerError.
using BackendFactory = std::function<std::unique_ptr<Backend>(const BackendContext& context)>;

// Registers a backend, which can replace a built-in one. Call it before init_process_group, on any
// thread.
void register_backend(std::string name, BackendFactory factory);

}  // namespace drun
