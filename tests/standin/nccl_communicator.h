// edge. A communicator of the stand-in for NCCL, as one rank has it, and the faults it is told to
// have (nccl_standin.cc lists them).
//
// Thread:  any; `operations` the stream's, `splits` the caller's.
// Owner:   whoever has a handle, and what is on a stream.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "tests/standin/nccl_shared.h"
#include "worker_lib/nccl/abi.h"

namespace standin {

// Whether it is this fault that is asked for; its number, if it has one.
bool is_asked(const char* fault, int* value = nullptr);

struct Communicator {
  int rank = 0;
  int size = 1;
  int gpu = 0;
  std::string path;
  Shared* shared = nullptr;
  std::atomic<int> state{drun::worker::nccl::kInProgress};
  std::atomic<int> looks{0};  // left of which "in progress" is the answer
  std::atomic<bool> is_aborted{false};
  bool is_blocking = false;  // calls return when they are no longer in progress
  int operations = 0;
  int splits = 0;
  int launches = 0;    // counted for the fault "blocks"
  std::thread helper;  // connects, splits

  ~Communicator() {
    is_aborted = true;
    if (helper.joinable()) helper.join();
    unlink(path.c_str());  // if not all have come
    if (shared != nullptr) unmap_shared(shared);
  }
  bool is_over() {
    for (int peer = 0; peer < size && state == drun::worker::nccl::kSuccess; ++peer) {
      if (peer != rank && shared->has_aborted[peer]) state = drun::worker::nccl::kRemoteError;
    }
    return is_aborted;
  }
  void nap() const { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }
};
// Meets the others; the state says how that ended.
void connect(Communicator& comm);

}  // namespace standin
