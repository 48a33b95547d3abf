// edge. One rank's communicator of the NCCL stand-in, and its injected faults (nccl_standin.cc
// lists them).
//
// `operations` belongs to the stream's thread, `splits` to the caller's. Shared by all handles and
// the operations on a stream.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "tests/standin/nccl_shared.h"
#include "worker_lib/nccl/abi.h"

namespace standin {

// Whether the fault is requested; `value` gets its number, if it has one.
bool is_asked(const char* fault, int* value = nullptr);

struct Communicator {
  int rank = 0;
  int size = 1;
  int gpu = 0;
  std::string path;
  Shared* shared = nullptr;
  std::atomic<int> state{drun::worker::nccl::kInProgress};
  std::atomic<int> looks{0};  // how many more queries return "in progress"
  std::atomic<bool> is_aborted{false};
  bool is_blocking = false;  // calls return only once nothing is in progress
  int operations = 0;
  int splits = 0;
  int launches = 0;    // counted for the fault "blocks"
  std::thread helper;  // connects or splits

  ~Communicator() {
    is_aborted = true;
    if (helper.joinable()) helper.join();
    unlink(path.c_str());  // in case not all ranks arrived
    if (shared != nullptr) unmap_shared(shared);
  }
  // Like NCCL within a machine, it does not notice another rank's abort. Over a network, where NCCL
  // gets an error from the closed connection, it does.
  bool is_over() {
    static const bool is_network = std::getenv("STANDIN_NCCL_NETWORK") != nullptr;
    for (int peer = 0; is_network && peer < size && state == drun::worker::nccl::kSuccess; ++peer) {
      if (peer != rank && shared->has_aborted[peer]) state = drun::worker::nccl::kRemoteError;
    }
    return is_aborted;
  }
  void nap() const { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }
};
// Waits for the other ranks. The state has the result.
void connect(Communicator& comm);

}  // namespace standin
