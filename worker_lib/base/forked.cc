#include "worker_lib/base/forked.h"

#include <pthread.h>

#include <atomic>

namespace drun::worker {
namespace {

std::atomic<int> generation = 0;

}  // namespace

int fork_generation() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++generation; });
  static_cast<void>(registered);
  return generation;
}

}  // namespace drun::worker
