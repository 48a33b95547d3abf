// core. Interprets the texts that a worker left: those of PyTorch, NCCL, Gloo, CUDA, Python and
// worker_lib. About half of the texts were found in the libraries of torch 2.15 and NCCL 2.30.7,
// and those of GPUs in reports of real failures (tests/bench/gpu_faults.json); the others are of
// the C library, Python, the kernel and other programs, or are put together when they are printed,
// and were not checked against a source.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/stacks/evidence.h"
#include "rendezvous/job/outcome.h"

namespace drun::agent {

enum class Sign {
  GpuMemory,
  HostMemory,
  DataLoaderWorker,  // a process that loads data ended
  DataLoaderWait,    // it waited too long for data
  Hardware,
  Desync,
  MissingRank,  // names ranks that others waited for
  Waited,       // a deadline passed while it waited for others
  PeerLost,     // a connection that had worked was lost
  NoConnection,
  NcclError,  // without its cause, which may be the failure of another rank
  PortInUse,
  StartUp,       // missing modules, syntax errors
  MaybeStartUp,  // the same, if it happens soon after the start
  NoGpu,         // if it happens soon after the start
  GpuSoftware,   // the driver or the GPU does not fit the program
  GpuNumber,     // there is no GPU of that number
  SharedGpu,     // two ranks use one GPU
  GpuAssertion,  // of a kernel
  GpuAccess,     // of a kernel to memory that it may not access
};

// A collective call as the text of one rank describes it.
struct Call {
  std::string op{};
  std::string shape{};
  bool operator==(const Call&) const = default;
};

struct ErrorText {
  std::optional<Sign> sign{};
  std::string line{};  // that the sign was found in, else the first of `error`; cut
  // What ended the program, without the warnings and notes that follow it: its exception and the
  // line that explains it. Not cut. Empty: not known.
  std::vector<std::string> error{};
  // Of an assertion on the GPU: "i < n in gather (Indexing.cu:15)"; of the GPU's memory: "120.96
  // GiB of 139.80 GiB", which the process uses. Empty: not known.
  std::string detail{};
  RankRanges named{};           // ranks that the text blames
  std::map<int, Call> calls{};  // of a mismatch, by rank
  // The Python call that it was in: "all_reduce", and the user's line: "train.py:33 in step".
  std::string collective{};
  std::string place{};
  bool is_exception = false;  // its last error is one of Python
  bool names_gpu = false;     // the error is one of CUDA, HIP or NCCL
};

ErrorText read_error_text(const Failure& failure);

// What timed out by a line of PyTorch's watchdog: "all_reduce (number 21)"; empty: not known.
std::string timed_out_call(std::string_view line);

// The error of a failure for reports, not cut: the message that the worker recorded, or else
// ErrorText::error.
std::vector<std::string> error_lines(const Failure& failure);

// Whether the worker's texts show that it failed because a collective took too long.
bool has_only_waited(const Failure& failure);
// Whether they show that it failed because it lost the connection to another rank.
bool has_lost_peer(const Failure& failure);

// --- What drun adds to the end of a failure's traceback

// The account of its signal (fatal_signals.h). Add it first.
std::string with_signal_account(std::string_view traceback, std::string_view account);
// Errors of GPUs in the kernel log of its node (gpu_faults.h).
std::string with_kernel_log(std::string_view traceback, const std::vector<std::string>& lines);
// The stacks of the other ranks when a collective timed out. Add them last.
std::string stacks_at_failure(const Evidence& evidence);
std::string with_stacks(std::string_view traceback, std::string_view stacks);
// The parts of such a traceback; empty: there are none.
struct TracebackParts {
  std::string_view traceback{};
  std::string_view account{};
  std::string_view kernel_log{};
  std::string_view stacks{};
};
TracebackParts parts_of(std::string_view traceback);
// For reports: without the account, which is in the diagnosis.
std::string shown_traceback(std::string_view traceback);

// Whether `name` is a function of torch.distributed that all ranks have to call.
bool is_collective(std::string_view name);

// Cut to what evidence may have.
std::string evidence_text(std::string_view line);

}  // namespace drun::agent
