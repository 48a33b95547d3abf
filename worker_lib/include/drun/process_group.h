// edge. Process groups: collectives and messages between all ranks of a job, or some of them.
//
//     drun::ProcessGroup group = drun::init_process_group();
//     std::vector<float> gradients(1000, 1.0f);
//     group.all_reduce(gradients);                                    // the sum, on every rank
//     drun::Work work = group.all_reduce(gradients, drun::async_op);  // returns at once
//     work.wait();
//
// Names and semantics are torch.distributed's. Every operation is one function that returns Work.
// By default it blocks, and the Work is completed; with async_op it returns at once. The last
// parameter of each function is a struct of options. Vectors, arrays, spans, single values and
// {pointer, count} convert to the types for memory (drun/elements.h). A buffer with the parts of
// several ranks holds them in rank order.
//
// Order:   every rank calls the same collectives in the same order with the same type, op and root,
//          and matching counts. With DRUN_DEBUG=1 the ranks compare their calls first; if they
//          differ, every rank throws Mismatch with the ranks and their calls. Messages are not part
//          of that order and never wait for a collective (batches on GPU memory:
//          batch_isend_irecv).
// Memory:  the buffers of a call must not overlap. With async_op, they must stay valid and unused
//          until the Work is done; counts are copied. After an error the content of outputs is
//          unspecified. All ranks get the same bits.
// Errors:  WorkerError. Usage and Unsupported are thrown before anything is sent and change
//          nothing. After any other error the group stays broken: the other ranks fail too, with
//          the same first cause, and every later call throws Broken. Start over with a new process
//          (drun's --max-restarts) or a new group. An asynchronous call throws Usage, Unsupported,
//          Broken and, for GPU memory, other errors that are known immediately; Work::wait throws
//          the rest. Up to 16,384 asynchronous operations of a group can be pending; another one
//          throws Usage.
// Timeout: of each operation as a whole. The default is the timeout of init.
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
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "drun/elements.h"
#include "drun/error.h"
#include "drun/key_store.h"
#include "drun/work.h"

namespace drun {

struct InitOptions {
  // A name ("tcp", "ucx", "shm", "gloo", "nccl", "mpi", or a registered one), or two: "shm+tcp" is
  // shared memory within a node and TCP between nodes, "shm+ucx" UCX between nodes. Or, as in
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

// Options of an operation: {.timeout = 5s, .async_op = true}, or in C++17 {5s}, {5s, true} or, for
// the second one alone, drun::async_op.
struct OpOptions {
  // Absent: the timeout of init.
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
  // Return at once. The Work completes when the operation is done.
  bool async_op = false;
};
inline constexpr OpOptions async_op{std::nullopt, true};

// Options of calls without an asynchronous form: {.timeout = 5s}, or in C++17 {5s}.
struct TimeoutOptions {
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
};

struct MonitoredBarrierOptions {
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
  bool wait_all_ranks = false;  // name all missing ranks, not only the first one
};

// As the source of a message: the first one from any rank.
inline constexpr std::nullopt_t any_rank = std::nullopt;

namespace worker {
struct Arguments;
}

class P2POp;

class ProcessGroup {
 public:
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

  // Barriers
  //
  //     group.barrier();
  //     group.monitored_barrier({std::chrono::seconds(30), true});

  // Is done when all ranks have called it.
  Work barrier(const OpOptions& options = {});
  // The same, over the store, and always blocking. A Timeout on rank 0 names the first missing rank
  // or, with wait_all_ranks, all of them. The group is not broken by it.
  void monitored_barrier(const MonitoredBarrierOptions& options = {});

  // Reductions of numbers, element by element
  //
  //     std::vector<double> losses(8);
  //     group.all_reduce(losses, drun::ReduceOp::Avg);
  //     group.all_reduce(losses, drun::premul_sum(1.0 / group.size()));
  //     int most = group.rank();
  //     group.reduce(most, 0, drun::ReduceOp::Max);            // one number, on rank 0
  //     std::vector<float> all(4 * group.size()), mine(4);
  //     group.reduce_scatter(all, mine);                       // 4 sums for each rank
  //
  //   n ranks            input               output
  //   all_reduce         data: c             data: c, on every rank
  //   reduce             data: c             data: c, on root; the other ranks keep theirs
  //   reduce_scatter     all: n*c            mine: c
  //   reduce_scatter_v   all: sum of counts  mine: counts[rank]; every rank passes the same counts

  Work all_reduce(Elements data, Reduction op, const OpOptions& options = {});
  Work all_reduce(Elements data, const OpOptions& options = {}) {
    return all_reduce(data, ReduceOp::Sum, options);
  }
  Work reduce(Elements data, int root, Reduction op, const OpOptions& options = {});
  Work reduce(Elements data, int root, const OpOptions& options = {}) {
    return reduce(data, root, ReduceOp::Sum, options);
  }
  Work reduce_scatter(ConstElements all, Elements mine, Reduction op,
                      const OpOptions& options = {});
  Work reduce_scatter(ConstElements all, Elements mine, const OpOptions& options = {}) {
    return reduce_scatter(all, mine, ReduceOp::Sum, options);
  }
  Work reduce_scatter_v(ConstElements all, const Counts& counts, Elements mine, Reduction op,
                        const OpOptions& options = {});
  Work reduce_scatter_v(ConstElements all, const Counts& counts, Elements mine,
                        const OpOptions& options = {}) {
    return reduce_scatter_v(all, counts, mine, ReduceOp::Sum, options);
  }

  // Movement of numbers, or of trivially copyable values, whose bytes are copied as they are
  //
  //     struct Config { int layers; double rate; };
  //     Config config{12, 0.1};
  //     group.broadcast(config, 0);
  //     std::vector<int> ranks(group.size());
  //     const int own = group.rank();
  //     group.all_gather(own, ranks);
  //
  //   n ranks        input            output
  //   broadcast      root's data: c   data: c, on every rank
  //   gather         mine: c          root's all: n*c; the other ranks leave `all` empty ({})
  //   all_gather     mine: c          all: n*c
  //   scatter        root's all: n*c  mine: c; the other ranks leave `all` empty ({})
  //   all_to_all     input: n*c       output: n*c; part i of input is sent to rank i, part i of
  //                                   output comes from rank i

  Work broadcast(Buffer data, int root, const OpOptions& options = {});
  Work gather(ConstBuffer mine, Buffer all, int root, const OpOptions& options = {});
  Work all_gather(ConstBuffer mine, Buffer all, const OpOptions& options = {});
  Work scatter(ConstBuffer all, Buffer mine, int root, const OpOptions& options = {});
  Work all_to_all(ConstBuffer input, Buffer output, const OpOptions& options = {});

  // Parts of different sizes, also empty ones, with known counts
  //
  //     const drun::ProcessGroup::Counts counts(group.size(), 2);
  //     std::vector<int> mine(2), all(2 * group.size());
  //     drun::Work work = group.all_gather_v(mine, all, counts, drun::async_op);
  //     work.wait();
  //
  // counts[i] is the number of elements (for structs, of structs) that rank i contributes or gets.
  // gather_v and scatter_v use counts and `all` on the root only. all_to_all_v sends to[i] elements
  // to rank i and receives from[i] elements from it. Counts that do not add up to the size of their
  // buffer, or contradict this rank's own part, throw Usage. If two ranks contradict each other,
  // the operation fails as described at "Order".

  Work gather_v(ConstBuffer mine, Buffer all, const Counts& counts, int root,
                const OpOptions& options = {});
  Work all_gather_v(ConstBuffer mine, Buffer all, const Counts& counts,
                    const OpOptions& options = {});
  Work scatter_v(ConstBuffer all, const Counts& counts, Buffer mine, int root,
                 const OpOptions& options = {});
  Work all_to_all_v(ConstBuffer input, const Counts& to, Buffer output, const Counts& from,
                    const OpOptions& options = {});

  // The same, with counts that the ranks exchange first
  //
  //     std::vector<int> found(group.rank());                      // as many as this rank has
  //     std::vector<int> all = group.all_gather_v(found);
  //     drun::ProcessGroup::Counts counts;
  //     all = group.gather_v(found, 0, &counts);                   // empty except on rank 0
  //     found = group.scatter_v(all, counts, 0);                   // this rank's part
  //     std::vector<int> received = group.all_to_all_v(
  //         std::vector<int>(group.size()), drun::ProcessGroup::Counts(group.size(), 1));
  //
  // Return what this rank receives, in rank order. R is a contiguous range in host memory, with the
  // same type of values on every rank; temporaries are accepted. The counts are stored through the
  // pointer. Each of these blocks, and is two collectives with one timeout. If a rank has too
  // little memory for its result, it throws std::bad_alloc, and the other ranks time out.

  template <typename R, typename T = detail::PartOf<R>>
  [[nodiscard]] std::vector<T> all_gather_v(const R& mine, Counts* counts,
                                            const TimeoutOptions& options = {});
  template <typename R, typename T = detail::PartOf<R>>
  [[nodiscard]] std::vector<T> all_gather_v(const R& mine, const TimeoutOptions& options = {}) {
    return all_gather_v(mine, nullptr, options);
  }
  template <typename R, typename T = detail::PartOf<R>>
  std::vector<T> gather_v(const R& mine, int root, Counts* counts,
                          const TimeoutOptions& options = {});
  template <typename R, typename T = detail::PartOf<R>>
  std::vector<T> gather_v(const R& mine, int root, const TimeoutOptions& options = {}) {
    return gather_v(mine, root, nullptr, options);
  }
  // Only the root's `all` and counts are used; the other ranks leave both empty.
  template <typename R, typename T = detail::PartOf<R>>
  [[nodiscard]] std::vector<T> scatter_v(const R& all, const Counts& counts, int root,
                                         const TimeoutOptions& options = {});
  template <typename R, typename T = detail::PartOf<R>>
  [[nodiscard]] std::vector<T> all_to_all_v(const R& input, const Counts& to, Counts* from,
                                            const TimeoutOptions& options = {});
  template <typename R, typename T = detail::PartOf<R>>
  [[nodiscard]] std::vector<T> all_to_all_v(const R& input, const Counts& to,
                                            const TimeoutOptions& options = {}) {
    return all_to_all_v(input, to, nullptr, options);
  }

  // Messages
  //
  //     std::vector<int> data(3);
  //     const int tag = 7;
  //     if (group.rank() == 0) group.send(data, 1, tag);
  //     if (group.rank() == 1) group.recv(data, 0, tag);
  //     if (group.rank() == 0) {
  //       int answer = 0;
  //       const int sender = group.recv(answer, drun::any_rank).peer();
  //       drun::Work work = group.send(answer, sender, drun::async_op);
  //       work.wait();
  //     }
  //
  // A send is done when its memory can be reused, a recv when the data is there. A send can wait
  // for its recv, so two ranks that both send first can block each other until the timeout: use
  // async_op or batch_isend_irecv (on GPU memory: the latter). Messages between two ranks with the
  // same tag arrive in order. Type and count must be the same on both sides; otherwise the receiver
  // throws Mismatch. Tags: 0 to 2^20 - 1; the default is 0. Over tcp and Gloo, a recv from any_rank
  // waits until its deadline even if the expected sender has ended.

  Work send(ConstBuffer data, int to, int tag, const OpOptions& options = {});
  Work send(ConstBuffer data, int to, const OpOptions& options = {}) {
    return send(data, to, 0, options);
  }
  Work recv(Buffer data, std::optional<int> from, int tag, const OpOptions& options = {});
  Work recv(Buffer data, std::optional<int> from, const OpOptions& options = {}) {
    return recv(data, from, 0, options);
  }

  // Memory and groups
  //
  //     std::shared_ptr<void> shared = group.alloc_shared(1000 * sizeof(float));
  //     group.all_reduce({static_cast<float*>(shared.get()), 1000});
  //     std::optional<drun::ProcessGroup> half = group.split(group.rank() % 2);
  //     half->barrier();
  //     if (auto first = group.new_group({0})) first->barrier();

  // Allocates `size_bytes` on each rank in memory that the backend moves fastest (shm: without a
  // copy), or ordinary memory if the backend has none. A collective. Freed with the last copy.
  std::shared_ptr<void> alloc_shared(std::size_t size_bytes, const TimeoutOptions& options = {});

  // Creates a group of these ranks, in this order. Every rank of this group calls it with the same
  // list; ranks that are not in the list get nullopt.
  std::optional<ProcessGroup> new_group(const std::vector<int>& ranks,
                                        const TimeoutOptions& options = {});
  // Creates one group per color, ordered by key, then by rank. A rank without a color gets nullopt.
  std::optional<ProcessGroup> split(std::optional<int> color, int key = 0,
                                    const TimeoutOptions& options = {});

  // Ends the group for all copies of the handle, and aborts running operations. Returns within a
  // bounded time. A second call has no effect.
  void destroy();

 private:
  friend class DeviceMesh;
  friend void close_default_group();
  friend std::vector<Work> batch_isend_irecv(ProcessGroup&, const std::vector<P2POp>&,
                                             const TimeoutOptions&);
  class Group;
  using Timeout = std::optional<std::chrono::milliseconds>;
  // Returns memory for a number of values.
  using Allocate = std::function<Buffer(std::size_t count)>;

  explicit ProcessGroup(std::shared_ptr<Group> group);
  Work run(const worker::Arguments& arguments, const OpOptions& options);
  Counts gather_parts(const ConstBuffer& mine, std::optional<int> root, const Allocate& allocate,
                      const TimeoutOptions& options);
  void scatter_parts(const ConstBuffer& all, const Counts& counts, int root,
                     const Allocate& allocate, const TimeoutOptions& options);
  Counts exchange_parts(const ConstBuffer& input, const Counts& to, const Allocate& allocate,
                        const TimeoutOptions& options);

  std::shared_ptr<Group> group_;
};

// One message of a batch.
class P2POp {
 public:
  static P2POp send(ConstBuffer data, int to, int tag = 0) { return {true, data, {}, to, tag}; }
  static P2POp recv(Buffer data, std::optional<int> from, int tag = 0) {
    return {false, {}, data, from, tag};
  }

 private:
  friend std::vector<Work> batch_isend_irecv(ProcessGroup&, const std::vector<P2POp>&,
                                             const TimeoutOptions&);
  P2POp(bool is_send, const ConstBuffer& outgoing, const Buffer& incoming, std::optional<int> peer,
        int tag)
      : is_send_(is_send), outgoing_(outgoing), incoming_(incoming), peer_(peer), tag_(tag) {}

  bool is_send_;
  ConstBuffer outgoing_;
  Buffer incoming_;
  std::optional<int> peer_;
  int tag_;
};

// Starts all messages at once; they complete in any order, so that none waits for another one's
// end. The memory rules of async_op apply. On GPU memory, a batch takes part in the order of
// collectives: its ranks call it at the same point of that order, and each message is in a batch on
// both ranks.
//
//     const int next = (group.rank() + 1) % group.size();
//     const int previous = (group.rank() + group.size() - 1) % group.size();
//     std::vector<float> mine(1000), theirs(1000);
//     drun::wait_all(drun::batch_isend_irecv(
//         group, {drun::P2POp::send(mine, next), drun::P2POp::recv(theirs, previous)}));
std::vector<Work> batch_isend_irecv(ProcessGroup& group, const std::vector<P2POp>& batch,
                                    const TimeoutOptions& options = {});

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

// --- Templates of ProcessGroup

template <typename R, typename T>
std::vector<T> ProcessGroup::all_gather_v(const R& mine, Counts* counts,
                                          const TimeoutOptions& options) {
  std::vector<T> all;
  Counts all_counts = gather_parts(mine, std::nullopt, detail::allocate_in(all), options);
  if (counts != nullptr) *counts = std::move(all_counts);
  return all;
}

template <typename R, typename T>
std::vector<T> ProcessGroup::gather_v(const R& mine, int root, Counts* counts,
                                      const TimeoutOptions& options) {
  std::vector<T> all;
  Counts all_counts = gather_parts(mine, root, detail::allocate_in(all), options);
  if (counts != nullptr) *counts = std::move(all_counts);
  return all;
}

template <typename R, typename T>
std::vector<T> ProcessGroup::scatter_v(const R& all, const Counts& counts, int root,
                                       const TimeoutOptions& options) {
  std::vector<T> mine;
  scatter_parts(all, counts, root, detail::allocate_in(mine), options);
  return mine;
}

template <typename R, typename T>
std::vector<T> ProcessGroup::all_to_all_v(const R& input, const Counts& to, Counts* from,
                                          const TimeoutOptions& options) {
  std::vector<T> output;
  Counts from_counts = exchange_parts(input, to, detail::allocate_in(output), options);
  if (from != nullptr) *from = std::move(from_counts);
  return output;
}

}  // namespace drun
