// Tests the nccl backend with stand-ins for NCCL and CUDA's driver (tests/standin) and, on a
// machine with an NVIDIA GPU, with the real libraries: one rank, and several ranks on one GPU.
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "drun/device_mesh.h"
#include "drun/key_store.h"
#include "drun/process_group.h"
#include "tests/standin/cuda_standin.h"
#include "tests/support/catch.h"
#include "tests/support/gpu_memory.h"
#include "tests/support/in_rank.h"
#include "tests/support/machine.h"
#include "tests/support/nccl_deeds.h"
#include "tests/support/ranks.h"
#include "worker_lib/nccl/library.h"

namespace drun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::check_exited;
using test::expect;
using test::OnGpu;
using test::RankEnd;
using test::Ranks;
using test::run_ranks;
using test::Say;
using test::StoreProcess;

using Body = std::function<void(const Ranks& ranks, int rank)>;

void run_over_standins(int size, const Body& body) {
  const StoreProcess store;
  const Ranks ranks{.size = size, .port = store.port()};
  check_exited(run_ranks(ranks, [&](int rank, const Say&) {
    test::use_standins();
    body(ranks, rank);
  }));
}

// NCCL rejects ranks of one host that share a GPU, so each rank claims another host.
void run_on_one_gpu(int size, const Body& body) {
  const StoreProcess store;
  const Ranks ranks{
      .size = size, .port = store.port(), .environment = test::environment_on_one_gpu()};
  check_exited(run_ranks(ranks, [&](int rank, const Say&) {
    setenv("NCCL_HOSTID", ("rank" + std::to_string(rank)).c_str(), 1);
    body(ranks, rank);
  }));
}

struct Part {
  std::string what;
  int least_ranks = 1;
  Body body;
};

std::vector<Part> parts() {
  return {
      {"collectives", 1, test::check_nccl_collectives},
      {"messages", 2, [](const Ranks&, int) { test::check_nccl_messages(); }},
      {"asynchronous ones", 1, [](const Ranks&, int) { test::check_nccl_async(); }},
      {"both memories", 1, [](const Ranks&, int) { test::check_both_memories(); }},
      {"groups", 2, [](const Ranks&, int) { test::check_nccl_groups(); }},
  };
}

}  // namespace

TEST_CASE("nccl's collectives give exact results, over the stand-in") {
  const int size = GENERATE(1, 2, 3);
  run_over_standins(size, test::check_nccl_collectives);
}

TEST_CASE("nccl's messages, async operations, groups and mixed memory work, over the stand-in") {
  const std::size_t which = GENERATE(1u, 2u, 3u, 4u);
  const Part part = parts()[which];
  INFO(part.what);
  run_over_standins(4, part.body);
}

TEST_CASE("input and output in different memories are rejected, over the stand-in") {
  const std::string backend = GENERATE("cpu:shm,cuda:nccl", "nccl");
  run_over_standins(2, [&](const Ranks&, int rank) {
    ProcessGroup group = ProcessGroup::connect(test::over(backend));
    const OnGpu<int> mine(3, rank);
    const OnGpu<int> all(6, -1);
    std::vector<int> on_host(6);
    const std::vector<int> mine_on_host(3);
    const auto error = [&](ConstBuffer input, Buffer output) {
      return test::error_of([&] { group.all_gather(input, output); });
    };
    const std::string to_host = error(mine.unnamed(), on_host);
    expect(to_host.find("usage: ") == 0 && to_host.find("the input is on GPU 0, the output in "
                                                        "memory of the host") != std::string::npos,
           to_host);
    const std::string to_gpu = error(mine_on_host, all.unnamed());
    expect(to_gpu.find("usage: ") == 0 &&
               to_gpu.find("the input is in memory of the host, the output on GPU 0") !=
                   std::string::npos,
           to_gpu);
    group.all_gather(mine.unnamed(), all.unnamed());
    expect(all.read() == std::vector<int>{0, 0, 0, 1, 1, 1}, "the group is usable");
  });
}

TEST_CASE("a device mesh works over nccl, and different ones are rejected, over the stand-in") {
  run_over_standins(4, [](const Ranks&, int rank) {
    ProcessGroup world = ProcessGroup::connect({.backend = "nccl"});
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    for (const std::string& name : mesh.names()) {
      const OnGpu<int> number(1, 1 << rank);
      mesh.group(name).all_reduce(number.named());
      int sum = 0;
      for (const int member : mesh.ranks(name)) sum += 1 << member;
      expect(number.read()[0] == sum, "the sum along " + name);
    }
    const std::string first = rank == 3 ? "pp" : "dp";
    const std::string error = test::error_of([&] {
      init_device_mesh(world, {2, 2}, {first, "tp"});
    });
    expect(error.starts_with("mismatch: "), error);
    world.barrier();
  });
}

TEST_CASE("while one thread connects NCCL, another one's call returns at once, over the stand-in") {
  run_over_standins(2, [](const Ranks& ranks, int rank) {
    ProcessGroup group = ProcessGroup::connect();
    const auto words = connect_key_store("127.0.0.1", ranks.port, seconds(20));
    const OnGpu<int> one(1, 1);
    const OnGpu<int> other(1, 1);
    std::vector<Work> works(2);
    if (rank == 1) {
      words->wait({"it has returned"}, test::scaled(seconds(20)));
      for (Work& work : works) work = group.all_reduce(one.named(), async_op);
    } else {
      std::thread thread([&] { works[0] = group.all_reduce(one.named(), async_op); });
      std::this_thread::sleep_for(milliseconds(100));
      works[1] = group.all_reduce(other.named(), async_op);
      words->set("it has returned", "", seconds(20));
      thread.join();
    }
    wait_all(works);
    expect(rank == 1 || (one.read()[0] == 2 && other.read()[0] == 3), "the sums");
    group.barrier();
  });
}

TEST_CASE("nccl works with one rank, over the stand-in") {
  for (const Part& part : parts()) {
    INFO(part.what);
    if (part.least_ranks == 1) run_over_standins(1, part.body);
  }
}

TEST_CASE("earlier work on the caller's stream completes first, over the stand-in") {
  run_over_standins(2, [](const Ranks&, int rank) {
    ProcessGroup group = ProcessGroup::connect({.backend = "nccl"});
    const OnGpu<int> number(1, 0);
    const worker::Gpu gpu(0);
    const worker::Current current(gpu);
    const worker::cuda::Api& cuda = worker::need_cuda();
    worker::cuda::Stream stream = nullptr;
    expect(cuda.stream_create(&stream, 0) == worker::cuda::kSuccess, "a stream");
    struct Kernel {
      int* number = nullptr;
      int value = 0;
    } kernel{.value = rank + 1};
    kernel.number = static_cast<int*>(
        test::standin_function<decltype(standin_bytes)>("standin_bytes")(number.data()));
    const auto enqueue = test::standin_function<decltype(standin_enqueue)>("standin_enqueue");
    const auto slow = [](void* argument) {
      const auto* const what = static_cast<const Kernel*>(argument);
      std::this_thread::sleep_for(milliseconds(50));
      *what->number = what->value;
    };
    enqueue(stream, slow, &kernel);
    group.all_reduce(device_elements(number.data(), 1, 0, stream), async_op).wait();
    expect(number.read()[0] == 3, "the sum of what the streams wrote");
    kernel.value = 10 + rank;
    if (rank == 0) enqueue(stream, slow, &kernel);
    if (rank == 0) group.send(device_elements(number.data(), 1, 0, stream), 1);
    if (rank == 1) group.recv(number.named(), 0);
    expect(number.read()[0] == 10, "what the sender's stream wrote");
    cuda.stream_destroy(stream);
    group.barrier();
  });
}

TEST_CASE("a stream that is captured into a graph is rejected, over the stand-in") {
  run_over_standins(2, [](const Ranks&, int rank) {
    const std::string backend = InitOptions().backend;
    ProcessGroup group = ProcessGroup::connect(test::over(backend));
    const OnGpu<int> number(1, 1);
    group.all_reduce(number.named());
    const worker::Gpu gpu(0);
    const worker::Current current(gpu);
    const worker::cuda::Api& cuda = worker::need_cuda();
    worker::cuda::Stream stream = nullptr;
    expect(cuda.stream_create(&stream, 0) == worker::cuda::kSuccess, "a stream");
    const Elements elements = device_elements(number.data(), 1, 0, stream);
    test::standin_function<int(worker::cuda::Stream, int)>("cuStreamBeginCapture_v2")(stream, 0);
    for (const std::string& said :
         {test::error_of([&] { group.all_reduce(elements); }),
          test::error_of([&] { group.all_reduce(elements, async_op).wait(); }),
          test::error_of([&] { group.send(elements, 1 - rank, async_op); })}) {
      expect(said.find("unsupported: ") == 0, said);
      expect(said.find("the stream is being captured into a CUDA graph") != std::string::npos,
             said);
    }
    void* graph = nullptr;
    test::standin_function<int(worker::cuda::Stream, void**)>("cuStreamEndCapture")(stream, &graph);
    group.all_reduce(elements);
    expect(number.read()[0] == 4, "the group is well");
    cuda.stream_destroy(stream);
    group.barrier();
  });
}

TEST_CASE("each rank uses the GPU of its local rank, or of its memory, over the stand-in") {
  run_over_standins(3, [](const Ranks&, int rank) {
    setenv("STANDIN_GPUS", "2", 1);
    ProcessGroup group = ProcessGroup::connect({.backend = "nccl"});
    const OnGpu<int> own(1, 1, rank % 2);
    group.all_reduce(own.unnamed());
    expect(own.read()[0] == 3, "the sum");
    std::string refused;
    try {
      const OnGpu<int> other(1, 1, 1 - rank % 2);
      group.all_reduce(other.named());
    } catch (const WorkerError& error) {
      refused = error.what();
    }
    expect(refused.find("this group works on GPU " + std::to_string(rank % 2)) != std::string::npos,
           refused);
    ProcessGroup both = ProcessGroup::connect();
    const OnGpu<int> first(1, 1, 0);
    both.all_reduce(first.named());
    expect(first.read()[0] == 3, "the sum on GPU 0 of each");
    both.barrier();
    group.barrier();
  });
}

TEST_CASE(
    "an operation that nccl lacks is rejected with the capable backends named, over the stand-in") {
  run_over_standins(2, [](const Ranks&, int) {
    ProcessGroup group = ProcessGroup::connect({.backend = "nccl"});
    const OnGpu<int> numbers(2, 6);
    const OnGpu<std::int16_t> small(2, 1);
    std::vector<int> of_host(2);
    const auto is_refused = [](const std::function<void()>& action, const std::string& text) {
      try {
        action();
      } catch (const WorkerError& error) {
        expect(error.kind() == WorkerError::Kind::Unsupported, error.what());
        expect(error.message().find(text) != std::string::npos, error.what());
        return;
      }
      throw std::runtime_error("not refused: " + text);
    };
    is_refused([&] { group.all_reduce(numbers.named(), ReduceOp::Bxor); }, "shm and gloo can");
    is_refused([&] { group.all_reduce(small.named()); }, "NCCL reduces no i16");
    is_refused([&] { group.all_reduce(of_host); }, "not of the host; shm and gloo can");
    is_refused([&] { group.recv(numbers.named(), any_rank); }, "does not receive from anyone");
    is_refused([&] { group.send(numbers.named(), 1 - group.rank(), 5); }, "no tags");
    is_refused([&] { group.send(of_host, 1 - group.rank(), async_op); }, "not of the host");
    group.all_reduce(numbers.named());
    expect(numbers.read() == std::vector<int>(2, 12), "the group is well");
    group.barrier();
  });
}

TEST_CASE("on a GPU, nccl works with one rank") {
  const std::string reason = test::no_gpu_here();
  if (!reason.empty()) {
    WARN("skipped: " << reason);
    return;
  }
  for (const Part& part : parts()) {
    INFO(part.what);
    if (part.least_ranks == 1) run_on_one_gpu(1, part.body);
  }
}

TEST_CASE("on a GPU, nccl works with several ranks that share it") {
  const std::string reason = test::no_gpu_here();
  if (!reason.empty()) {
    WARN("skipped: " << reason);
    return;
  }
  for (const Part& part : parts()) {
    INFO(part.what);
    run_on_one_gpu(2, part.body);
  }
}

}  // namespace drun
