// edge. Waits until NVIDIA's driver has taken back the GPU memory of workers that are gone: a round
// that starts while it has not would run out of memory at its first allocation.
//
// How:     NVML lists the processes that hold memory of each GPU, and a process stays in the list
//          until its memory is free. The library is loaded when it is needed. Without it, or where
//          process ids are not the driver's (most containers), nothing
//          is waited for.
// Blocks:  NVML may, for seconds: it is asked in a thread.
// Owner:   Agent.   Thread: the io_context's only.   Errors: none.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/output/file_writer.h"
#include "rendezvous/base/log.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

// The process ids that NVML lists as users of any GPU; absent: there is no such library, or it does
// not work here. Blocks.
std::optional<std::vector<int>> gpu_processes(const std::string& library);

// Whether process ids are those that a driver knows.
bool is_first_pid_namespace();

class GpuRelease {
 public:
  // `unfreed`: which memory was not free in time, as a sentence's end; empty: all is.
  using OnFree = std::function<void(const std::string& unfreed)>;

  // `library`: a path, or a name to be looked for as ld.so(8) does; empty: nothing is waited for.
  GpuRelease(asio::io_context& io, Log log, std::string library);

  // `pids`: processes that are gone. Called back once, from the loop or from stop().
  void wait(std::vector<int> pids, std::chrono::milliseconds at_most, OnFree on_free);

  // Nothing is waited for from now on.
  void stop();

 private:
  void give(const std::string& unfreed);

  std::string library_;
  Log log_;
  asio::steady_timer note_;
  asio::steady_timer limit_;
  FileWriter thread_;
  OnFree on_free_;
  int wait_ = 0;  // the number of the last one
};

}  // namespace drun::agent
