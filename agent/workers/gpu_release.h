// edge. Waits until NVIDIA's driver has released the GPU memory of workers that have exited. A
// round that starts earlier could run out of memory at its first allocation.
//
// NVML lists the processes that hold memory of each GPU; a process stays in the list until its
// memory is free. NVML is loaded when it is first needed. There is no wait without it, nor where
// process ids differ from the driver's (in most containers). NVML can block for seconds, so it is
// called in a thread.
//
// Owner:   Agent.   Thread: the io_context's only.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "agent/output/file_writer.h"
#include "rendezvous/base/log.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

// Whether this process's ids are the ones that the driver uses.
bool is_first_pid_namespace();

class GpuRelease {
 public:
  // `unfreed`: the memory that was not released in time, as the end of a sentence; empty: none.
  using OnFree = std::function<void(const std::string& unfreed)>;

  // `library`: a path or name for dlopen(3); empty: never waits.
  GpuRelease(asio::io_context& io, Log log, std::string library);

  // `pids`: processes that have exited. `on_free` is called once, from the loop or from stop().
  void wait(std::vector<int> pids, std::chrono::milliseconds at_most, OnFree on_free);

  // Ends the wait, and does not wait any more.
  void stop();

 private:
  void give(const std::string& unfreed);

  std::string library_;
  Log log_;
  asio::steady_timer note_;
  asio::steady_timer limit_;
  FileWriter thread_;
  OnFree on_free_;
  int wait_ = 0;  // number of the latest wait
};

}  // namespace drun::agent
