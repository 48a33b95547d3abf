#include "tests/support/gpu_memory.h"

#include <dlfcn.h>

#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "tests/support/places.h"
#include "tests/support/ranks.h"
#include "worker_lib/nccl/nccl_backend.h"

namespace drun::test {
namespace {

using worker::Gpu;
using worker::GpuMemory;

std::size_t sum_of(const std::size_t* counts, int size) {
  return std::accumulate(counts, counts + size, std::size_t{0});
}

// The number of elements in the whole buffer, which has a part for every rank.
std::size_t whole(const Call& call, const std::size_t* counts, int size) {
  return call.is_uneven ? sum_of(counts, size) : call.count * static_cast<std::size_t>(size);
}

std::size_t elements_in(const Call& call, int size) {
  if (call.input == nullptr) return 0;
  switch (call.operation) {
    case Operation::Scatter:
    case Operation::ReduceScatter:
    case Operation::AllToAll:
      return whole(call, call.counts_in, size);
    default:
      return call.count;
  }
}

std::size_t elements_out(const Call& call, int size) {
  if (call.output == nullptr) return 0;
  switch (call.operation) {
    case Operation::Gather:
    case Operation::AllGather:
    case Operation::AllToAll:
      return whole(call, call.counts_out, size);
    default:
      return call.count;
  }
}

void run_with_copies(Backend& backend, Call call, const Turn& turn, int size) {
  const auto gpu = std::make_shared<Gpu>(0);
  const std::size_t element = size_bytes(call.type);
  const std::size_t bytes_in = elements_in(call, size) * element;
  const std::size_t bytes_out = elements_out(call, size) * element;
  const void* const host_input = call.input;
  void* const host_output = call.output;
  const GpuMemory input(gpu, bytes_in + 1);
  const GpuMemory own_output(gpu, bytes_out + 1);
  const GpuMemory& output = host_input == host_output ? input : own_output;
  input.write(host_input, bytes_in);
  if (host_input != nullptr) call.input = input.data();
  if (host_output != nullptr) call.output = output.data();
  call.gpu = 0;
  const std::string refusal = backend.refusal(call);
  if (!refusal.empty()) throw std::runtime_error(refusal);
  backend.run(call, turn);
  output.read(host_output, bytes_out);
}

}  // namespace

void use_standins() {
  const std::string folder = testing::built("standin/");
  setenv("DRUN_CUDA_LIBRARY", (folder + "libcuda_standin.so").c_str(), 1);
  setenv("DRUN_NCCL_LIBRARY", (folder + "libnccl_standin.so").c_str(), 1);
}

void* standin_symbol(const char* name) {
  for (const char* variable : {"DRUN_CUDA_LIBRARY", "DRUN_NCCL_LIBRARY"}) {
    void* const library = dlopen(std::getenv(variable), RTLD_NOW | RTLD_NOLOAD);
    void* const symbol = library == nullptr ? nullptr : dlsym(library, name);
    if (symbol != nullptr) return symbol;
  }
  throw std::runtime_error(std::string("no stand-in that is loaded has ") + name);
}

std::string no_gpu_here() {
  const std::vector<RankEnd> ends = run_ranks({.size = 1}, [](int, const Say&) {
    unsetenv("DRUN_CUDA_LIBRARY");
    worker::check_nccl_is_here();
  });
  if (ends[0].exit_code == 0) return "";
  return "no NVIDIA GPU: " + ends[0].said.substr(0, ends[0].said.find('\n'));
}

std::map<std::string, std::string> environment_on_one_gpu() {
  return {{"CUDA_VISIBLE_DEVICES", "0"},
          {"NCCL_NET", "Socket"},
          {"NCCL_SOCKET_IFNAME", "lo"},
          {"NCCL_IB_DISABLE", "1"},
          {"NCCL_MAX_CTAS", "2"}};
}

CollectiveRig rig_on_gpu(Backend& backend, int rank, int size, std::function<Turn()> next_turn) {
  CollectiveRig rig;
  rig.rank = rank;
  rig.size = size;
  rig.run = [&backend, size, next_turn = std::move(next_turn)](const Call& call) {
    run_with_copies(backend, call, next_turn(), size);
  };
  return rig;
}

}  // namespace drun::test
