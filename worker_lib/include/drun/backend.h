// core. What moves data between the ranks of one group, and how a new one comes in.
//
// A ProcessGroup checks arguments, keeps the order of calls, their deadlines and the first failure;
// a backend only moves bytes. drun brings gloo, shm, nccl and mpi. Another one is a class derived
// from Backend and a line before init_process_group():
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

// The collectives. Ranks are numbered within the group.
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

// One collective as one rank calls it.
// Shape:  Broadcast, AllReduce: output = input, `count` elements, in place.
//         Reduce: input `count` elements on every rank; output the same many on the root, null
//         elsewhere; output may be input.
//         Gather, AllGather: input `count` elements; output, on the root or on all, each rank's in
//         rank order. Scatter: the reverse; input only on the root.
//         ReduceScatter: input as many for every rank, in rank order; output `count`, this rank's.
//         AllToAll: input and output `count` for every rank.
//         With counts_in or counts_out (as many entries as ranks) the parts are of those sizes
//         instead: counts_out for Gather (root), AllGather and AllToAll; counts_in for Scatter
//         (root), ReduceScatter (all of them: every rank's part) and AllToAll. `count` is this
//         rank's own part then (of AllToAll: unused). is_uneven is set on every rank, also where
//         there are no counts.
//         Input and output do not overlap unless they are equal; equal only where said above.
// Owner:  pointers are valid until the operation is done.
struct Call {
  Operation operation = Operation::Barrier;
  DataType type = DataType::U8;
  ReduceOp op = ReduceOp::Sum;  // of AllReduce, Reduce, ReduceScatter
  int root = 0;                 // of Broadcast, Reduce, Gather, Scatter
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  const std::size_t* counts_in = nullptr;
  const std::size_t* counts_out = nullptr;
  bool is_uneven = false;
  std::optional<int> gpu = std::nullopt;
  void* stream = nullptr;  // CUDA: after whose work so far this is done; null: the default one's
};

// Which collective of the group this is, and until when it may take.
struct Turn {
  std::uint32_t sequence = 0;  // the same on all ranks; different for each collective, from 1
  Deadline deadline{};
};

// Thrown by backends; the group makes a WorkerError of it that names rank and operation.
struct BackendFailure : std::runtime_error {
  BackendFailure(WorkerError::Kind what_kind, std::optional<int> which_peer,
                 const std::string& message, bool peer_has_ended = false)
      : std::runtime_error(message),
        kind(what_kind),
        peer(which_peer),
        has_peer_ended(peer_has_ended) {}
  WorkerError::Kind kind;
  std::optional<int> peer;
  // Of PeerLost: tell_lost has named the peer. Otherwise the group finds out whether its process
  // has ended.
  bool has_peer_ended;
};

// A message that has been started.
// Thread: any, one at a time.   Owner: the group; destroyed after finish has returned or thrown.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // Blocks until the message is delivered, or received; returns the other rank.
  virtual int finish(Deadline deadline) = 0;
  // Whether finish would return or throw at once; once true, it stays true. For messages that make
  // progress whenever this rank waits for or polls any message of the group: their finish may be
  // called late. nullopt: this message makes progress only in its own finish, which the waiting
  // thread calls, or a thread of the group soon does.
  virtual std::optional<bool> is_done() { return std::nullopt; }
};

// A descriptor that becomes readable (or hangs up) when that rank's process ends.
struct Lifeline {
  int fd = -1;  // the backend's; not read from
  int rank = 0;
};

// Blocks:  run, split and Transfer::finish, until done, failed, aborted or past the deadline.
// Thread:  run, start and split: one at a time, in the same order on every rank, from different
//          threads. The rest: any, at any time.
// Errors:  throws BackendFailure. After one, or after abort, nothing else needs to work. Of kind
//          Broken: another operation of this rank failed at the same moment, and will say why.
// Owner:   the group; destroyed when no operation is running.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;  // "gloo"

  // Why this backend cannot do such a call (by its operation, type, op and memory; the same answer
  // on every rank); empty: it can.
  virtual std::string refusal(const Call& call) const = 0;
  virtual void run(const Call& call, const Turn& turn) = 0;

  // For collectives that make progress without the CPU once they are started, as on a GPU: whether
  // this call does, and a function that starts it on the caller's thread. The Transfers of a group
  // are finished in the order in which they were started. Otherwise a thread of the group calls
  // run.
  virtual bool starts(const Call& call) const { return static_cast<void>(call), false; }
  virtual std::unique_ptr<Transfer> start(const Call& call, const Turn& turn);

  // Messages. Started in the caller's order; those of one pair of ranks with the same tag arrive in
  // that order. `from` absent: from any rank. Throws Mismatch, on the receiver, if type or
  // count differ. The default: Unsupported.
  virtual std::unique_ptr<Transfer> start_send(const ConstElements& data, int to, int tag);
  virtual std::unique_ptr<Transfer> start_recv(const Elements& data, std::optional<int> from,
                                               int tag);
  // As refusal.
  virtual std::string message_refusal(const ConstElements& data, bool is_from_anyone,
                                      int tag) const;

  // For groups made of this one: whether ranks of it can share what it is connected with, the same
  // answer on every rank; then every rank calls split, also those that are not among `ranks`. What
  // it returns comes with the new group's BackendContext.
  virtual bool splits() const { return false; }
  virtual std::shared_ptr<void> split(const std::vector<int>& ranks, const Turn& turn);

  // Wakes all threads that are inside an operation, and closes all connections, which the other
  // ranks notice. The group calls it after a failure: immediately if a process has ended, otherwise
  // after it has published the cause. A backend that fails does not call it. May be called again.
  virtual void abort() noexcept = 0;
  // Whether run and finish end soon after their deadlines by themselves; otherwise the group calls
  // abort() at the deadline.
  virtual bool keeps_deadlines() const { return true; }

  // The ranks whose end this process can detect itself. Valid as long as the backend.
  virtual std::vector<Lifeline> lifelines() const { return {}; }
  // That rank's process has ended: operations that still need it fail now. A rank that ends after
  // it has done its part of all operations is no failure.
  virtual void tell_lost(int rank) noexcept { static_cast<void>(rank); }

  // Memory that this backend moves fastest; null: it has none. Collective over the group; freed by
  // dropping the last copy.
  virtual std::shared_ptr<void> alloc_shared(std::size_t size_bytes, const Turn& turn);
};

// The parameters of a new backend.
struct BackendContext {
  int rank = 0;
  int size = 1;
  // Which node each rank is on, numbered from 0 by its first rank. Ranks of a node share memory and
  // loopback.
  std::vector<int> node_of = {0};
  std::shared_ptr<KeyStore> store = nullptr;  // with a prefix of this group's own
  int local_rank = 0;                         // of this process on its node, in the whole job
  std::string address = "";                   // this rank's, numeric, for the other nodes
  bool is_debug = false;                      // DRUN_DEBUG=1
  bool connects_later = false;                // may never be used: connect with the first operation
  bool is_lookout = false;                    // lifelines are wanted by another one beside it
  std::shared_ptr<void> split_off = nullptr;  // what split of the group it is made from returned
  Deadline deadline{};                        // for connecting
};

// Called on every rank of a new group; returns when connected. Throws BackendFailure or
// WorkerError.
using BackendFactory = std::function<std::unique_ptr<Backend>(const BackendContext& context)>;

// From then on `name` may be asked for, also in place of one of drun's own.
// Thread: any, before the init_process_group that asks for it.
void register_backend(std::string name, BackendFactory factory);

}  // namespace drun
