// edge. Ranks that work together: all of a job, or some of them.
//
//     drun::ProcessGroup group = drun::init_process_group();
//     std::vector<float> gradients = ...;
//     group.all_reduce(gradients);          // in place: the sum over all ranks, on every rank
//
// Names and meaning are torch.distributed's. `Elements` are any vector, array or span of numbers
// (drun/elements.h), or memory of a GPU. Where many ranks' parts lie in one buffer they do so in
// rank order.
//
// Order:   every rank calls the same collectives in the same order with the same type, op and root,
//          and counts that fit together. With DRUN_DEBUG=1 the ranks compare that first: where they
//          disagree every rank throws Mismatch, naming who called what. Messages are not part of
//          that order and never wait behind a collective.
// Memory:  after an error the content of outputs is unspecified. All ranks get the same bits.
// Errors:  WorkerError. Usage and Unsupported are thrown before anything is sent and change
//          nothing. After any other error the group is broken for good: the other ranks fail too,
//          with the same first cause, and every later call throws Broken. Start over with a new
//          process (drun's --max-restarts) or a new group.
// Timeout: of each operation as a whole; init's applies where a call is not given one.
// Async:   async_ operations, isend and irecv return at once; their memory stays with them until
//          the Work is done. Those on memory of a GPU throw at once what fails at once.
// Thread:  any, at the same time; but who calls collectives from several threads must see to it
//          that the order is the same on all ranks.
// Owner:   a handle; copies are the same group. It closes with its last copy and does not notify
//          the other ranks: call barrier() first if one may still be waiting for data. Moved-from:
//          may only be destroyed or assigned to.
// Process: init ignores SIGPIPE where it had its default (a dead peer must not be fatal). A child
//          of fork must exec; operations in it throw Usage.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "drun/elements.h"
#include "drun/error.h"
#include "drun/key_store.h"
#include "drun/work.h"

namespace drun {

struct InitOptions {
  // A name ("gloo", "tcp", "shm", "nccl", "mpi", or a registered one), or two: "shm+gloo" is shared
  // memory within a node and Gloo between nodes, "shm+tcp" shared memory and TCP. Or, as in torch,
  // by where the data lies: "cpu:name", "cuda:name", "cpu:name,cuda:name". NCCL beside another
  // backend is looked for when memory of a GPU is first given to an operation; alone, here.
  std::string backend = "cpu:shm+gloo,cuda:nccl";
  // "env://": RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as drun and torchrun set them; without
  // the first two what mpirun, mpiexec or srun set, and MASTER_ADDR if there are several nodes.
  // "tcp://host:port": the store is there; rank 0 hosts it. "file:///path": it is this file, a new
  // one, for one group; the last rank to leave removes it.
  // Both may end in "?rank=R&world_size=N"; otherwise these come from below or the environment.
  std::string init_method = "env://";
  // Both or none. Required with a store.
  std::optional<int> rank = std::nullopt;
  std::optional<int> world_size = std::nullopt;
  // For all ranks to find each other, and for each operation.
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};
  // Use this one instead of connecting to a store; init_method is ignored then. The caller sees to
  // it that no keys of an earlier job are in it.
  std::shared_ptr<KeyStore> store = nullptr;
  // Network interface for the traffic between nodes; empty: the variable GLOO_SOCKET_IFNAME, else
  // the address from which MASTER_ADDR is reached (with `store`, or file:// without it: loopback).
  std::string network_interface = "";
};

class ProcessGroup {
 public:
  using Timeout = std::optional<std::chrono::milliseconds>;
  // Elements of each rank, in rank order.
  using Counts = std::vector<std::size_t>;

  // A new group, separate from the default one.
  static ProcessGroup connect(const InitOptions& options = {});

  int rank() const;
  int size() const;
  int local_rank() const;     // of this process on its node
  int restart_count() const;  // how often drun has started this job again
  // What moves data that lies in host memory: "shm", "gloo", ...
  std::string backend() const;

  // Returns when all ranks have called it.
  void barrier(Timeout timeout = {});
  // The same, over the store: a Timeout on rank 0 names the ranks that are missing, all of them or
  // the first; the group stays as it was.
  void monitored_barrier(Timeout timeout = {}, bool names_all = false);
  // Copies `root`'s data to all ranks.
  void broadcast(Elements data, int root, Timeout timeout = {});
  // Reduces the `data` of all ranks, element by element; every rank's `data` gets the result.
  void all_reduce(Elements data, ReduceOp op = ReduceOp::Sum, Timeout timeout = {});
  // ... into root's; the others' stays as it was.
  void reduce(Elements data, int root, ReduceOp op = ReduceOp::Sum, Timeout timeout = {});
  // `mine` of every rank into root's `all`, which others leave empty.
  void gather(ConstElements mine, Elements all, int root, Timeout timeout = {});
  void all_gather(ConstElements mine, Elements all, Timeout timeout = {});
  // Sends one part of root's `all` to each rank's `mine`. The other ranks leave `all` empty.
  void scatter(ConstElements all, Elements mine, int root, Timeout timeout = {});
  // Reduces the `all` of all ranks; `mine` gets this rank's part of the result.
  void reduce_scatter(ConstElements all, Elements mine, ReduceOp op = ReduceOp::Sum,
                      Timeout timeout = {});
  // The i-th part of `input` to rank i, whose part for this rank lands in `output`'s i-th.
  void all_to_all(ConstElements input, Elements output, Timeout timeout = {});

  // With parts of different sizes: `counts` is what each rank brings (gather_v: needed on the root
  // only) or gets (scatter_v: needed on the root only).
  void gather_v(ConstElements mine, Elements all, const Counts& counts, int root,
                Timeout timeout = {});
  void all_gather_v(ConstElements mine, Elements all, const Counts& counts, Timeout timeout = {});
  void scatter_v(ConstElements all, const Counts& counts, Elements mine, int root,
                 Timeout timeout = {});
  void reduce_scatter_v(ConstElements all, const Counts& counts, Elements mine,
                        ReduceOp op = ReduceOp::Sum, Timeout timeout = {});
  // `to[i]` elements go to rank i, `from[i]` come from it.
  void all_to_all_v(ConstElements input, const Counts& to, Elements output, const Counts& from,
                    Timeout timeout = {});

  Work async_barrier(Timeout timeout = {});
  Work async_broadcast(Elements data, int root, Timeout timeout = {});
  Work async_all_reduce(Elements data, ReduceOp op = ReduceOp::Sum, Timeout timeout = {});
  Work async_reduce(Elements data, int root, ReduceOp op = ReduceOp::Sum, Timeout timeout = {});
  Work async_gather(ConstElements mine, Elements all, int root, Timeout timeout = {});
  Work async_all_gather(ConstElements mine, Elements all, Timeout timeout = {});
  Work async_scatter(ConstElements all, Elements mine, int root, Timeout timeout = {});
  Work async_reduce_scatter(ConstElements all, Elements mine, ReduceOp op = ReduceOp::Sum,
                            Timeout timeout = {});
  Work async_all_to_all(ConstElements input, Elements output, Timeout timeout = {});

  // Return when the peer has received, or this rank has: a send may wait for its recv, so two ranks
  // that both send first may wait for each other until the timeout. Messages with the same tag
  // arrive in order. Type and count must be the same on both sides. Tags: 0 to 2^20 - 1.
  void send(ConstElements data, int to, int tag = 0, Timeout timeout = {});
  void recv(Elements data, int from, int tag = 0, Timeout timeout = {});
  // Receives the first message from any rank; returns the sender.
  // Over Gloo it waits for its deadline even if the rank that was to send is gone.
  int recv_any(Elements data, int tag = 0, Timeout timeout = {});
  Work isend(ConstElements data, int to, int tag = 0, Timeout timeout = {});
  Work irecv(Elements data, int from, int tag = 0, Timeout timeout = {});
  Work irecv_any(Elements data, int tag = 0, Timeout timeout = {});

  // Memory that the backend moves fastest (shm: without a copy): `size_bytes` on each rank, freed
  // with its last copy. Plain memory where the backend has none. A collective.
  std::shared_ptr<void> alloc_shared(std::size_t size_bytes, Timeout timeout = {});

  // A group of these ranks of this one, in this order. Every rank of this group calls it, with the
  // same ranks; those not among them get nothing.
  std::optional<ProcessGroup> new_group(const std::vector<int>& ranks, Timeout timeout = {});
  // One group for each colour: ordered by key, then by rank. No colour: in none of them.
  std::optional<ProcessGroup> split(std::optional<int> color, int key = 0, Timeout timeout = {});

  // Ends the group here and now, whatever is going on in it; all copies of the handle. Bounded in
  // time; again: nothing.
  void destroy();

 private:
  class Group;
  explicit ProcessGroup(std::shared_ptr<Group> group);

  std::shared_ptr<Group> group_;
};

// One message of a batch. Memory that is only read: P2POperation::send(data, peer), or `outgoing`.
struct P2POperation {
  enum class Kind { Send, Recv };
  Kind kind = Kind::Send;
  Elements data = {};
  int peer = 0;
  int tag = 0;
  std::optional<ConstElements> outgoing = std::nullopt;  // of Send: instead of `data`

  static P2POperation send(ConstElements data, int to, int tag = 0) {
    return {Kind::Send, {}, to, tag, data};
  }
  static P2POperation recv(Elements data, int from, int tag = 0) {
    return {Kind::Recv, data, from, tag, std::nullopt};
  }
};

// All at once, in whatever order the peers come to it.
std::vector<Work> batch_isend_irecv(ProcessGroup& group, const std::vector<P2POperation>& batch,
                                    ProcessGroup::Timeout timeout = {});

// Finds the other ranks; returns on every rank when all are connected. The group is the default one
// until destroy_process_group(). Throws WorkerError: Usage for an environment that makes no sense,
// or when there is a default group already; Timeout naming the ranks that did not come; Store;
// Mismatch for ranks built with another Gloo; Unsupported for a backend that was not built in, and
// for "nccl" where there is no NCCL or no GPU.
ProcessGroup init_process_group(const InitOptions& options = {});

// Ends the default group; bounded in time. Without one: nothing.
void destroy_process_group();

bool is_initialized();
// The default group. Throws WorkerError (Usage) when there is none, as do the next four.
ProcessGroup default_group();
int get_rank();
int get_world_size();
int get_local_rank();
std::string get_backend();

// Of this process, with or without a group: whether drun or torchrun started it.
bool is_launched_by_agent();
// How often they had to start this job again; 0 without them.
int get_restart_count();

}  // namespace drun
