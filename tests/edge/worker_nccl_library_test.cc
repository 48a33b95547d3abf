// Tests the errors of a program that requests nccl where it is not available.
#include <cstdlib>
#include <functional>
#include <string>

#include "drun/process_group.h"
#include "tests/support/catch.h"
#include "tests/support/gpu_memory.h"
#include "tests/support/machine.h"
#include "tests/support/ranks.h"
#include "worker_lib/nccl/library.h"

namespace drun {
namespace {

using test::run_ranks;
using test::Say;

// Libraries are loaded once per process, so each attempt runs in a new process.
std::string said_when(
    const std::function<void()>& prepare,
    const std::function<void()>& action = [] { ProcessGroup::connect({.backend = "nccl"}); }) {
  const auto ends = run_ranks({.size = 1, .port = 1}, [&](int, const Say& say) {
    test::use_standins();
    prepare();
    try {
      action();
      say("it works");
    } catch (const WorkerError& error) {
      say(std::string(to_string(error.kind())) + "| " + error.what());
    }
  });
  return ends[0].said;
}

void set(const char* name, const char* value) { setenv(name, value, 1); }

}  // namespace

TEST_CASE("without the CUDA driver or NCCL the error names the missing library") {
  CHECK_THAT(said_when([] { set("DRUN_CUDA_LIBRARY", "libnot_here.so.1"); }),
             ContainsSubstring("unsupported| ") &&
                 ContainsSubstring("cannot load libnot_here.so.1 (the CUDA driver)") &&
                 ContainsSubstring("No such file") &&
                 ContainsSubstring("DRUN_CUDA_LIBRARY should name its file"));
  CHECK_THAT(said_when([] { set("DRUN_NCCL_LIBRARY", "/nowhere/libnccl.so.2"); }),
             ContainsSubstring("unsupported| ") &&
                 ContainsSubstring("cannot load /nowhere/libnccl.so.2 (NCCL)") &&
                 ContainsSubstring("LD_LIBRARY_PATH"));
}

TEST_CASE("a library that is too old, or another library, is an error with the reason") {
  CHECK_THAT(said_when([] { set("STANDIN_NCCL_FAULT", "version=21304"); }),
             ContainsSubstring("is version 2.13.4; 2.14.0 or later is needed"));
  CHECK_THAT(said_when([] { set("DRUN_NCCL_LIBRARY", "libm.so.6"); }),
             ContainsSubstring("libm.so.6 (NCCL) lacks ncclGetVersion, ") &&
                 ContainsSubstring("ncclRecv: ") && !ContainsSubstring("ncclCommSplit"));
  CHECK_THAT(said_when([] { set("DRUN_CUDA_LIBRARY", "libm.so.6"); }),
             ContainsSubstring("libm.so.6 (the CUDA driver) lacks cuInit, "));
}

TEST_CASE("NCCL reserves the stack of its kernels when it is loaded, unless the user decides") {
  const auto stack_size = [] {
    worker::need_nccl();
    const char* const value = std::getenv("NCCL_SET_STACK_SIZE");
    throw WorkerError({.message = value == nullptr ? "not set" : value});
  };
  CHECK_THAT(said_when([] { unsetenv("NCCL_SET_STACK_SIZE"); }, stack_size), EndsWith("| 1\n"));
  CHECK_THAT(said_when([] { set("NCCL_SET_STACK_SIZE", "0"); }, stack_size), EndsWith("| 0\n"));
}

TEST_CASE("a driver that finds no GPU is an error") {
  CHECK_THAT(said_when([] { set("STANDIN_GPUS", "0"); }),
             ContainsSubstring("no GPU can be used") &&
                 ContainsSubstring("no CUDA-capable device is detected"));
}

TEST_CASE("a missing NCCL is reported before waiting for other ranks") {
  const auto began = std::chrono::steady_clock::now();
  CHECK_THAT(said_when([] {
               set("DRUN_CUDA_LIBRARY", "libnot_here.so.1");
               set("WORLD_SIZE", "2");  // no other rank exists
               set("MASTER_PORT", "1");
             }),
             ContainsSubstring("cannot load libnot_here.so.1"));
  CHECK(std::chrono::steady_clock::now() - began < test::scaled(std::chrono::seconds(20)));
}

TEST_CASE("the default backend works without a GPU until GPU memory is used") {
  const auto without_driver = [] { set("DRUN_CUDA_LIBRARY", "libnot_here.so.1"); };
  CHECK_THAT(said_when(without_driver,
                       [] {
                         ProcessGroup group = ProcessGroup::connect();
                         std::vector<int> numbers(3);
                         group.all_reduce(numbers);
                         group.all_reduce(numbers, async_op).wait();
                         try {
                           group.all_reduce(device_elements(numbers.data(), 3, 0));
                           throw std::runtime_error("not refused");
                         } catch (const WorkerError& error) {
                           if (error.kind() != WorkerError::Kind::Unsupported) throw;
                           const std::string text = error.what();
                           if (text.find("cannot load") == std::string::npos) throw;
                         }
                         group.all_reduce(numbers);
                       }),
             ContainsSubstring("it works"));
}

TEST_CASE("the installed NCCL has every required function") {
  const std::string said =
      said_when([] { unsetenv("DRUN_NCCL_LIBRARY"); }, [] { worker::need_nccl(); });
  if (said.find("cannot load") != std::string::npos) {
    WARN("skipped: there is no libnccl.so.2 here");
    return;
  }
  CHECK_THAT(said, ContainsSubstring("it works"));
}

TEST_CASE("NCCL's version numbers are formatted as in NCCL's messages") {
  CHECK(worker::version_text(22809) == "2.28.9");
  CHECK(worker::version_text(2804) == "2.8.4");
}

}  // namespace drun
