// edge. A stand-in for NCCL, for tests on machines without a GPU. It implements the functions that
// worker_lib uses, between processes of one machine, on the memory of the CUDA stand-in. It
// enforces NCCL's rules: a nonblocking communicator must not be used while in progress, memory must
// be the GPU's, and its context must be current. Results say nothing about the real NCCL.
//
// STANDIN_NCCL_FAULT, per process, is read when it matters:
//   version=21300     reports this version
//   slow_init=500     connecting takes 500 ms longer
//   slow_split=500    ncclCommSplit takes 500 ms longer
//   absent            never connects; the others wait
//   bad_init          connecting fails
//   async_error=3     the third operation, counted from 1, fails after it was started
//   stuck=3           the third operation never ends
//   blocks=3          the call that starts the third operation returns once it is aborted
//   slow_calls=100    each call that starts an operation takes 100 ms longer
//   stuck_close       ncclCommDestroy and ncclCommAbort never return
//   nothing=3         the third operation moves nothing; set it on every rank, or the others wait
//
// STANDIN_NCCL_NETWORK: set: the ranks notice each other's abort, as over a network.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/standin/cuda_standin.h"
#include "tests/standin/nccl_communicator.h"
#include "tests/standin/nccl_reduce.h"
#include "tests/standin/nccl_shared.h"
#include "worker_lib/nccl/abi.h"

using namespace drun::worker::nccl;
using drun::worker::cuda::Stream;
using standin::Communicator;
using standin::connect;
using standin::is_asked;
using standin::Part;
using standin::Shared;

namespace {

constexpr int kLooksInProgress = 3;  // after each call

using Shares = std::shared_ptr<Communicator>;

// The handle is a pointer to a shared pointer, so that operations on a stream keep it alive.
Shares& of(Comm comm) { return *reinterpret_cast<Shares*>(comm); }

thread_local std::string last_error;
Result refuse(Result result, const std::string& why) {
  last_error = "stand-in: " + why;
  return result;
}

// The data that one operation moves, and functions to run before and afterwards.
struct Operation {
  std::function<void()> before;
  std::vector<Part> out;
  std::vector<Part> in;
  std::function<void()> after;
};

struct Launch {
  Shares comm;
  Stream stream = nullptr;
  std::vector<Operation> operations;
};
thread_local int group_depth = 0;
thread_local std::vector<Launch> group;
thread_local Result group_error = kSuccess;  // of the first call in the group that failed

// The factors of the ops that ncclRedOpCreatePreMulSum has made, by number, which is above those
// of NCCL's own ops.
std::mutex factors_mutex;
std::map<int, double> factors;

std::optional<double> factor_of(int op) {
  const std::lock_guard lock(factors_mutex);
  const auto found = factors.find(op);
  return found == factors.end() ? std::nullopt : std::optional(found->second);
}

std::atomic<int> communicators = 0;   // blocking ones created by this process
std::atomic<int> launches = 0;        // operations, or groups of them, on one communicator
std::atomic<bool> has_ended = false;  // the process's exit handlers, which NCCL needs, have run

void work(void* argument) {
  const std::unique_ptr<Launch> launch(static_cast<Launch*>(argument));
  Communicator& comm = *launch->comm;
  const auto is_over = [&comm] { return comm.is_over(); };
  int fatal = -1;
  const bool has_error = is_asked("async_error", &fatal);
  const bool is_stuck = is_asked("stuck", &fatal);
  is_asked("nothing", &fatal);
  if (++comm.operations == fatal) {
    if (has_error) comm.state = kRemoteError;
    while ((has_error || is_stuck) && !comm.is_aborted) comm.nap();
    return;
  }
  std::vector<Part> out;
  std::vector<Part> in;
  for (const Operation& each : launch->operations) {
    if (each.before) each.before();
    out.insert(out.end(), each.out.begin(), each.out.end());
    in.insert(in.end(), each.in.begin(), each.in.end());
  }
  if (!standin::exchange(comm.shared->data, comm.rank, std::move(out), std::move(in), is_over)) {
    return;
  }
  for (const Operation& each : launch->operations) {
    if (each.after) each.after();
  }
}

Result launch_now(Launch launch) {
  const Shares held = launch.comm;  // keeps it alive if it is aborted meanwhile
  Communicator& comm = *held;
  int blocking = -1;
  if (is_asked("blocks", &blocking) && ++comm.launches == blocking) {
    while (!comm.is_aborted) comm.nap();
    return kRemoteError;
  }
  ++launches;
  const Stream stream = launch.stream;
  standin_enqueue(stream, work, new Launch(std::move(launch)));
  if (comm.is_blocking) return kSuccess;
  comm.looks = kLooksInProgress;
  return kInProgress;
}

Result checked(Comm handle) {
  int extra_ms = 0;
  is_asked("slow_calls", &extra_ms);
  std::this_thread::sleep_for(std::chrono::milliseconds(extra_ms));
  Communicator& comm = *of(handle);
  if (comm.looks > 0 || comm.state == kInProgress) {
    return refuse(kInvalidArgument, "the communicator is used while in progress");
  }
  if (comm.state != kSuccess) return refuse(comm.state, "the communicator has failed");
  if (standin_current_gpu() != comm.gpu) {
    return refuse(kInvalidUsage, "another GPU's context is current");
  }
  return kSuccess;
}

// Like NCCL, a group with a call that fails is not launched: ncclGroupEnd returns the error.
Result in_group(Result result) {
  if (group_depth > 0 && group_error == kSuccess) group_error = result;
  return result;
}
Result check(Comm handle) { return in_group(checked(handle)); }

bool is_gpu_memory(const void* data, std::size_t bytes) {
  return bytes == 0 || standin_is_gpu_memory(data, bytes);
}

Result add(Comm handle, Stream stream, Operation operation) {
  if (group_depth == 0) return launch_now({of(handle), stream, {std::move(operation)}});
  for (Launch& launch : group) {
    if (launch.comm != of(handle) || launch.stream != stream) continue;
    launch.operations.push_back(std::move(operation));
    return kSuccess;
  }
  group.push_back({of(handle), stream, {std::move(operation)}});
  return kSuccess;
}

char* bytes_of(const void* data) { return static_cast<char*>(const_cast<void*>(data)); }

// Sends every rank's `bytes` from `in` to all receivers, which then call `use` with all of them.
using Use = std::function<void(const std::vector<std::vector<char>>& all)>;
Operation to_those(const Communicator& comm, const void* in, std::size_t bytes,
                   const std::function<bool(int rank)>& receives, Use use) {
  const auto size = static_cast<std::size_t>(comm.size);
  const auto all = std::make_shared<std::vector<std::vector<char>>>(size);
  Operation operation;
  for (int peer = 0; peer < comm.size; ++peer) {
    if (peer != comm.rank && receives(peer)) operation.out.push_back({peer, bytes_of(in), bytes});
    if (!receives(comm.rank)) continue;
    std::vector<char>& place = (*all)[static_cast<std::size_t>(peer)];
    place.resize(bytes);
    if (peer != comm.rank) operation.in.push_back({peer, place.data(), bytes});
  }
  if (!receives(comm.rank)) return operation;
  operation.after = [all, use = std::move(use), in, bytes, rank = comm.rank] {
    if (bytes > 0) std::memcpy((*all)[static_cast<std::size_t>(rank)].data(), in, bytes);
    use(*all);
  };
  return operation;
}

// As in NCCL, operations without data end at once.
Operation without_empty_parts(Operation operation) {
  const auto is_empty = [](const Part& part) { return part.bytes == 0; };
  std::erase_if(operation.out, is_empty);
  std::erase_if(operation.in, is_empty);
  return operation;
}

Result reduce_to(const void* in, void* out, std::size_t count, int type, int op, Comm comm,
                 Stream stream, const std::function<bool(int)>& receives, bool is_scattered) {
  if (const Result wrong = check(comm); wrong != kSuccess) return wrong;
  const Communicator& self = *of(comm);
  const auto ranks = static_cast<std::size_t>(self.size);
  const std::size_t element = standin::element_bytes(type);
  const std::size_t bytes = count * element * (is_scattered ? ranks : 1);
  if (!is_gpu_memory(in, bytes) || (receives(self.rank) && !is_gpu_memory(out, count * element))) {
    return in_group(refuse(kInvalidArgument, "not memory of the GPU"));
  }
  in = standin_bytes(in);
  out = standin_bytes(out);
  const std::size_t from = is_scattered ? static_cast<std::size_t>(self.rank) * count : 0;
  const std::optional<double> factor = factor_of(op);
  if (op > kAverage && !factor)
    return in_group(refuse(kInvalidArgument, "an op that is not there"));
  const auto product = std::make_shared<std::vector<char>>(factor ? bytes : 0);
  Operation operation =
      to_those(self, factor ? product->data() : in, bytes, receives,
               [=](auto& all) { standin::reduce(all, from, count, type, op, out); });
  operation.before = [=] {
    if (factor) standin::multiply(*product, in, type, *factor);
  };
  return add(comm, stream, without_empty_parts(std::move(operation)));
}

const std::function<bool(int)> everybody = [](int) { return true; };

Result move(const void* in, void* out, std::size_t bytes, Comm comm, Stream stream, bool is_send,
            int peer) {
  if (const Result wrong = check(comm); wrong != kSuccess) return wrong;
  if (!is_gpu_memory(is_send ? in : out, bytes)) {
    return in_group(refuse(kInvalidArgument, "not memory of the GPU"));
  }
  in = standin_bytes(in);
  out = standin_bytes(out);
  Operation operation;
  (is_send ? operation.out : operation.in).push_back({peer, bytes_of(is_send ? in : out), bytes});
  return add(comm, stream, without_empty_parts(std::move(operation)));
}

Comm make(int rank, int size, const std::string& path, bool is_blocking) {
  auto comm = std::make_shared<Communicator>();
  comm->is_blocking = is_blocking;
  comm->rank = rank;
  comm->size = size;
  comm->gpu = standin_current_gpu();
  comm->path = path;
  comm->shared = standin::map_shared(path);
  if (comm->shared == nullptr || comm->gpu < 0) return nullptr;
  comm->helper = std::thread([self = comm.get()] { connect(*self); });
  if (is_blocking) comm->helper.join();
  if (is_blocking) ++communicators;
  return reinterpret_cast<Comm>(new Shares(std::move(comm)));
}

// The arguments of ncclCommSplit, and where to store the new communicator.
struct Split {
  int color = 0;
  int key = 0;
  Comm* part = nullptr;
  bool is_blocking = false;
};

// Exchanges color and key with all ranks. Ranks of one color connect over a new file. Returns null
// without a color, or after an abort.
Comm make_part(Communicator& parent, const Split& asked) {
  const int color = asked.color;
  const int key = asked.key;
  std::vector<int> all(2 * static_cast<std::size_t>(parent.size));
  int mine[2] = {color, key};
  std::vector<Part> out;
  std::vector<Part> in;
  for (int peer = 0; peer < parent.size; ++peer) {
    int* const place = &all[2 * static_cast<std::size_t>(peer)];
    place[0] = color;
    place[1] = key;
    if (peer == parent.rank) continue;
    out.push_back({peer, bytes_of(mine), sizeof mine});
    in.push_back({peer, bytes_of(place), sizeof mine});
  }
  const auto is_over = [&parent] { return parent.is_over(); };
  if (!standin::exchange(parent.shared->control, parent.rank, out, in, is_over)) return nullptr;
  if (color == kNoColor) return nullptr;
  int rank = 0;
  int size = 0;
  for (int peer = 0; peer < parent.size; ++peer) {
    const int* const place = &all[2 * static_cast<std::size_t>(peer)];
    if (place[0] != color) continue;
    ++size;
    if (place[1] < key || (place[1] == key && peer < parent.rank)) ++rank;
  }
  const std::string path =
      parent.path + "-" + std::to_string(parent.splits) + "-" + std::to_string(color);
  auto child = std::make_shared<Communicator>();
  child->rank = rank;
  child->size = size;
  child->gpu = parent.gpu;
  child->path = path;
  child->shared = standin::map_shared(path);
  child->is_blocking = asked.is_blocking;
  child->helper = std::thread([self = child.get()] { connect(*self); });
  if (asked.is_blocking) child->helper.join();
  if (asked.is_blocking) ++communicators;
  return reinterpret_cast<Comm>(new Shares(std::move(child)));
}

// Runs on a thread of NCCL's. It always stores the result, also null, before it ends the progress.
void split(Communicator& parent, const Split& asked) {
  int extra_ms = 0;
  is_asked("slow_split", &extra_ms);
  for (int i = 0; i < extra_ms && !parent.is_aborted; ++i) parent.nap();
  const Comm part = make_part(parent, asked);
  const std::atomic_ref<Comm> place(*asked.part);
  if (place.load() != nullptr) {
    std::fputs("stand-in: ncclCommSplit's newcomm was freed or changed before it was stored\n",
               stderr);
    std::abort();
  }
  place.store(part);
  int in_progress = kInProgress;
  parent.state.compare_exchange_strong(in_progress, kSuccess);
}

}  // namespace

extern "C" {

int standin_nccl_communicators() { return communicators; }
int standin_nccl_launches() { return launches; }

Result ncclGetVersion(int* version) {
  *version = 22809;
  is_asked("version", version);
  return kSuccess;
}
const char* ncclGetErrorString(Result result) {
  return result == kRemoteError    ? "remote process exited or there was a network error"
         : result == kSystemError  ? "unhandled system error"
         : result == kInvalidUsage ? "invalid usage"
                                   : "an error of the stand-in's";
}
const char* ncclGetLastError(Comm) { return last_error.c_str(); }

Result ncclGetUniqueId(UniqueId* id) {
  char path[] = "/tmp/drun-standin-nccl-XXXXXX";
  const int fd = mkstemp(path);
  if (fd < 0) return kSystemError;
  close(fd);
  std::snprintf(id->bytes, sizeof id->bytes, "%s", path);
  return kSuccess;
}

Result ncclCommInitRankConfig(Comm* comm, int size, UniqueId id, int rank, Config* config) {
  const bool is_blocking = config->blocking == 1;
  if (config->magic != Config().magic || config->size < sizeof(Config) ||
      (config->blocking != 0 && !is_blocking) || size > standin::kMostRanks) {
    return refuse(kInvalidArgument, "a config that does not say whether it blocks, or many ranks");
  }
  static std::once_flag is_registered;
  std::call_once(is_registered, [] { std::atexit([] { has_ended = true; }); });
  *comm = make(rank, size, id.bytes, is_blocking);
  if (*comm == nullptr) return refuse(kInvalidUsage, "no GPU's context is current");
  return is_blocking ? of(*comm)->state.load() : kInProgress;
}

// Like NCCL 2.18 to 2.30, it returns success although the parent is in progress from now on, and
// *part is written later, also on ranks without a color.
Result ncclCommSplit(Comm comm, int color, int key, Comm* part, Config* config) {
  if (const Result wrong = check(comm); wrong != kSuccess) return wrong;
  const Shares held = of(comm);  // keeps it alive if it is aborted meanwhile
  Communicator& parent = *held;
  const Split asked{.color = color,
                    .key = key,
                    .part = part,
                    .is_blocking = config != nullptr && config->blocking == 1};
  if (parent.helper.joinable()) parent.helper.join();
  std::atomic_ref<Comm>(*part).store(nullptr);
  parent.state = kInProgress;
  ++parent.splits;
  if (parent.is_blocking) {
    split(parent, asked);
    return parent.is_aborted ? kRemoteError : parent.state.load();
  }
  parent.helper = std::thread([&parent, asked] { split(parent, asked); });
  return kSuccess;
}

Result ncclCommDestroy(Comm comm) {
  if (has_ended) std::abort();
  while (is_asked("stuck_close")) of(comm)->nap();
  delete &of(comm);
  return kSuccess;
}
Result ncclCommAbort(Comm comm) {
  if (has_ended) std::abort();
  Communicator& self = *of(comm);
  while (is_asked("stuck_close")) self.nap();
  self.is_aborted = true;
  self.shared->has_aborted[self.rank] = true;
  if (self.helper.joinable()) self.helper.join();  // as NCCL does
  delete &of(comm);
  return kSuccess;
}
Result ncclCommGetAsyncError(Comm comm, Result* error) {
  Communicator& self = *of(comm);
  *error = self.looks > 0 ? kInProgress : self.state.load();
  if (self.looks > 0) --self.looks;
  return kSuccess;
}

Result ncclGroupStart() {
  ++group_depth;
  return kSuccess;
}
Result ncclGroupEnd() {
  if (group_depth == 0) return refuse(kInvalidUsage, "no group was started");
  if (--group_depth > 0) return kSuccess;
  Result result = std::exchange(group_error, kSuccess);
  std::vector<Launch> all = std::exchange(group, {});
  if (result != kSuccess) return result;
  for (Launch& launch : all) result = launch_now(std::move(launch));
  return result;
}

Result ncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int residence, Comm comm) {
  if (const Result wrong = check(comm); wrong != kSuccess) return wrong;
  if (residence != kScalarHostImmediate) return refuse(kInvalidArgument, "not on the host");
  const std::lock_guard lock(factors_mutex);
  *op = factors.empty() ? kAverage + 1 : factors.rbegin()->first + 1;
  factors[*op] = standin::number_at(scalar, type);
  return kSuccess;
}
Result ncclRedOpDestroy(int op, Comm) {
  const std::lock_guard lock(factors_mutex);
  return factors.erase(op) == 1 ? kSuccess : refuse(kInvalidArgument, "an op that is not there");
}
Result ncclAllReduce(const void* in, void* out, std::size_t count, int type, int op, Comm comm,
                     Stream stream) {
  return reduce_to(in, out, count, type, op, comm, stream, everybody, false);
}
Result ncclReduce(const void* in, void* out, std::size_t count, int type, int op, int root,
                  Comm comm, Stream stream) {
  return reduce_to(
      in, out, count, type, op, comm, stream, [root](int r) { return r == root; }, false);
}
Result ncclReduceScatter(const void* in, void* out, std::size_t count, int type, int op, Comm comm,
                         Stream stream) {
  return reduce_to(in, out, count, type, op, comm, stream, everybody, true);
}
Result ncclBroadcast(const void* in, void* out, std::size_t count, int type, int root, Comm comm,
                     Stream stream) {
  if (const Result wrong = check(comm); wrong != kSuccess) return wrong;
  const Communicator& self = *of(comm);
  const std::size_t bytes = count * standin::element_bytes(type);
  if (!is_gpu_memory(out, bytes))
    return in_group(refuse(kInvalidArgument, "not memory of the GPU"));
  in = standin_bytes(in);
  out = standin_bytes(out);
  Operation operation;
  if (self.rank != root) operation.in.push_back({root, bytes_of(out), bytes});
  for (int peer = 0; self.rank == root && peer < self.size; ++peer) {
    if (peer != root) operation.out.push_back({peer, bytes_of(in), bytes});
  }
  operation.after = [=, is_root = self.rank == root] {
    if (is_root && in != out && bytes > 0) std::memmove(out, in, bytes);
  };
  return add(comm, stream, without_empty_parts(std::move(operation)));
}
Result ncclAllGather(const void* in, void* out, std::size_t count, int type, Comm comm,
                     Stream stream) {
  if (const Result wrong = check(comm); wrong != kSuccess) return wrong;
  const Communicator& self = *of(comm);
  const std::size_t bytes = count * standin::element_bytes(type);
  if (!is_gpu_memory(in, bytes) ||
      !is_gpu_memory(out, bytes * static_cast<std::size_t>(self.size))) {
    return in_group(refuse(kInvalidArgument, "not memory of the GPU"));
  }
  in = standin_bytes(in);
  out = standin_bytes(out);
  return add(comm, stream, without_empty_parts(to_those(self, in, bytes, everybody, [=](auto& all) {
               char* place = bytes_of(out);
               for (const std::vector<char>& part : all) {
                 place = std::copy(part.begin(), part.end(), place);
               }
             })));
}
Result ncclSend(const void* in, std::size_t count, int type, int peer, Comm comm, Stream stream) {
  return move(in, nullptr, count * standin::element_bytes(type), comm, stream, true, peer);
}
Result ncclRecv(void* out, std::size_t count, int type, int peer, Comm comm, Stream stream) {
  return move(nullptr, out, count * standin::element_bytes(type), comm, stream, false, peer);
}

}  // extern "C"
