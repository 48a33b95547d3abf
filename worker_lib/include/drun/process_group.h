// edge. Process groups: collectives and messages between all ranks of a job, or some of them.
//
//     drun::ProcessGroup group = drun::init_process_group();
//     std::vector<float> gradients = ...;
//     group.all_reduce(gradients);          // in place: the sum over all ranks, on every rank
//
// Names and semantics are torch.distributed's. `Elements` is any vector, array or span of numbers
// (drun/elements.h), or GPU memory. A buffer with the parts of several ranks holds them in rank
// order.
//
// Order:   every rank calls the same collectives in the same order with the same type, op and root,
//          and matching counts. With DRUN_DEBUG=1 the ranks compare their calls first; if they
//          differ, every rank throws Mismatch with the ranks and their calls. Messages are not part
//          of that order and never wait for a collective (batches on GPU memory:
//          batch_isend_irecv).
// Memory:  after an error the content of outputs is unspecified. All ranks get the same bits.
// Errors:  WorkerError. Usage and Unsupported are thrown before anything is sent and change
//          nothing. After any other error the group stays broken: the other ranks fail too, with
//          the same first cause, and every later call throws Broken. Start over with a new process
//          (drun's --max-restarts) or a new group.
// Timeout: of each operation as a whole. The default is the timeout of init.
// Async:   async_ operations, isend and irecv return at once; their memory must stay valid and
//          unused until the Work is done. Operations on GPU memory throw errors that are known
//          immediately. Up to 16,384 of a group can be pending; another one throws Usage.
// Thread:  any, concurrently. A program that calls collectives from several threads must ensure the
//          same order on all ranks.
// Owner:   a handle; copies refer to the same group. The group closes with its last copy and does
//          not notify the other ranks: call barrier() first if one may still be waiting for data. A
//          moved-from handle can only be destroyed or assigned to.
// Process: init sets SIGPIPE to ignored if it has its default action, because a dead peer must not
//          be fatal. A child of fork must exec; operations in it throw Usage.
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
  // A name ("tcp", "shm", "gloo", "nccl", "mpi", or a registered one), or two: "shm+tcp" is shared
  // memory within a node and TCP between nodes; "shm+gloo" is shared memory and Gloo. Or, as in
  // torch, by memory: "cpu:name", "cuda:name", "cpu:name,cuda:name". If NCCL is combined with
  // another backend, it is loaded when an operation first gets GPU memory; otherwise by init.
  std::string backend = "cpu:shm+tcp,cuda:nccl";
  // "env://": RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as set by drun and torchrun; without
  // the first two, the variables of mpirun, mpiexec or srun, and MASTER_ADDR if there are several
  // nodes. "tcp://host:port": the address of the store, which rank 0 hosts. "file:///path": the
  // store is this file, which must be new and serves one group; the last rank to leave removes it.
  // The latter two may end in "?rank=R&world_size=N"; otherwise `rank` and `world_size` below
  // apply, or the environment.
  std::string init_method = "env://";
  // Both or none. Required with a store.
  std::optional<int> rank = std::nullopt;
  std::optional<int> world_size = std::nullopt;
  // For connecting all ranks, and for each operation.
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};
  // Used instead of connecting to a store; init_method is then ignored. It must not contain keys of
  // an earlier job.
  std::shared_ptr<KeyStore> store = nullptr;
  // Network interface for the traffic between nodes; empty: the variable GLOO_SOCKET_IFNAME, else
  // the address from which MASTER_ADDR is reached (with `store`, or file:// without it: loopback).
  std::string network_interface = "";
  // The CUDA device of this rank, as torch's device_id: NCCL then connects in init, so that missing
  // GPUs and ranks that share one are reported there, and the first operation need not connect. All
  // ranks specify one, or none: each rank then uses the GPU of the first memory that it passes, or
  // with the backend "nccl" the one with the number of its local rank.
  std::optional<int> device = std::nullopt;
};

struct P2POperation;

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
  int restart_count() const;  // number of restarts of this job
  // The backend for host memory: "shm", "gloo", ...
  std::string backend() const;

  // Returns when all ranks have called it.
  void barrier(Timeout timeout = {});
  // The same, over the store. A Timeout on rank 0 names the first missing rank, or with `names_all`
  // all of them; the group is not broken by it.
  void monitored_barrier(Timeout timeout = {}, bool names_all = false);
  // Copies `root`'s data to all ranks.
  void broadcast(Elements data, int root, Timeout timeout = {});
  // Reduces the `data` of all ranks, element by element; every rank's `data` gets the result.
  void all_reduce(Elements data, ReduceOp op = ReduceOp::Sum, Timeout timeout = {});
  // Like all_reduce, but only root's `data` gets the result; other ranks keep theirs.
  void reduce(Elements data, int root, ReduceOp op = ReduceOp::Sum, Timeout timeout = {});
  // Collects `mine` of every rank in root's `all`. The other ranks leave `all` empty.
  void gather(ConstElements mine, Elements all, int root, Timeout timeout = {});
  void all_gather(ConstElements mine, Elements all, Timeout timeout = {});
  // Sends one part of root's `all` to each rank's `mine`. The other ranks leave `all` empty.
  void scatter(ConstElements all, Elements mine, int root, Timeout timeout = {});
  // Reduces the `all` of all ranks; `mine` gets this rank's part of the result.
  void reduce_scatter(ConstElements all, Elements mine, ReduceOp op = ReduceOp::Sum,
                      Timeout timeout = {});
  // Sends part i of `input` to rank i; part i of `output` comes from rank i.
  void all_to_all(ConstElements input, Elements output, Timeout timeout = {});

  // Parts of different sizes. `counts`: the elements that each rank contributes (gather_v: only
  // used on the root) or gets (scatter_v: only used on the root).
  void gather_v(ConstElements mine, Elements all, const Counts& counts, int root,
                Timeout timeout = {});
  void all_gather_v(ConstElements mine, Elements all, const Counts& counts, Timeout timeout = {});
  void scatter_v(ConstElements all, const Counts& counts, Elements mine, int root,
                 Timeout timeout = {});
  void reduce_scatter_v(ConstElements all, const Counts& counts, Elements mine,
                        ReduceOp op = ReduceOp::Sum, Timeout timeout = {});
  // Sends `to[i]` elements to rank i and receives `from[i]` elements from it.
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

  // Block until the message is sent or received. A send can wait for its recv, so two ranks that
  // both send first can block each other until the timeout; on GPU memory also with isend. Messages
  // with the same tag arrive in order. Type and count must be the same on both sides. Tags: 0 to
  // 2^20 - 1.
  void send(ConstElements data, int to, int tag = 0, Timeout timeout = {});
  void recv(Elements data, int from, int tag = 0, Timeout timeout = {});
  // Receives the first message from any rank and returns the sender. Over tcp and Gloo it waits
  // until its deadline even if the expected sender has ended.
  int recv_any(Elements data, int tag = 0, Timeout timeout = {});
  Work isend(ConstElements data, int to, int tag = 0, Timeout timeout = {});
  Work irecv(Elements data, int from, int tag = 0, Timeout timeout = {});
  Work irecv_any(Elements data, int tag = 0, Timeout timeout = {});

  // Allocates `size_bytes` on each rank in memory that the backend moves fastest (shm: without a
  // copy), or ordinary memory if the backend has none. A collective. Freed with the last copy.
  std::shared_ptr<void> alloc_shared(std::size_t size_bytes, Timeout timeout = {});

  // Creates a group of these ranks, in this order. Every rank of this group calls it with the same
  // list; ranks that are not in the list get nullopt.
  std::optional<ProcessGroup> new_group(const std::vector<int>& ranks, Timeout timeout = {});
  // Creates one group per color, ordered by key, then by rank. A rank without a color gets nullopt.
  std::optional<ProcessGroup> split(std::optional<int> color, int key = 0, Timeout timeout = {});

  // Ends the group for all copies of the handle, and aborts running operations. Returns within a
  // bounded time. A second call has no effect.
  void destroy();

 private:
  friend class DeviceMesh;
  friend void close_default_group();
  friend std::vector<Work> batch_isend_irecv(ProcessGroup& group,
                                             const std::vector<P2POperation>& batch,
                                             Timeout timeout);
  class Group;
  explicit ProcessGroup(std::shared_ptr<Group> group);

  std::shared_ptr<Group> group_;
};

// One message of a batch. To send constant memory, use P2POperation::send(data, peer) or
// `outgoing`.
struct P2POperation {
  enum class Kind { Send, Recv };
  Kind kind = Kind::Send;
  Elements data = {};
  int peer = 0;
  int tag = 0;
  std::optional<ConstElements> outgoing = std::nullopt;  // for Send, instead of `data`

  static P2POperation send(ConstElements data, int to, int tag = 0) {
    return {Kind::Send, {}, to, tag, data};
  }
  static P2POperation recv(Elements data, int from, int tag = 0) {
    return {Kind::Recv, data, from, tag, std::nullopt};
  }
};

// Starts all messages at once; they complete in any order, so that none waits for another one's
// end. On GPU memory, a batch takes part in the order of collectives: its ranks call it at the same
// point of that order, and each message is in a batch on both ranks.
std::vector<Work> batch_isend_irecv(ProcessGroup& group, const std::vector<P2POperation>& batch,
                                    ProcessGroup::Timeout timeout = {});

// Connects to the other ranks; returns when all ranks are connected. The group is the default group
// until destroy_process_group(). Throws WorkerError: Usage if the environment is invalid or there
// is a default group already; Timeout with the missing ranks; Store; Mismatch if ranks are built
// with different versions of Gloo; Unsupported for a backend that was not built in, and for "nccl"
// without NCCL or a GPU.
ProcessGroup init_process_group(const InitOptions& options = {});

// Ends the default group within a bounded time. Has no effect without one.
void destroy_process_group();

bool is_initialized();
// The default group. This and the next four functions throw WorkerError (Usage) if there is none.
ProcessGroup default_group();
int get_rank();
int get_world_size();
int get_local_rank();
std::string get_backend();

// Whether drun or torchrun started this process. Does not need a group.
bool is_launched_by_agent();
// The number of restarts of the job; 0 without drun and torchrun.
int get_restart_count();

}  // namespace drun
