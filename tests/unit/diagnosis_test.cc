// Cases marked "tried" have the text of a fault that was caused in a real run on CPUs (torch 2.15,
// Gloo) or on a GPU (torch 2.11, NCCL), abridged, and with ranks and group sizes changed where the
// case needs it. All others are written by hand, in particular most of those of GPUs and NCCL.
// tests/bench/gpu_faults.json has texts of real failures of GPUs, which jobs of drun replay.
#include "agent/diagnosis/diagnosis.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <random>

#include "agent/diagnosis/error_text.h"
#include "agent/diagnosis/hang_positions.h"
#include "tests/support/catch.h"

namespace drun::agent {
namespace {

using StderrLines = std::vector<std::string>;
using Fault = FaultClass;

Failure failure_of(int rank, ExitStatus status, StderrLines stderr_tail = {}) {
  Failure failure;
  failure.rank = rank;
  failure.local_rank = rank % 2;
  failure.node_rank = rank / 2;
  failure.host = "gpu" + std::to_string(rank / 2);
  failure.pid = 100 + rank;
  failure.status = std::move(status);
  failure.program = "python";
  failure.stderr_tail = std::move(stderr_tail);
  return failure;
}

Failure exited(int rank, StderrLines stderr_tail, int code = 1) {
  return failure_of(rank, Exited{code}, std::move(stderr_tail));
}
Failure killed(int rank, int signal, StderrLines stderr_tail = {}) {
  return failure_of(rank, Killed{signal}, std::move(stderr_tail));
}
Failure recorded(int rank, std::string message, std::string traceback = "") {
  Failure failure = failure_of(rank, Exited{1});
  failure.message = std::move(message);
  failure.traceback = std::move(traceback);
  return failure;
}
Failure out_of_memory(int rank) {
  Failure failure = killed(rank, SIGKILL);
  failure.out_of_memory = true;
  return failure;
}
// The node logged errors of a GPU while the worker ran.
Failure logged(Failure failure, const StderrLines& kernel_log) {
  failure.traceback = with_kernel_log(failure.traceback, kernel_log);
  return failure;
}
Failure injected(Failure failure) {
  failure.injected = "kill:rank=1@20s";
  return failure;
}

Outcome outcome_of(Ending ending, int world_size = 4) {
  return {.ending = std::move(ending),
          .run_id = "r",
          .node_count = (world_size + 1) / 2,
          .world_size = world_size,
          .duration = std::chrono::minutes(10)};
}
Outcome failed(std::vector<Failure> failures, int world_size = 4) {
  return outcome_of(WorkersFailed{std::move(failures)}, world_size);
}
Outcome early(Outcome outcome) {
  outcome.duration = std::chrono::seconds(2);
  return outcome;
}
Outcome hung(std::vector<int> ranks, const std::string& stacks, int world_size = 4) {
  std::vector<Failure> failures;
  for (const int rank : ranks) failures.push_back(failure_of(rank, Hung{"no output for 60 s"}));
  failures.front().traceback = stacks;
  return failed(std::move(failures), world_size);
}

// A traceback of torch.distributed's Python part.
StderrLines in_call(const std::string& mark, const std::string& call, int line,
                    const std::string& error) {
  return {mark + "Traceback (most recent call last):",
          mark + "  File \"/home/u/train.py\", line " + std::to_string(line) + ", in <module>",
          mark + "    d." + call + "(x)",
          mark +
              "  File \"/v/lib/python3.11/site-packages/torch/distributed/c10d_logger.py\", line "
              "83, in wrapper",
          mark + "    return func(*args, **kwargs)",
          mark +
              "  File \"/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py\", "
              "line 4181, in " +
              call,
          mark + "    work.wait()",
          mark + error};
}

constexpr const char* kGlooTimeout =
    "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] "
    "Timed out waiting 6000ms for recv operation to complete";
constexpr const char* kGlooClosed =
    "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] "
    "Connection closed by peer [10.0.0.2]:4711";
// Of the worker with rank 2 (failure_of), and of none.
constexpr const char* kXid79 =
    "NVRM: Xid (PCI:0000:c1:00): 79, pid=102, name=python, GPU has fallen off the bus.";
constexpr const char* kXid94 =
    "NVRM: Xid (PCI:0000:08:00): 94, pid='<unknown>', name=<unknown>, Contained: SM (0x1).";
constexpr const char* kUnknownCuda = "RuntimeError: CUDA error: unspecified launch failure";
constexpr const char* kNcclRemote =
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
    "prematurely.";

std::string text_of(const StderrLines& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// Of a rank whose interpreter ends, as eu-stack shows it.
constexpr const char* kEnding =
    "  process python\n    thread\n      visit_decref (libpython3.11.so.1.0)\n      Py_FinalizeEx "
    "(libpython3.11.so.1.0)\n      Py_RunMain (libpython3.11.so.1.0)\n    thread\n      "
    "pthread_cond_wait (libc.so.6)\n      c10d::ProcessGroupGloo::runLoop(int) "
    "(libtorch_cpu.so)\n";

// A rank that waits in Gloo, as eu-stack shows it.
std::string gloo_stack(const std::string& ranks, const std::string& function) {
  return ranks + ": no sign of life (eu-stack)\n  process python\n    thread\n" +
         "      __futex_abstimed_wait_common (libc.so.6)\n      c10d::Work::wait "
         "(libtorch_cpu.so)\n    thread\n      gloo::transport::tcp::UnboundBuffer::waitRecv "
         "(libtorch_cpu.so)\n      " +
         function + " (libtorch_cpu.so)\n";
}

std::string fingerprint(int rank, const std::string& op, const std::string& shape) {
  return "Rank " + std::to_string(rank) +
         " is running collective: CollectiveFingerPrint(SequenceNumber=1, OpType=" + op +
         ", TensorShape=" + shape +
         ", TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, "
         "layout=Strided (default), requires_grad=false (default), pinned_memory=false (default), "
         "memory_format=(nullopt)))";
}
std::string mismatch(const std::string& one, const std::string& other) {
  return "RuntimeError: Detected mismatch between collectives on ranks. " + one + ", but " + other +
         ".Collectives differ in the following aspects: \t Op type: ALLREDUCEvs BROADCAST";
}

constexpr const char* kFutex =
    "  process python\n    thread python\n      sleeping in futex_do_wait (futex)\n"
    "      futex_do_wait (kernel)\n    thread gloo_tcp_loop\n"
    "      sleeping in do_epoll_wait (epoll_wait)\n";
constexpr const char* kInAllReduce =
    "  process python\n    thread MainThread\n      wait (threading.py:327)\n"
    "      all_reduce (distributed_c10d.py:4181)\n      wrapper (c10d_logger.py:83)\n"
    "      step (train.py:33)\n      <module> (train.py:60)\n";
constexpr const char* kInBroadcast =
    "  process python\n    thread MainThread\n      broadcast (distributed_c10d.py:4055)\n"
    "      wrapper (c10d_logger.py:83)\n      save (train.py:44)\n";
constexpr const char* kInLoader =
    "  process python\n    thread MainThread\n      select (selectors.py:415)\n"
    "      poll (connection.py:257)\n      _try_get_data (dataloader.py:1289)\n"
    "      _next_data (dataloader.py:1444)\n      __next__ (dataloader.py:741)\n"
    "      main (train.py:25)\n";
constexpr const char* kSleeps =
    "  process python\n    thread MainThread\n      validate (train.py:71)\n"
    "      main (train.py:90)\n";

struct Case {
  const char* name;
  Outcome outcome;
  Fault fault;
  std::string ranks = "ranks";  // as ranks_text
  RestartHelps helps = RestartHelps::Unknown;
  std::optional<int> exclude = std::nullopt;
};

const auto kNo = RestartHelps::No;
const auto kYes = RestartHelps::Yes;
const auto kMaybe = RestartHelps::Unknown;

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&all](Case each) { all.push_back(std::move(each)); };
  // Crashes.
  add({"an exception",
       failed({exited(2, {"Traceback (most recent call last):", "ValueError: bad batch"})}),
       Fault::Crash, "rank 2"});
  add({"tried: an exception that ends in SIGABRT",
       failed(
           {killed(1, SIGABRT,
                   {"[rank1]: Traceback (most recent call last):", "[rank1]: ValueError: bad batch",
                    "terminate called without an active exception"})}),
       Fault::Crash, "rank 1"});
  add({"a segmentation fault", failed({killed(3, SIGSEGV)}), Fault::Crash, "rank 3"});
  add({"tried: kill -9", failed({killed(1, SIGKILL)}), Fault::Crash, "rank 1"});
  add({"SIGTERM from outside", failed({killed(0, SIGTERM)}), Fault::Crash, "rank 0", kYes});
  add({"an injected fault", failed({injected(killed(1, SIGKILL))}), Fault::Crash, "rank 1", kYes});
  add({"no output at all", failed({exited(0, {}, 7)}), Fault::Crash, "rank 0"});
  add({"a device-side assertion",
       failed({exited(1, {"RuntimeError: CUDA error: device-side assert triggered"})}),
       Fault::Crash, "rank 1"});
  add({"an exception in a dataset",
       failed(
           {exited(1, {"ValueError: Caught ValueError in DataLoader worker process 0.",
                       "Original Traceback (most recent call last):", "ValueError: bad image"})}),
       Fault::Crash, "rank 1"});
  add({"a logged error before a crash",
       failed({killed(1, SIGSEGV,
                      {"WARNING: ConnectionError: retrying", "ImportError: no apex", "a", "b", "c",
                       "d", "e", "f"})}),
       Fault::Crash, "rank 1"});
  add({"an allocation that was retried before another error",
       failed({exited(1, {"CUDA out of memory. Tried to allocate 2.00 GiB; retrying",
                          "Traceback (most recent call last):", "KeyError: 'x'"})}),
       Fault::Crash, "rank 1"});
  add({"exit code 2 after ten minutes", failed({exited(0, {"bad record"}, 2)}), Fault::Crash,
       "rank 0"});
  add({"a missing file after ten minutes",
       failed({exited(0, {"FileNotFoundError: [Errno 2] No such file or directory: 'ckpt.pt'"})}),
       Fault::Crash, "rank 0"});
  add({"the rank that died, not its peers (Gloo)",
       failed({exited(0, in_call("[rank0]: ", "all_reduce", 9, kGlooClosed)), killed(2, SIGSEGV),
               exited(1, in_call("[rank1]: ", "all_reduce", 9, kGlooClosed))}),
       Fault::Crash, "rank 2"});
  add({"the rank that died, not its peers (NCCL)",
       failed({exited(0, {"torch.distributed.DistBackendError: NCCL error in: "
                          "/pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, remote process "
                          "exited or there was a network error, NCCL version 2.28.3",
                          kNcclRemote}),
               exited(3, {"ZeroDivisionError: division by zero"})}),
       Fault::Crash, "rank 3"});
  add({"the rank that died, not one whose Gloo aborted",
       failed({killed(0, SIGABRT,
                      {"terminate called after throwing an instance of "
                       "'gloo::IoException'",
                       std::string("  what():  ") + kGlooClosed}),
               exited(1, {"IndexError: list index out of range"})}),
       Fault::Crash, "rank 1"});
  add({"the rank that died, not one whose store connection broke",
       failed(
           {exited(1, {"torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. "
                       "Connection was likely closed. Did the remote server shutdown or crash?"}),
            exited(0, {"AssertionError"})}),
       Fault::Crash, "rank 0"});
  add({"the rank that died, not its peers (worker_lib)",
       failed({killed(1, SIGABRT,
                      {"terminate called after throwing an instance of "
                       "'drun::WorkerError'",
                       "  what():  rank 1: all_reduce #7: lost rank 2: its process "
                       "ended"}),
               killed(2, SIGFPE)}),
       Fault::Crash, "rank 2"});
  add({"an exception, and warnings of PyTorch about connections that the end of other ranks breaks",
       failed({exited(1, {"[rank1]: Traceback (most recent call last):", "[rank1]: KeyError: 'x'",
                          "[rank1]:[W318 10:00:41.915284135 TCPStore.cpp:125] [c10d] recvValue "
                          "failed on SocketImpl(fd=135, addr=[host]:48750): Connection reset by "
                          "peer"})}),
       Fault::Crash, "rank 1"});
  add({"NCCL's invalid usage",
       early(failed({exited(1, {"torch.distributed.DistBackendError: NCCL error in: x.cpp:93, "
                                "invalid usage, NCCL version 2.28.9",
                                "ncclInvalidUsage: This usually reflects invalid usage of NCCL "
                                "library.",
                                "Last error:", "Rank 3 is out of range"})})),
       Fault::Crash, "rank 1"});
  // Host memory.
  add({"the out-of-memory killer", failed({out_of_memory(1)}), Fault::HostMemory, "rank 1", kNo});
  add({"the out-of-memory killer, seen after its peers",
       failed({exited(0, in_call("", "all_reduce", 9, kGlooClosed)), out_of_memory(3)}),
       Fault::HostMemory, "rank 3", kNo});
  add({"tried: PyTorch's allocator",
       failed({exited(1, {"[rank1]: RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. "
                          "DefaultCPUAllocator: can't allocate memory: you tried to allocate "
                          "140737488355328 bytes. Error code 12 (Cannot allocate memory)"})}),
       Fault::HostMemory, "rank 1", kNo});
  add({"tried: Python's MemoryError", failed({exited(1, {"[rank1]: MemoryError"})}),
       Fault::HostMemory, "rank 1", kNo});
  add({"std::bad_alloc",
       failed({killed(1, SIGABRT,
                      {"terminate called after throwing an instance of "
                       "'std::bad_alloc'",
                       "  what():  std::bad_alloc"})}),
       Fault::HostMemory, "rank 1", kNo});
  add({"Slurm's memory limit",
       failed({killed(1, SIGKILL, {"slurmstepd: error: Detected 1 oom_kill event in StepId=7.0"})}),
       Fault::HostMemory, "rank 1", kNo});
  add({"fork without memory", failed({exited(1, {"OSError: [Errno 12] Cannot allocate memory"})}),
       Fault::HostMemory, "rank 1", kNo});
  add({"a chained MemoryError",
       failed({exited(1, {"RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to "
                          "allocate 8 bytes.",
                          "The above exception was the direct cause of the following exception:",
                          "TrainError: step 7 failed"})}),
       Fault::HostMemory, "rank 1", kNo});
  // GPU memory.
  add({"CUDA out of memory",
       failed(
           {exited(1, {"[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
                       "20.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 12.00 GiB is "
                       "free."})}),
       Fault::GpuMemory, "rank 1", kNo});
  add({"CUDA out of memory, of older versions",
       failed({exited(1, {"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate"})}),
       Fault::GpuMemory, "rank 1", kNo});
  add({"HIP out of memory",
       failed({exited(1, {"torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2 GiB"})}),
       Fault::GpuMemory, "rank 1", kNo});
  add({"CUDA's own error", failed({exited(0, {"RuntimeError: CUDA error: out of memory"})}),
       Fault::GpuMemory, "rank 0", kNo});
  add({"cuBLAS",
       failed({exited(0, {"RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling "
                          "`cublasCreate(handle)`"})}),
       Fault::GpuMemory, "rank 0", kNo});
  add({"NCCL without GPU memory",
       failed({exited(0, {"torch.distributed.DistBackendError: NCCL error in: x.cpp:94, unhandled "
                          "cuda error, NCCL version 2.28.3",
                          "ncclUnhandledCudaError: Call to CUDA function failed.",
                          "Last error:", "Cuda failure 2 'out of memory'"})}),
       Fault::GpuMemory, "rank 0", kNo});
  add({"JAX",
       failed({exited(0, {"jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of "
                          "memory while trying to allocate 1 bytes."})}),
       Fault::GpuMemory, "rank 0", kNo});
  add({"GPU memory, in the error file",
       failed({recorded(2, "CUDA out of memory. Tried to allocate")}), Fault::GpuMemory, "rank 2",
       kNo});
  // Desync.
  add({"tried: different operations, found by TORCH_DISTRIBUTED_DEBUG=DETAIL",
       failed({exited(0, {"[rank0]: " + mismatch(fingerprint(0, "ALLREDUCE", "[3]"),
                                                 fingerprint(1, "BROADCAST", "[3]"))}),
               exited(1, {"[rank1]: " + mismatch(fingerprint(1, "BROADCAST", "[3]"),
                                                 fingerprint(0, "ALLREDUCE", "[3]"))})},
              2),
       Fault::Desync, "ranks 0, 1", kNo});
  add({"different shapes of three ranks",
       failed({exited(0, {mismatch(fingerprint(0, "ALLREDUCE", "[4]"),
                                   fingerprint(2, "ALLREDUCE", "[3]"))}),
               exited(1, {mismatch(fingerprint(1, "ALLREDUCE", "[4]"),
                                   fingerprint(2, "ALLREDUCE", "[3]"))})},
              3),
       Fault::Desync, "rank 2", kNo});
  add({"tried: Gloo gets data of another size",
       failed({killed(0, SIGABRT,
                      {"terminate called after throwing an instance of "
                       "'gloo::EnforceNotMet'",
                       "  what():  [enforce fail at pair.cc:464] op.preamble.length <= "
                       "op.nbytes. 10 vs 8. Received data size doesn't match expected "
                       "size. Is there a distributed collective mismatch in your "
                       "code?"})}),
       Fault::Desync, "ranks", kNo});
  add({"ranks time out in different operations",
       failed({exited(0, in_call("[rank0]: [rank0]: ", "all_reduce", 13, kGlooTimeout)),
               exited(1, in_call("[rank1]: ", "broadcast", 12, kGlooTimeout))},
              2),
       Fault::Desync, "ranks 0, 1", kNo});
  add({"ranks time out in different lines",
       failed({exited(1, in_call("[rank1]: ", "all_reduce", 32, kGlooTimeout)),
               exited(0, in_call("[rank0]: ", "all_reduce", 14, kGlooTimeout)),
               exited(2, in_call("[rank2]: ", "all_reduce", 14, kGlooTimeout))},
              3),
       Fault::Desync, "rank 1", kNo});
  add({"worker_lib's mismatch",
       failed({killed(1, SIGABRT,
                      {"  what():  rank 1: all_reduce #3: rank 0 sends 8 floats of "
                       "broadcast, this rank receives 4 floats of all_reduce"})}),
       Fault::Desync, "ranks", kNo});
  add({"a hang with different operations",
       hung({0, 1}, std::string("ranks 0, 2, 3: no sign of life (py-spy)\n") + kInAllReduce +
                        "rank 1: no sign of life (py-spy)\n" + kInBroadcast),
       Fault::Desync, "rank 1", kNo});
  add({"worker_lib's disagreement",
       failed({exited(2, {"drun::WorkerError: rank 2: all_reduce(f32 x 500, sum): rank 1's "
                          "all_reduce(f32 x 1000, sum) failed first: the ranks disagree about "
                          "collective number 9: ranks 0, 1, 3 call all_reduce(f32 x 1000, sum); "
                          "rank 2 calls all_reduce(f32 x 500, sum)"})}),
       Fault::Desync, "rank 2", kNo});
  add({"tried: a hang with different operations, by the C++ frames of Gloo's threads",
       hung({0, 1, 2},
            gloo_stack("ranks 0, 2", "c10d::AsyncAllreduceWork::allreduce") +
                gloo_stack("rank 1",
                           "c10d::(anonymous namespace)::AsyncAllgatherWork"
                           "::allgather"),
            3),
       Fault::Desync, "rank 1", kNo});
  add({"tried: a hang with different operations, by the Flight Recorder",
       hung(
           {0, 1, 2},
           std::string("ranks 0, 2: no sign of life (/proc)\n") +
               "  Flight Recorder: call 3 in 0 (default_pg): all_reduce, scheduled, of [4] "
               "Float\n" +
               kFutex + "rank 1: no sign of life (/proc)\n" +
               "  Flight Recorder: call 3 in 0 (default_pg): broadcast, scheduled, of [4] Float\n" +
               kFutex,
           3),
       Fault::Desync, "rank 1", kNo});
  add({"tried: a collective timed out, and the stacks show another call",
       failed({recorded(0, "",
                        with_stacks(text_of(in_call("", "all_reduce", 13, kGlooTimeout)),
                                    "rank 0: has ended (agent)\n" +
                                        gloo_stack("rank 1", "c10d::AsyncBarrierWork") +
                                        gloo_stack("rank 2", "c10d::AsyncAllreduceWork")))},
              3),
       Fault::Desync, "rank 1", kNo});
  add({"a hang with different sizes, by worker_lib",
       hung({0, 1, 2},
            "ranks 0, 1: in all_reduce #7 (4096 bytes), no sign of life (gdb)\n"
            "rank 2: in all_reduce #7 (2048 bytes), no sign of life (gdb)\n",
            3),
       Fault::Desync, "rank 2", kNo});
  // Missing ranks.
  add({"tried: monitored barrier",
       failed(
           {exited(0, {"[rank0]: RuntimeError: [Rank 0]: Ranks 1 failed to pass monitoredBarrier "
                       "in 6000 ms"})}),
       Fault::MissingRank, "rank 1"});
  add({"monitored barrier, several ranks",
       failed({exited(0, {"RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in "
                          "6000 ms"})}),
       Fault::MissingRank, "ranks 1, 3"});
  add({"tried: a Gloo timeout of two ranks",
       failed({exited(0, in_call("[rank0]: ", "all_reduce", 18, kGlooTimeout))}, 2),
       Fault::MissingRank, "rank 1"});
  add({"a Gloo timeout seen by one of many",
       failed({exited(0, in_call("[rank0]: ", "all_reduce", 18, kGlooTimeout))}, 64),
       Fault::MissingRank, "ranks"});
  add({"NCCL's watchdog with a desync report",
       failed({killed(0, SIGABRT,
                      {"[rank0]:[E1126 16:41:59 ProcessGroupNCCL.cpp:683] [Rank 0] Watchdog caught "
                       "collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, "
                       "NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600029 milliseconds "
                       "before timing out.",
                       "\t - [2] finished collective #6, but didn't join collective #7 (count from "
                       "1)"})}),
       Fault::MissingRank, "rank 2"});
  add({"NCCL's watchdog on three of four ranks",
       failed({killed(0, SIGABRT,
                      {"what():  [Rank 0] Watchdog caught collective operation timeout: "
                       "WorkNCCL(SeqNum=7, OpType=ALLREDUCE)"}),
               killed(1, SIGABRT,
                      {"what():  [Rank 1] Watchdog caught collective operation timeout: "
                       "WorkNCCL(SeqNum=7, OpType=ALLREDUCE)"}),
               killed(3, SIGABRT,
                      {"what():  [Rank 3] Watchdog caught collective operation timeout: "
                       "WorkNCCL(SeqNum=7, OpType=ALLREDUCE)"})}),
       Fault::MissingRank, "rank 2"});
  add({"worker_lib's barrier",
       failed({killed(0, SIGABRT,
                      {"  what():  rank 0: barrier #3: ranks 1, 2 did not come in "
                       "time"})}),
       Fault::MissingRank, "ranks 1, 2"});
  add({"worker_lib's TCP",
       failed({killed(0, SIGABRT,
                      {"  what():  rank 0: all_reduce #3: rank 3 did not do its part in "
                       "time; run with DRUN_DEBUG=1 to learn which rank calls something "
                       "else"})}),
       Fault::MissingRank, "rank 3"});
  add({"a hang: one rank is elsewhere",
       hung({0, 2, 3}, std::string("ranks 0, 2, 3: no sign of life (py-spy)\n") + kInAllReduce +
                           "rank 1: (py-spy)\n" + kSleeps),
       Fault::MissingRank, "rank 1"});
  add({"tried: a hang without a debugger",
       hung({0}, std::string("ranks 0, 2, 3: no sign of life (/proc)\n") + kFutex +
                     "rank 1: (/proc)\n  process python\n    thread python\n      sleeping in "
                     "hrtimer_nanosleep (clock_nanosleep)\n      hrtimer_nanosleep (kernel)\n"),
       Fault::MissingRank, "rank 1"});
  add({"tried: a stopped rank",
       hung({1}, std::string("ranks 0, 2, 3: (/proc)\n") + kFutex +
                     "rank 1: no sign of life (/proc)\n  process python, stopped\n    thread "
                     "python\n      stopped in do_signal_stop (system call 62)\n"),
       Fault::MissingRank, "rank 1", kYes});
  add({"tried: a collective timed out, and the stacks show a rank elsewhere",
       failed(
           {recorded(0, "",
                     with_stacks(text_of(in_call("", "all_reduce", 13, kGlooTimeout)),
                                 "rank 0: has ended (agent)\n" + std::string("rank 1: (py-spy)\n") +
                                     kSleeps + gloo_stack("rank 2", "c10d::AsyncAllreduceWork")))},
           3),
       Fault::MissingRank, "rank 1"});
  add({"tried: a collective timed out while a rank was about to end, perhaps with an error",
       failed({recorded(1, "",
                        with_stacks(text_of(in_call("", "all_gather", 92, kGlooTimeout)),
                                    std::string("rank 0: (eu-stack)\n") + kEnding +
                                        "rank 1: has ended (agent)\n"))},
              3),
       Fault::MissingRank, "ranks"});
  add({"a hang: a rank waits at its end",
       hung({0, 1, 2},
            gloo_stack("ranks 0, 2", "c10d::AsyncAllreduceWork") + "rank 1: (eu-stack)\n" + kEnding,
            3),
       Fault::MissingRank, "rank 1", kNo});
  add({"a hang: a rank waits at its end for a thread",
       hung({0, 1, 2},
            gloo_stack("ranks 0, 2", "c10d::AsyncAllreduceWork") +
                "rank 1: (py-spy)\n  process python\n    thread MainThread\n      _shutdown "
                "(threading.py:1553)\n",
            3),
       Fault::MissingRank, "rank 1", kNo});
  add({"a hang: a rank that is elsewhere, and different calls of smaller groups",
       hung({0, 1, 2},
            gloo_stack("rank 0", "c10d::AsyncAllreduceWork") +
                gloo_stack("rank 2", "c10d::AsyncBroadcastWork") + "rank 1: (py-spy)\n" + kSleeps,
            3),
       Fault::MissingRank, "rank 1"});
  add({"tried: a hang in a lock, by the Flight Recorder",
       hung({0, 1, 2},
            std::string("ranks 0, 2: no sign of life (/proc)\n") +
                "  Flight Recorder: call 6 in 0 (default_pg): all_reduce, scheduled, of [4] "
                "Float\n" +
                kFutex + "rank 1: no sign of life (/proc)\n" +
                "  Flight Recorder: call 5 in 0 (default_pg): all_reduce, completed, of [4] "
                "Float\n" +
                kFutex,
            3),
       Fault::MissingRank, "rank 1"});
  add({"a hang: worker_lib's counts",
       hung({7},
            "ranks 0-6: in all_reduce #812 (4096 bytes) (gdb)\n  process train\n    thread "
            "train\n      poll (libc.so.6)\nrank 7: last ended all_reduce #811, not in one, no "
            "sign of life (gdb)\n  process train\n    thread train\n      spin (train)\n",
            8),
       Fault::MissingRank, "rank 7"});
  add({"a hang: behind in NCCL",
       hung({7},
            "ranks 0-6: (gdb)\n  process train\n    thread train\n      poll (libc.so.6)\n"
            "rank 7: at all_reduce 811 in a communicator of 8, the others at 812 (NCCL), no "
            "sign of life (gdb)\n  process train\n    thread train\n      spin (train)\n",
            8),
       Fault::MissingRank, "rank 7"});
  add({"tried: a hang: behind in NCCL, and the other rank waits busily",
       hung({1},
            "rank 0: (/proc)\n  process python3\n    thread python\n      running\n"
            "rank 1: at all_reduce 20 in a communicator of 2, the others at 21 (NCCL), no sign of "
            "life (/proc)\n  process python3\n    thread python\n      sleeping in "
            "hrtimer_nanosleep (clock_nanosleep)\n",
            2),
       Fault::MissingRank, "rank 1"});
  add({"a collective timed out without a stack, and the others are in a named one",
       failed({recorded(0, "",
                        with_stacks("RuntimeError: [Rank 0] Watchdog caught collective operation "
                                    "timeout: WorkNCCL(SeqNum=7)",
                                    "rank 0: has ended (agent)\nranks 1, 2: (py-spy)\n" +
                                        std::string(kInAllReduce)))},
              3),
       Fault::MissingRank, "ranks"});
  add({"a hang: behind in NCCL, and the other rank is ahead there",
       hung({1},
            "rank 0: ahead of other ranks (NCCL) (/proc)\n  process python3\n    thread python\n"
            "      running\nrank 1: at all_reduce 20 in a communicator of 2, the others at 21 "
            "(NCCL), no sign of life (/proc)\n  process python3\n    thread python\n      "
            "sleeping in hrtimer_nanosleep (clock_nanosleep)\n",
            2),
       Fault::MissingRank, "rank 1"});
  add({"a hang: a rank that has ended",
       hung({0, 2, 3}, std::string("ranks 0, 2, 3: no sign of life (py-spy)\n") + kInAllReduce +
                           "rank 1: has ended (agent)\n"),
       Fault::MissingRank, "rank 1", kNo});
  // Data loaders.
  add({"a hang: a data loader",
       hung({1}, std::string("ranks 0, 2, 3: (py-spy)\n") + kInAllReduce +
                     "rank 1: no sign of life (py-spy)\n" + kInLoader),
       Fault::DataLoader, "rank 1"});
  add({"a hang: a data loader, without a debugger",
       hung({1}, std::string("ranks 0, 2, 3: (/proc)\n") + kFutex +
                     "rank 1: no sign of life (/proc)\n  process python\n    thread python\n      "
                     "sleeping in poll_schedule_timeout (poll)\n  process pt_data_worker\n    "
                     "thread pt_data_worker\n      sleeping in hrtimer_nanosleep (nanosleep)\n"),
       Fault::DataLoader, "rank 1"});
  add({"all ranks wait for data",
       hung({0, 1}, std::string("ranks 0, 1: no sign of life (py-spy)\n") + kInLoader, 2),
       Fault::DataLoader, "ranks 0, 1"});
  add({"a data loader's process was killed",
       failed({exited(1, {"RuntimeError: DataLoader worker (pid 4711) is killed by signal: "
                          "Killed. "})}),
       Fault::DataLoader, "rank 1"});
  add({"a data loader's process exited",
       failed({exited(1, {"RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly"})}),
       Fault::DataLoader, "rank 1"});
  add({"tried: a process that loads data was killed, and the traceback is cut off",
       failed({exited(1, {"object type name: ConnectionResetError", "lost sys.stderr",
                          "[rank1]: Traceback (most recent call last):",
                          "[rank1]:   File \"/home/u/train.py\", line 9, in <module>",
                          "[rank1]:   File \"/v/lib/python3.11/site-packages/torch/utils/data/"
                          "dataloader.py\", line 1466, in _get_data",
                          "[rank1]:     success, data = self._try_get_data()",
                          "[rank1]:                     ^^^^^^^^"})}),
       Fault::DataLoader, "rank 1"});
  add({"tried: the same, cut off later, so that the last lines have only inner frames",
       failed({exited(1, {"[rank1]:   File \"/usr/lib/python3.11/multiprocessing/"
                          "resource_sharer.py\", line 57, in detach",
                          "[rank1]:     with _resource_sharer.get_connection(self._id) as conn:",
                          "[rank1]:   File \"/usr/lib/python3.11/multiprocessing/connection.py\", "
                          "line 395, in _recv",
                          "[rank1]:     chunk = read(handle, remaining)"})}),
       Fault::DataLoader, "rank 1"});
  const std::vector<std::string> dump = {
      "object address  : 0x7fdbbb8058a0", "object refcount : 2",
      "object type     : 0x7fdc75250080", "object type name: EOFError",
      "object repr     : EOFError()",     "lost sys.stderr"};
  const auto cut_off_after = [&dump](std::vector<std::string> traceback) {
    traceback.insert(traceback.begin(), dump.begin(), dump.end());
    return failed({exited(1, traceback)});
  };
  add({"tried: the same, cut off at the first frame", cut_off_after({}), Fault::DataLoader,
       "rank 1"});
  add({"tried: the same, cut off above the frame that waits",
       cut_off_after({"[rank1]:   File \"/v/lib/python3.11/site-packages/torch/utils/data/"
                      "dataloader.py\", line 1507, in _next_data",
                      "[rank1]:     idx, data = self._get_data()"}),
       Fault::DataLoader, "rank 1"});
  add({"an error of the program that was cut off",
       cut_off_after({"[rank1]:   File \"/home/u/train.py\", line 9, in read_label",
                      "[rank1]:     label = pickle.load(file)"}),
       Fault::Crash, "rank 1"});
  add({"tried: a killed process that closed the connection over which it shared a tensor",
       failed({exited(1, {"[rank1]:   File \"/usr/lib/python3.11/multiprocessing/"
                          "resource_sharer.py\", line 86, in get_connection",
                          "[rank1]:     c = Client(address, authkey=x)", "[rank1]: EOFError"})}),
       Fault::DataLoader, "rank 1"});
  add({"tried: a killed process, which PyTorch's handler found when the program had failed",
       failed({exited(1, {"[rank1]: ConnectionResetError: [Errno 104] Connection reset by peer",
                          "Exception ignored in atexit callback: <function f at 0x7f6be2c69da0>",
                          "Traceback (most recent call last):",
                          "  File \"/v/lib/python3.11/site-packages/torch/utils/data/_utils/"
                          "signal_handling.py\", line 73, in handler",
                          "    _error_if_any_worker_fails()",
                          "RuntimeError: DataLoader worker (pid 4711) is killed by signal: "
                          "Killed. "})}),
       Fault::DataLoader, "rank 1"});
  add({"a process that loads data and was stopped because the program had failed",
       failed({exited(1, {"[rank1]: ValueError: nan",
                          "Exception ignored in atexit callback: <function f at 0x7f6be2c69da0>",
                          "Traceback (most recent call last):", "    _error_if_any_worker_fails()",
                          "RuntimeError: DataLoader worker (pid 4711) is killed by signal: "
                          "Terminated. "})}),
       Fault::Crash, "rank 1"});
  add({"tried: a killed process that shared a tensor",
       failed({exited(1, {"[rank1]:   File \"/usr/lib/python3.11/multiprocessing/"
                          "resource_sharer.py\", line 86, in get_connection",
                          "[rank1]:     c = Client(address, authkey=x)",
                          "[rank1]: ConnectionResetError: [Errno 104] Connection reset by peer"})}),
       Fault::DataLoader, "rank 1"});
  add({"no shared memory",
       failed({exited(1, {"ERROR: Unexpected bus error encountered in worker. This might be caused "
                          "by insufficient shared memory (shm)."})}),
       Fault::DataLoader, "rank 1"});
  add({"a data loader's timeout",
       failed({exited(1, {"RuntimeError: DataLoader timed out after 60 seconds"})}),
       Fault::DataLoader, "rank 1"});
  // Network.
  add({"NCCL's communicator was aborted, and no rank has died",
       failed({exited(0, {"[rank0]: torch.distributed.DistBackendError: NCCL communicator was "
                          "aborted on rank 0."})}),
       Fault::Network, "ranks", kYes});
  add({"connections break, and no rank has died",
       failed({exited(0, in_call("", "all_reduce", 9, kGlooClosed)),
               exited(1, in_call("", "all_reduce", 9, kGlooClosed))}),
       Fault::Network, "ranks", kYes});
  add({"the store cannot be reached",
       failed({exited(3, {"torch.distributed.DistNetworkError: The client socket has timed out "
                          "after 60000ms while trying to connect to (10.0.0.1, 29500)."})}),
       Fault::Network, "ranks", kYes});
  add({"connection refused",
       failed({exited(3, {"ConnectionRefusedError: [Errno 111] Connection refused"})}),
       Fault::Network, "ranks", kYes});
  add({"Gloo cannot connect",
       failed(
           {exited(3, {"RuntimeError: Gloo connectFullMesh failed with [pair.cc:144] no error"})}),
       Fault::Network, "ranks", kYes});
  add({"NCCL without a route",
       failed({exited(1, {"torch.distributed.DistBackendError: NCCL error in: x, unhandled system "
                          "error",
                          "ncclSystemError: System call (e.g. socket, malloc) or external library "
                          "call failed or device error.",
                          "Last error:",
                          "socketStartConnect: Connect to 10.0.0.1<40000> failed : No route to "
                          "host"})}),
       Fault::Network, "ranks", kYes});
  add({"a name that does not resolve",
       failed({exited(1, {"socket.gaierror: [Errno -2] Name or service not known"})}),
       Fault::Network, "ranks", kYes});
  add({"a port in use",
       failed({exited(0, {"torch.distributed.DistNetworkError: The server socket has failed to "
                          "listen on any local network address. port: 29500, useIpv6: false, code: "
                          "-98, name: EADDRINUSE, message: address already in use"})}),
       Fault::Network, "rank 0"});
  add({"a lost node", outcome_of(NodeLost{1, "gpu1", false, "no heartbeat for 10 s"}),
       Fault::Network, "ranks", kYes, 1});
  add({"nodes that did not join",
       outcome_of(NotRun{{ErrorCode::Timeout, "node 1 did not join in 900 s"}}), Fault::Network});
  add({"a hang: all ranks in the same collective",
       hung({0, 1, 2, 3}, std::string("ranks 0-3: no sign of life (py-spy)\n") + kInAllReduce),
       Fault::Network});
  // Hardware.
  add({"ECC",
       failed({exited(3, {"RuntimeError: CUDA error: uncorrectable ECC error encountered"})}),
       Fault::Hardware, "rank 3", kYes, 1});
  add({"Xid",
       failed({exited(2, {"NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the "
                          "bus."})}),
       Fault::Hardware, "rank 2", kYes, 1});
  add({"ECC, found through NCCL",
       failed({exited(0, {"torch.distributed.DistBackendError: NCCL error in: x, unhandled cuda "
                          "error",
                          "Cuda failure 214 'uncorrectable ECC error encountered'"})}),
       Fault::Hardware, "rank 0", kYes, 0});
  add({"the rank that hangs with the faulty GPU, not one of its node that waited for it",
       failed({recorded(
           2, "",
           with_stacks(
               with_kernel_log(text_of(in_call("", "all_reduce", 13, kGlooTimeout)), {kXid94}),
               std::string("rank 3: (/proc)\n  kernel log of node 1: ") + kXid94 + "\n" +
                   kFutex))}),
       Fault::Hardware, "rank 3", kYes});
  add({"SIGBUS", failed({killed(1, SIGBUS)}), Fault::Hardware, "rank 1"});
  add({"an error of NCCL without a cause, and a rank with one",
       failed({exited(0, {"torch.distributed.DistBackendError: NCCL error in: x.cpp:1296, internal "
                          "error - please report this issue to the NCCL developers"}),
               exited(3, {"RuntimeError: CUDA error: uncorrectable ECC error encountered"})}),
       Fault::Hardware, "rank 3", kYes, 1});
  add({"an error of NCCL alone",
       failed({exited(2, {"torch.distributed.DistBackendError: NCCL error in: x.cpp:1296, internal "
                          "error"})}),
       Fault::Crash, "rank 2"});
  add({"an error of NCCL behind its warning",
       failed({exited(2, {"host:1:2 [0] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'",
                          "Traceback (most recent call last):",
                          "torch.distributed.DistBackendError: NCCL error in: x.cpp:1296, internal "
                          "error"})}),
       Fault::GpuMemory, "rank 2", kNo});
  add({"NCCL's last error is that it has no GPU memory",
       failed({exited(2, {"RuntimeError: NCCL error in: x.cpp:1269, internal error, NCCL version "
                          "2.14.3",
                          "ncclInternalError: Internal check failed.",
                          "Last error:", "Failed to CUDA calloc async 1920 bytes"})}),
       Fault::GpuMemory, "rank 2", kNo});
  add({"an Xid that a program causes, in its output",
       failed({exited(2, {"NVRM: Xid (PCI:0000:db:00): 31, pid=136, Ch 00000008. MMU Fault",
                          "RuntimeError: CUDA error: an illegal memory access was encountered"})}),
       Fault::Crash, "rank 2"});
  add({"the kernel log explains an error of CUDA",
       failed({logged(exited(2, {kUnknownCuda}), {kXid79})}), Fault::Hardware, "rank 2", kYes, 1});
  add({"the kernel log explains a signal", failed({logged(killed(3, SIGABRT), {kXid94})}),
       Fault::Hardware, "rank 3", kYes});
  add({"the kernel log explains a lost peer, by the process id",
       failed({logged(exited(3, {kNcclRemote}), {kXid79}),
               logged(exited(2, {kNcclRemote}), {kXid79}), exited(0, {kNcclRemote})}),
       Fault::Hardware, "rank 2", kYes, 1});
  add({"the kernel log explains a timeout on its node",
       failed({exited(0, in_call("[rank0]: ", "all_reduce", 13, kGlooTimeout)),
               logged(exited(3, in_call("[rank3]: ", "all_reduce", 13, kGlooTimeout)), {kXid94})}),
       Fault::Hardware, "rank 3", kYes});
  add({"an error of CUDA on the node of the faulty GPU, not one on another node",
       failed({exited(0, {kUnknownCuda}), logged(exited(2, {kUnknownCuda}), {kXid79})}),
       Fault::Hardware, "rank 2", kYes, 1});
  add({"the text of a worker about its GPU, and the kernel log",
       failed({logged(exited(2, {"RuntimeError: CUDA error: uncorrectable ECC error encountered"}),
                      {kXid94})}),
       Fault::Hardware, "rank 2", kYes});
  add({"an exception that is not of the GPU, beside an error of a GPU",
       failed({logged(exited(2, {"KeyError: 'x'"}), {kXid79})}), Fault::Crash, "rank 2"});
  add({"a clear cause on another node, beside an error of a GPU",
       failed({exited(0, {"KeyError: 'x'"}), logged(exited(2, {kNcclRemote}), {kXid79})}),
       Fault::Crash, "rank 0"});
  add({"GPU memory, beside an error of a GPU",
       failed({logged(exited(2, {"torch.OutOfMemoryError: CUDA out of memory."}), {kXid94})}),
       Fault::GpuMemory, "rank 2", kNo});
  add({"SIGTERM from outside, beside an error of a GPU",
       failed({logged(killed(2, SIGTERM), {kXid94})}), Fault::Crash, "rank 2", kYes});
  add({"an injected fault, beside an error of a GPU",
       failed({logged(injected(killed(2, SIGKILL)), {kXid94})}), Fault::Crash, "rank 2", kYes});
  add({"a hang: the kernel log names a process",
       hung({0, 1, 3}, std::string("ranks 0, 1, 3: no sign of life (py-spy)\n") + kInAllReduce +
                           "rank 2: no sign of life (py-spy)\n  kernel log of node 1: " + kXid79 +
                           "\n" + kInAllReduce),
       Fault::Hardware, "rank 2", kYes, 1});
  add({"a collective timed out, and the kernel log of another node shows an error of a GPU",
       failed({recorded(
           0, "",
           with_stacks(text_of(in_call("", "all_reduce", 13, kGlooTimeout)),
                       "rank 0: has ended (agent)\nrank 1: (/proc)\n" + std::string(kFutex) +
                           "ranks 2, 3: (/proc)\n  kernel log of node 1: " + kXid94 + "\n" +
                           kFutex))}),
       Fault::Hardware, "ranks 2, 3", kYes});
  // Errors of the user.
  add({"tried: a missing module",
       early(failed({exited(1, {"ModuleNotFoundError: No module named 'nosuchmodule'"}),
                     exited(0, {"ModuleNotFoundError: No module named 'nosuchmodule'"})})),
       Fault::UserError, "rank 1", kNo});
  add({"a syntax error",
       early(failed({exited(0, {"  File \"train.py\", line 3", "    if",
                                "SyntaxError: invalid "
                                "syntax"})})),
       Fault::UserError, "rank 0", kNo});
  add({"a script that does not exist",
       early(failed({exited(0,
                            {"python: can't open file '/home/u/trian.py': [Errno 2] No such file "
                             "or directory"},
                            2)})),
       Fault::UserError, "rank 0", kNo});
  add({"argparse",
       early(failed({exited(0,
                            {"usage: train.py [-h]",
                             "train.py: error: unrecognized arguments: "
                             "--lr"},
                            2)})),
       Fault::UserError, "rank 0", kNo});
  add({"exit code 2 at once", early(failed({exited(0, {"bad option"}, 2)})), Fault::UserError,
       "rank 0", kNo});
  add({"a missing file at once",
       early(failed({exited(0, {"FileNotFoundError: [Errno 2] No such file or directory: "
                                "'data.bin'"})})),
       Fault::UserError, "rank 0", kNo});
  add({"a command that is not found", failed({exited(0, {}, 127)}), Fault::UserError, "rank 0",
       kNo});
  add({"not executable", failed({failure_of(0, NotStarted{EACCES})}), Fault::UserError, "rank 0",
       kNo});
  add({"a driver that is too old",
       early(failed({exited(0, {"RuntimeError: The NVIDIA driver on your system is too old (found "
                                "version 11040). Please update your GPU driver"})})),
       Fault::UserError, "rank 0", kNo});
  add({"more workers than GPUs",
       early(failed({exited(1, {"RuntimeError: CUDA error: invalid device ordinal"})})),
       Fault::UserError, "rank 1", kNo});
  add({"two ranks with one GPU",
       early(failed({exited(2, {"torch.distributed.DistBackendError: NCCL error in: x.cpp:93, "
                                "invalid usage, NCCL version 2.28.9",
                                "ncclInvalidUsage: This usually reflects invalid usage of NCCL "
                                "library.",
                                "Last error:",
                                "Duplicate GPU detected : rank 2 and rank 3 both on CUDA device "
                                "60"})})),
       Fault::UserError, "ranks 2, 3", kNo});
  add({"two ranks of a smaller group with one GPU",
       early(failed({exited(3, {"RuntimeError: NCCL error in: x.cpp:93, invalid usage",
                                "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device "
                                "60"})})),
       Fault::UserError, "rank 3", kNo});
  add({"no GPU at once", early(failed({exited(1, {"RuntimeError: No CUDA GPUs are available"})})),
       Fault::UserError, "rank 1", kNo});
  add({"no GPU after ten minutes",
       failed({exited(1, {"RuntimeError: No CUDA GPUs are available"})}), Fault::Crash, "rank 1"});
  add({"a shared library",
       early(failed({exited(0,
                            {"./train: error while loading shared libraries: libx.so.1: cannot "
                             "open shared object file: No such file or directory"},
                            127)})),
       Fault::UserError, "rank 0", kNo});
  add({"drun's own usage", outcome_of(NotRun{{ErrorCode::Usage, "no program"}}), Fault::UserError,
       "ranks", kNo});
  // Others.
  add({"a hang of one rank",
       hung({0},
            "rank 0: no sign of life (/proc)\n  process train\n    thread train\n      "
            "sleeping in hrtimer_nanosleep (nanosleep)\n",
            1),
       Fault::Hang, "rank 0"});
  add({"a hang in which nothing differs",
       hung({0, 1}, std::string("ranks 0, 1: no sign of life (/proc)\n") + kFutex, 2), Fault::Hang,
       "ranks 0, 1"});
  add({"a hang without stacks", hung({2}, ""), Fault::Hang, "rank 2"});
  add({"preempted", outcome_of(Preempted{"the time limit of Slurm job 7 ends at 14:00:00"}),
       Fault::Preempted, "ranks", kYes});
  add({"interrupted", outcome_of(Interrupted{SIGINT, 0, "gpu0"}), Fault::Interrupted, "ranks",
       kYes});
  add({"success", outcome_of(Succeeded{}), Fault::None});
  add({"failed, and nothing is known", failed({}), Fault::None});
  return all;
}

std::string words(const Diagnosis& found) {
  std::string text = found.summary + " | " + found.advice;
  for (const std::string& line : found.evidence) text += "\n  " + line;
  return text;
}

void check_form(const Diagnosis& found) {
  if (found.fault == Fault::None) return;
  CHECK(!found.summary.empty());
  CHECK(found.summary.size() <= kDiagnosisLineBytes);
  CHECK(!found.advice.empty());
  CHECK_FALSE(found.advice.ends_with('.'));
  CHECK(!found.evidence.empty());
  CHECK(found.evidence.size() <= kMostEvidenceLines);
  for (const std::string& line : found.evidence) CHECK(line.size() <= kDiagnosisLineBytes);
}

}  // namespace

TEST_CASE("the end of a job gets the right class, ranks and advice") {
  const std::vector<Case> all = cases();
  CHECK(all.size() >= 60);
  for (const Case& each : all) {
    const Diagnosis found = diagnose(each.outcome);
    INFO(each.name << ": " << words(found));
    CHECK(std::string(word_of(found.fault)) == word_of(each.fault));
    CHECK(ranks_text(found.ranks) == each.ranks);
    CHECK(std::string(word_of(found.restart_helps)) == word_of(each.helps));
    CHECK(found.exclude_node == each.exclude);
    check_form(found);
  }
}

TEST_CASE("a plain crash adds nothing to the headline, and a crash behind its victims does") {
  CHECK_FALSE(diagnose(failed({killed(1, SIGKILL)})).adds_to_headline);
  CHECK_FALSE(diagnose(failed({exited(1, {"ValueError: x"})})).adds_to_headline);
  const Diagnosis found = diagnose(
      failed({exited(0, in_call("[rank0]: ", "all_reduce", 9, kGlooClosed)), killed(2, SIGSEGV)}));
  CHECK(found.adds_to_headline);
  CHECK(found.summary == "rank 2: signal 11 (SIGSEGV, segmentation fault)");
  REQUIRE(found.evidence.size() == 2);
  CHECK(found.evidence.back().starts_with("rank 0, its peer: RuntimeError: "));
}

TEST_CASE("the error is the exception, without warnings, notes and ignored exceptions") {
  struct ErrorCase {
    StderrLines stderr_tail;
    StderrLines error;
  };
  const std::string ignored = "Exception ignored in: <function Pool.__del__ at 0x7f00>";
  const std::string header = "Traceback (most recent call last):";
  for (const ErrorCase& each : std::vector<ErrorCase>{
           {{"ValueError: nan", "[W1127 07:16:02.272876963 ProcessGroupNCCL.cpp:1575] Warning: x"},
            {"ValueError: nan"}},
           {{"[rank1]: ValueError: nan", "[rank1]:[W ProcessGroupNCCL.cpp:523] x"},
            {"ValueError: nan"}},
           // Without an exception, the last line that is no warning counts.
           {{"cannot open the data", "W1127 07:16:02.272000 1234 torch/_dynamo/a.py:12] x"},
            {"cannot open the data"}},
           {{"cannot open the data", "I1127 07:16:02.272000 1234 a.py:12] x"},
            {"cannot open the data"}},
           {{"cannot open the data", "2026-11-27 07:16:02.272876: W tensorflow/a/b.cc:15] x"},
            {"cannot open the data"}},
           {{"cannot open the data", "WARNING:root:x", "INFO:root:x"}, {"cannot open the data"}},
           {{"cannot open the data", "[2026-11-27 07:16:02,272] [WARNING] [a.py:1] x"},
            {"cannot open the data"}},
           {{"cannot open the data", "gpu0:1:2 [0] NCCL INFO comm 0x5 Abort COMPLETE"},
            {"cannot open the data"}},
           {{"cannot open the data", "/v/a.py:12: UserWarning: x is slow", "  return x(y)"},
            {"cannot open the data"}},
           {{"W1127 07:16:02.272000 1234 a.py:12] x"}, {}},
           // Errors that a logger wrote are errors.
           {{"[E1127 07:16:02.2 ProcessGroupNCCL.cpp:612] x"},
            {"[E1127 07:16:02.2 ProcessGroupNCCL.cpp:612] x"}},
           {{"I have no rank [1:2] here"}, {"I have no rank [1:2] here"}},
           {{"Warnings: 3, errors: 1"}, {"Warnings: 3, errors: 1"}},
           {{"object type name: EOFError", "object repr     : EOFError()", "lost sys.stderr",
             header, "  File \"a.py\", line 3, in f", "    x = y.read()"},
            {"EOFError()"}},
           {{"terminate called after throwing an instance of 'c10::Error'",
             "  what():  CUDA error: unknown error",
             "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.", "",
             "Exception raised from f at /a.cpp:44 (most recent call first):"},
            {"CUDA error: unknown error"}},
           {{"AssertionError: ", "the driver has no such call", "install another one"},
            {"AssertionError:", "the driver has no such call"}},
           {{"DistBackendError: NCCL error in: x.cpp:93", "ncclSystemError: System call failed.",
             "Last error:", "socketStartConnect: failed"},
            {"DistBackendError: NCCL error in: x.cpp:93", "socketStartConnect: failed"}},
           {{header, "ValueError: nan", ignored, header, "  File \"a.py\", line 3, in __del__",
             "AttributeError: closed", ignored, header, "TypeError: None"},
            {"ValueError: nan"}},
           {{header, "ValueError: nan", header, "OSError: closed", ignored, header,
             "OSError: closed"},
            {"ValueError: nan"}},
           {{header, "OSError: closed", ignored, header, "OSError: closed"}, {"OSError: closed"}},
           {{ignored, header, "OSError: closed"}, {"OSError: closed"}},
           {{ignored, header, "OSError: closed", header, "ValueError: nan"}, {"ValueError: nan"}},
           {{ignored, header, "  File \"a.py\", line 3, in __del__", header, "ValueError: nan"},
            {"ValueError: nan"}},
           {{}, {}}}) {
    INFO(text_of(each.stderr_tail));
    CHECK(error_lines(exited(1, each.stderr_tail)) == each.error);
  }
  CHECK(error_lines(recorded(1,
                             "AcceleratorError: CUDA error: x\n  of step 7\nSearch for "
                             "`cudaErrorAssert' in https://x\nFor debugging consider passing "
                             "CUDA_LAUNCH_BLOCKING=1\n\n")) ==
        StderrLines{"AcceleratorError: CUDA error: x", "  of step 7"});
}

TEST_CASE("an exception with any name is the error if it ends a traceback") {
  struct ErrorCase {
    StderrLines stderr_tail;
    std::string error;
  };
  const std::string header = "Traceback (most recent call last):";
  const std::string frame = "  File \"a.py\", line 3, in f";
  const std::string chain = "The above exception was the direct cause of the following exception:";
  for (const ErrorCase& each : std::vector<ErrorCase>{
           {{header, frame, "ValueError: handled", header, frame, "    g()", "queue.Empty"},
            "queue.Empty"},
           {{header, frame, "ValueError: nan", "", chain, "", header, frame,
             "__main__.f.<locals>.Unsupported: graph break", "  Hint: none", "Set VERBOSE=1"},
            "__main__.f.<locals>.Unsupported: graph break"},
           {{"[rank1]: " + header, "[rank1]: " + frame, "[rank1]:     g()",
             "[rank1]: socket.gaierror: [Errno -2] unknown"},
            "socket.gaierror: [Errno -2] unknown"},
           // The first lines of the traceback are missing.
           {{"    g()", frame, "    h()", "    ~^^", "subprocess.TimeoutExpired: Command x", "bye"},
            "subprocess.TimeoutExpired: Command x"},
           {{"ValueError: nan", "stack:", frame, "    g()", "done"}, "ValueError: nan"},
           {{header, frame, "INFO:root:another thread", "queue.Empty", "step: 3"}, "queue.Empty"},
           {{"Fatal Python error: Aborted", "Current thread 0x7f (most recent call first):",
             "  File \"a.py\", line 3 in f", "Aborted"},
            "Fatal Python error: Aborted"},
           {{"  + Exception Group " + header, "  |   File \"a.py\", line 3, in f", "  |     g()",
             "  | ExceptionGroup: tasks (2 sub-exceptions)",
             "  +-+---------------- 1 ----------------", "    | " + header,
             "    |   File \"a.py\", line 4, in g", "    | queue.Empty",
             "    +------------------------------------", "done"},
            "queue.Empty"}}) {
    INFO(text_of(each.stderr_tail));
    const StderrLines error = error_lines(exited(1, each.stderr_tail));
    REQUIRE_FALSE(error.empty());
    CHECK(error.front() == each.error);
  }
  const StderrLines handled{header, frame, "ConnectionRefusedError: [Errno 111] Connection refused",
                            header, frame, "subprocess.TimeoutExpired: Command x"};
  CHECK(diagnose(failed({exited(1, handled)})).fault == FaultClass::Crash);
}

TEST_CASE("an error that was handled is not the cause of a later one") {
  const std::string header = "Traceback (most recent call last):";
  const StderrLines tail{header,
                         "RuntimeError: CUDA error: out of memory",
                         "During handling of the above exception, another exception occurred:",
                         header,
                         "RetryError: smaller batch",
                         header,
                         "ValueError: bad label"};
  CHECK(diagnose(failed({exited(1, tail)})).fault == FaultClass::Crash);
  CHECK(diagnose(failed({exited(1, {tail.begin(), tail.begin() + 5})})).fault ==
        FaultClass::GpuMemory);
}

TEST_CASE("errors of a GPU that the program causes have their own cause and advice") {
  const auto summary = [](StderrLines stderr_tail) {
    const Diagnosis found = diagnose(early(failed({exited(1, std::move(stderr_tail))})));
    CHECK(found.adds_to_headline);
    return found.summary;
  };
  CHECK(summary({"RuntimeError: CUDA error: misaligned address"}) ==
        "rank 1: a kernel on the GPU accessed invalid memory");
  CHECK(summary({"../aten/src/Loss.cu:250: nll_loss: block: [0,0,0], thread: [3,0,0] Assertion `t "
                 "< n` failed.",
                 "RuntimeError: CUDA error: device-side assert triggered"}) ==
        "rank 1: an assertion failed on the GPU: t < n in nll_loss (Loss.cu:250)");
  CHECK(summary({": block: [0,0,0] Assertion `` failed.", ": block: [ Assertion `x",
                 "RuntimeError: CUDA error: device-side assert triggered"}) ==
        "rank 1: an assertion failed on the GPU");
  CHECK(
      summary({"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.00 MiB. GPU 0 has "
               "a total capacity of 23.65 GiB of which 11.06 MiB is free. Including non-PyTorch "
               "memory, this process has 3.60 GiB memory in use."}) ==
      "rank 1 ran out of GPU memory: it uses 3.60 GiB of 23.65 GiB");
  CHECK(summary({"RuntimeError: CUDA out of memory of which this process has"}) ==
        "rank 1 ran out of GPU memory");
  CHECK(summary({"RuntimeError: No CUDA GPUs are available"}) == "no GPU is visible to rank 1");
  CHECK(summary({"RuntimeError: CUDA error: no kernel image is available for execution on the "
                 "device"}) == "the program's version of CUDA does not fit the driver or the GPU");
}

TEST_CASE("a desync says what each group of ranks called, and where") {
  CHECK(diagnose(failed({exited(0, in_call("[rank0]: ", "all_reduce", 13, kGlooTimeout)),
                         exited(1, in_call("[rank1]: ", "broadcast", 12, kGlooTimeout))},
                        2))
            .summary ==
        "desync: rank 0 waited in all_reduce at train.py:13, rank 1 waited in broadcast at "
        "train.py:12");
  CHECK(diagnose(failed({exited(0, {mismatch(fingerprint(0, "ALLREDUCE", "[4]"),
                                             fingerprint(1, "ALLREDUCE", "[3]"))})},
                        2))
            .summary ==
        "desync: rank 1 called ALLREDUCE of shape [3], rank 0 called ALLREDUCE of shape [4]");
  CHECK(diagnose(hung({0, 1}, std::string("ranks 0, 2, 3: (py-spy)\n") + kInAllReduce +
                                  "rank 1: (py-spy)\n" + kInBroadcast))
            .evidence == StderrLines{"rank 1: in broadcast, train.py:44",
                                     "ranks 0, 2, 3: in all_reduce, train.py:33"});
}

TEST_CASE("NCCL's counts name the collective that a rank has not arrived in") {
  const std::string behind = "rank 1: at all_reduce 20 in a communicator of 2, the others at 21 ";
  const Diagnosis found = diagnose(hung({1}, "rank 0: (gdb)\n" + behind + "(NCCL) (gdb)\n", 2));
  CHECK(found.summary == "rank 1 has not arrived in all_reduce");
  CHECK(ranks_text(found.ranks) == "rank 1");
}

TEST_CASE("a line of PyTorch's watchdog names the call that timed out") {
  const auto call = [](const std::string& op) {
    return timed_out_call("collective operation timeout: WorkNCCL(SeqNum=21, OpType=" + op +
                          ", NumelIn=1000, Timeout(ms)=60000) ran for 60069 milliseconds");
  };
  CHECK(call("ALLREDUCE") == "all_reduce (number 21)");
  CHECK(call("_ALLGATHER_BASE") == "all_gather_base (number 21)");
  CHECK(call("ALLTOALL") == "all_to_all (number 21)");
  CHECK(call("REDUCE_SCATTER") == "reduce_scatter (number 21)");
  CHECK(timed_out_call("Watchdog caught collective operation timeout").empty());
}

TEST_CASE("evidence that is given counts instead of the traceback's") {
  Outcome outcome = hung({1}, "");
  const Evidence evidence{
      .groups = {
          {.ranks = {{0, 0}, {2, 3}}, .doing = "in broadcast #4 (8 bytes)", .source = "gdb"},
          {.ranks = {{1, 1}}, .doing = "last ended reduce #3, not in one", .source = "gdb"}}};
  const Diagnosis found = diagnose(outcome, {.stacks = evidence});
  CHECK(found.fault == Fault::MissingRank);
  CHECK(found.summary == "rank 1 has not arrived in broadcast");
}

TEST_CASE("evidence is the same after it was written as text and read") {
  Evidence evidence{
      .groups = {{.ranks = {{0, 6}, {8, 63}},
                  .doing = "in all_reduce #812 (4096 bytes)",
                  .source = "gdb",
                  .lines = {"process train", "  thread train", "    poll (libc.so.6)"}},
                 {.ranks = {{7, 7}}, .is_quiet = true, .source = "py-spy, /proc"}},
      .notes = {"node 3 (gpu3): no answer in 10 s"}};
  std::string text;
  for (const std::string& line : evidence_lines(evidence, 0)) text += line + "\n";
  CHECK(read_evidence(text) == evidence);
}

TEST_CASE("the classes that restart rules may name are those of a failed round") {
  CHECK(round_faults().front() == "crash");
  CHECK(round_faults().size() == 10);
  CHECK(round_fault(failed({exited(1, {"ModuleNotFoundError: No module named 'x'"})}),
                    std::chrono::seconds(1)) == RoundFault{"user_error", true});
  CHECK(round_fault(failed({exited(1, {"gone"}), exited(2, {"bad"})}), std::chrono::seconds(1)) ==
        RoundFault{"crash", false});
  CHECK(round_fault(outcome_of(Succeeded{}), std::chrono::seconds(1)) == RoundFault{});
}

TEST_CASE("evidence is cut, also that with the place of a call") {
  StderrLines lines = in_call("", "all_reduce", 13, kGlooTimeout);
  lines[1] = "  File \"/home/u/" + std::string(400, 'a') + ".py\", line 13, in <module>";
  StderrLines other = in_call("", "barrier", 14, kGlooTimeout);
  for (const Outcome& outcome :
       {failed({exited(0, lines), exited(1, other)}), failed({exited(0, lines)}),
        failed({exited(0, lines), exited(1, {mismatch(fingerprint(0, "ALLREDUCE", "[3]"),
                                                      fingerprint(1, "BROADCAST", "[3]"))})})}) {
    const Diagnosis found = diagnose(outcome);
    CHECK_FALSE(found.evidence.empty());
    CHECK(found.evidence.size() <= kMostEvidenceLines);
    for (const std::string& line : found.evidence) CHECK(line.size() <= kDiagnosisLineBytes);
  }
}

TEST_CASE("ranks that are in no collective are seen beside those that failed") {
  const auto in_collectives = [](const std::string& text, const RankRanges& failed) {
    return is_every_rank_in_collective(read_evidence(text), failed);
  };
  const std::string all_reduce = gloo_stack("rank 1", "c10d::AsyncAllreduceWork");
  CHECK(in_collectives(all_reduce, {}));
  CHECK(in_collectives("rank 0: has ended (agent)\n" + all_reduce, {{0, 0}}));
  CHECK_FALSE(in_collectives("rank 0: has ended (agent)\n" + all_reduce, {}));
  CHECK_FALSE(in_collectives("rank 0: has ended (agent)\n", {{0, 0}}));
  CHECK_FALSE(in_collectives("", {}));
  CHECK_FALSE(in_collectives(
      all_reduce + "rank 2: (gdb)\n  process python\n    thread MainThread\n      step (a.py:3)\n",
      {}));
}

TEST_CASE("the stacks of the other ranks are a part of the traceback and do not replace it") {
  const std::string text = with_stacks("Traceback\nValueError: bad", "rank 1: (gdb)\n");
  CHECK(parts_of(text).traceback == "Traceback\nValueError: bad\n");
  CHECK(parts_of(text).stacks == "rank 1: (gdb)\n");
  CHECK(parts_of("ValueError: bad").stacks.empty());
  CHECK(with_stacks(std::string(100'000, 'x'), std::string(19'000, 'y')).size() < 32'000);
  const std::string whole = with_stacks(with_kernel_log("ValueError", {"Xid 1"}), "rank 2\n");
  CHECK(parts_of(whole).traceback == "ValueError\n");
  CHECK(parts_of(whole).kernel_log == "Xid 1\n");
  CHECK(parts_of(whole).stacks == "rank 2\n");
  CHECK(parts_of(with_kernel_log("ValueError", {"Xid 1"})).kernel_log == "Xid 1\n");
  CHECK(parts_of(with_kernel_log("ValueError", {"Xid 1"})).traceback == "ValueError\n");
  CHECK(with_kernel_log("ValueError", {}) == "ValueError");
  CHECK(with_kernel_log(std::string(100'000, 'x'), StderrLines(4, std::string(160, 'y'))).size() <
        32'000);
  CHECK(has_only_waited(exited(0, in_call("[rank0]: ", "all_reduce", 13, kGlooTimeout))));
  CHECK_FALSE(has_only_waited(exited(0, {kGlooClosed})));
  CHECK_FALSE(has_only_waited(exited(0, {"ValueError: bad"})));
}

TEST_CASE("how long the round ran decides between a start-up error and a crash") {
  Outcome outcome = failed({exited(0, {"bad"}, 2)});
  CHECK(diagnose(outcome).fault == Fault::Crash);
  CHECK(diagnose(outcome, {.round_ran = std::chrono::seconds(3)}).fault == Fault::UserError);
  outcome.duration = std::chrono::seconds(3);
  outcome.restarts = 1;  // it is not known how long the last round ran
  CHECK(diagnose(outcome).fault == Fault::Crash);
}

TEST_CASE("hostile and very long texts end in a bounded diagnosis") {
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    INFO("seed 7, turn " << i);
    StderrLines tail;
    for (int line = 0; line < 20; ++line) {
      std::string text;
      for (int byte = 0; byte < 200; ++byte) text += static_cast<char>(random() % 256);
      if (line % 5 == 0) text += "Ranks 99999999999999999999, -1, failed to pass monitoredBarrier";
      if (line % 7 == 0) text += "Rank x is running collective: OpType=TensorShape=";
      constexpr std::array kBeginnings{"Exception ignored in: ",
                                       "XError: ",
                                       "[W",
                                       "2: ",
                                       "Traceback (most recent call last)",
                                       "what():",
                                       "Last error:"};
      if (random() % 2 == 0) text.insert(0, kBeginnings.at(random() % kBeginnings.size()));
      tail.push_back(text);
    }
    CHECK(error_lines(exited(0, tail)).size() <= 2);
    check_form(diagnose(failed({exited(0, tail)})));
    std::string stacks;
    for (const std::string& text : tail) stacks += "ranks 0-" + text + ": (gdb)\n";
    check_form(diagnose(hung({0}, stacks)));
  }
  const std::string huge(std::size_t{8} << 20, '[');
  const Outcome long_text = failed({recorded(1, huge, huge), exited(0, {huge, huge})});
  check_form(diagnose(long_text));
  std::string many;
  for (int i = 0; i < 200'000; ++i) many += "rank 1: in all_reduce (gdb)\n";
  check_form(diagnose(hung({1}, many)));
  std::vector<Failure> failures;
  for (int rank = 0; rank < 5000; ++rank) failures.push_back(exited(rank, {kNcclRemote}));
  check_form(diagnose(failed(failures, 5000)));
  check_form(diagnose(hung({0}, "rank 0-2147483647: (gdb)\nranks 5-1: (gdb)\nranks ,: (gdb)\n")));
}

}  // namespace drun::agent
