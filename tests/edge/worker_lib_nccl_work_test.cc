// Tests asynchronous operations, batches, groups and devices of the nccl backend, with stand-ins
// for NCCL and CUDA's driver (tests/standin), which count what is created.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
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
#include "tests/support/own_keys.h"
#include "tests/support/ranks.h"
#include "worker_lib/nccl/library.h"

namespace {

bool has_leak_check = true;

}  // namespace

// LeakSanitizer asks for it at exit. Its check reads the memory of all threads, and crashes if one
// of them ends meanwhile.
extern "C" int __lsan_is_turned_off() {  // NOLINT(bugprone-reserved-identifier)
  return has_leak_check ? 0 : 1;
}

namespace drun::nccl_work_test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::check_exited;
using test::error_of;
using test::expect;
using test::OnGpu;
using test::over;
using test::RankEnd;
using test::run_ranks;
using test::Say;
using test::StoreProcess;
using worker::cuda::Stream;

constexpr char kBoth[] = "cpu:shm+gloo,cuda:nccl";
const auto kPerThreadStream = reinterpret_cast<Stream>(2);  // CU_STREAM_PER_THREAD

// Words that ranks tell each other beside the group.
class Words {
 public:
  explicit Words(std::uint16_t port) : store_(connect_key_store("127.0.0.1", port, seconds(20))) {}
  void tell(const std::string& word) { store_->set("words/" + word, "", seconds(20)); }
  void await(const std::string& word) {
    store_->wait({"words/" + word}, test::scaled(seconds(20)));
  }

 private:
  std::shared_ptr<KeyStore> store_;
};

void run_over_standins(int size, const std::function<void(int rank, Words& words)>& body,
                       std::map<std::string, std::string> environment = {}) {
  const StoreProcess store;
  check_exited(
      run_ranks({.size = size, .port = store.port(), .environment = std::move(environment)},
                [&](int rank, const Say&) {
                  test::use_standins();
                  Words words(store.port());
                  body(rank, words);
                }));
}

int communicators() { return test::standin_function<int()>("standin_nccl_communicators")(); }
int launches() { return test::standin_function<int()>("standin_nccl_launches")(); }

// A stream of GPU 0.
class OwnedStream {
 public:
  OwnedStream() {
    const worker::Current current(*gpu_);
    gpu_->must(gpu_->api().stream_create(&stream_, 0), "cuStreamCreate");
  }
  ~OwnedStream() {
    const worker::Current current(*gpu_, std::nothrow);
    gpu_->api().stream_destroy(stream_);
  }
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;

  Stream get() const { return stream_; }
  void synchronize() const {
    const worker::Current current(*gpu_);
    gpu_->must(gpu_->api().stream_synchronize(stream_), "cuStreamSynchronize");
  }

 private:
  const std::shared_ptr<worker::Gpu> gpu_ = std::make_shared<worker::Gpu>(0);
  Stream stream_ = nullptr;
};

// Work on a GPU: copies a number after some time.
struct Kernel {
  int* to = nullptr;
  const int* from = nullptr;
  milliseconds time{0};
};

void launch(Stream stream, Kernel& kernel) {
  const auto bytes = test::standin_function<decltype(standin_bytes)>("standin_bytes");
  kernel.to = static_cast<int*>(bytes(kernel.to));
  kernel.from = static_cast<const int*>(bytes(kernel.from));
  const auto enqueue = test::standin_function<decltype(standin_enqueue)>("standin_enqueue");
  enqueue(
      stream,
      [](void* argument) {
        const Kernel& what = *static_cast<Kernel*>(argument);
        std::this_thread::sleep_for(what.time);
        *what.to = *what.from;
      },
      &kernel);
}

// Calls small operations until the group is broken, and returns the error.
std::string first_error(ProcessGroup& group) {
  const Clock::time_point end = Clock::now() + test::scaled(seconds(20));
  std::vector<int> word(1);
  while (Clock::now() < end) {
    const std::string said = error_of([&] { group.send(word, 1 - group.rank(), async_op); });
    if (said.starts_with("broken: ")) return said;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return "not broken";
}

}  // namespace

TEST_CASE("wait_stream makes the stream wait, not the thread, over the stand-in") {
  run_over_standins(2, [](int rank, Words& words) {
    ProcessGroup group = ProcessGroup::connect(over(kBoth));
    const OnGpu<int> number(1, 1);
    group.all_reduce(number.named());
    if (rank == 1) {
      words.await("rank 0 waits on its stream");
      group.all_reduce(number.named());
      group.barrier();
      return;
    }
    const OwnedStream stream;
    int seen = 0;
    Kernel kernel{.to = &seen, .from = number.data()};
    const Work work = group.all_reduce(number.named(), async_op);
    work.wait_stream(stream.get());
    launch(stream.get(), kernel);
    std::this_thread::sleep_for(milliseconds(50));
    expect(seen == 0 && !work.is_completed(), "the stream waits");
    words.tell("rank 0 waits on its stream");
    stream.synchronize();
    expect(seen == 4, "the sum, not " + std::to_string(seen));
    work.wait_stream(stream.get());
    work.wait();
    group.barrier();
  });
}

TEST_CASE("wait_stream waits for an operation on host memory, over the stand-in") {
  run_over_standins(2, [](int, Words&) {
    ProcessGroup group = ProcessGroup::connect(over(kBoth));
    std::vector<int> numbers(100000, 1);
    const Work work = group.all_reduce(numbers, async_op);
    work.wait_stream(nullptr);
    expect(work.is_completed() && numbers.back() == 2, "the sum");
    Work().wait_stream(nullptr);
    group.barrier();
  });
}

TEST_CASE("wait_stream throws an error that is known, over the stand-in") {
  run_over_standins(2, [](int rank, Words& words) {
    ProcessGroup group = ProcessGroup::connect(over(kBoth));
    const OnGpu<int> number(1, 1);
    group.all_reduce(number.named());
    if (rank == 0) {
      const Work work = group.all_reduce(number.named(), async_op);
      group.destroy();
      const std::string said = error_of([&] { work.wait_stream(nullptr); });
      expect(said.find("the group was destroyed") != std::string::npos, said);
    }
    if (rank == 0) words.tell("done");
    words.await("done");
  });
}

TEST_CASE("an operation for which no thread waits times out, over the stand-in") {
  run_over_standins(2, [](int rank, Words& words) {
    ProcessGroup group = ProcessGroup::connect(over(kBoth));
    const OnGpu<int> number(1, 1);
    group.all_reduce(number.named());
    if (rank == 0) {
      const OwnedStream stream;
      group.all_reduce(number.named(), {.timeout = milliseconds(300), .async_op = true})
          .wait_stream(stream.get());
      const std::string said = first_error(group);
      expect(said.find("collective number 2 was not done in time") != std::string::npos, said);
    }
    if (rank == 0) words.tell("done");
    words.await("done");
  });
}

TEST_CASE("an operation for which no thread waits names a rank that died, over the stand-in") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say& say) {
    test::use_standins();
    ProcessGroup group = ProcessGroup::connect(over(kBoth));
    const OnGpu<int> number(1, 1);
    group.all_reduce(number.named());
    Words words(store.port());
    if (rank == 1) {
      words.await("started");
      kill(getpid(), SIGKILL);
    }
    const Work work = group.all_reduce(number.named(), async_op);
    words.tell("started");
    say(first_error(group));
  });
  CHECK_THAT(ends[0].said, ContainsSubstring("the process of rank 1 has ended"));
}

TEST_CASE("a message that waits for an earlier one keeps its own timeout, over the stand-in") {
  run_over_standins(2, [](int rank, Words& words) {
    ProcessGroup group = ProcessGroup::connect(over("nccl"));
    group.barrier();
    if (rank == 1) return words.await("done");
    const OnGpu<int> number(1, 1);
    const Work earlier = group.send(number.named(), 1, 0, async_op);  // connects
    const std::string late =
        error_of([&] { group.send(number.named(), 1, 0, {milliseconds(300)}); });
    const std::string other = error_of([&] { earlier.wait(); });
    words.tell("done");
    expect(late.starts_with("timeout: rank 0: send(i32 x 1, to rank 1): ") &&
               late.find("first") == std::string::npos && late.ends_with(" (300 ms)"),
           late);
    expect(other.ends_with(late.substr(late.find("): ") + 3)), other);
  });
}

TEST_CASE("a message is not waited for with an earlier one, over the stand-in") {
  const bool is_debug = GENERATE(false, true);
  run_over_standins(2,
                    [&](int rank, Words&) {
                      ProcessGroup group = ProcessGroup::connect(over("nccl"));
                      group.barrier();
                      // The ranks compare messages with DRUN_DEBUG=1. Otherwise the first one that
                      // is not empty connects them.
                      const OnGpu<int> first(is_debug ? 1 : 0, 1 + rank);
                      const OnGpu<int> second(1, 3 + rank);
                      if (rank == 0) {
                        const Work earlier = group.recv(first.named(), 1, 0, async_op);
                        const Work later = group.recv(second.named(), 1, 0, async_op);
                        earlier.wait();
                        group.barrier();
                        later.wait();
                        expect(second.read()[0] == 4, "the second message");
                        return;
                      }
                      group.send(first.named(), 0);
                      group.barrier();
                      group.send(second.named(), 0);
                    },
                    {{"DRUN_DEBUG", is_debug ? "1" : "0"}});
}

TEST_CASE("operations reuse events, over the stand-in") {
  run_over_standins(2, [](int, Words&) {
    ProcessGroup group = ProcessGroup::connect(over("nccl"));
    const OnGpu<int> number(1, 0);
    const auto run = [&](int count) {
      std::vector<Work> works;
      for (int i = 0; i < count; ++i) works.push_back(group.all_reduce(number.named(), async_op));
      wait_all(works);
    };
    const auto events = test::standin_function<int()>("standin_events");
    // One for each pending operation.
    for (int i = 0; i < 20; ++i) run(10);
    expect(events() <= 10, "not " + std::to_string(events()) + " events");
    for (int i = 0; i < 3; ++i) run(1500);
    expect(events() <= 1500, "not " + std::to_string(events()) + " events");
    group.barrier();
  });
}

TEST_CASE("an operation makes the GPU current once to start and once to end, over the stand-in") {
  run_over_standins(2, [](int, Words&) {
    ProcessGroup group = ProcessGroup::connect(over("nccl"));
    const OnGpu<int> number(1, 0);
    group.all_reduce(number.named());
    const auto pushes = test::standin_function<int()>("standin_context_pushes");
    const int before = pushes();
    for (int i = 0; i < 10; ++i) group.all_reduce(number.named(), async_op).wait();
    const int made = pushes() - before;
    expect(made <= 20, "not " + std::to_string(made) + " for 10 operations");
    group.barrier();
  });
}

TEST_CASE("two ranks have one communicator for messages, over the stand-in") {
  run_over_standins(2, [](int rank, Words&) {
    ProcessGroup group = ProcessGroup::connect(over("nccl"));
    const int before = communicators();
    const OnGpu<int> out(30000, rank);
    const OnGpu<int> in(30000, -1);
    const int peer = 1 - rank;
    std::vector<Work> works;
    for (const bool is_sending : {rank == 0, rank == 1}) {
      works.push_back(is_sending ? group.send(out.named(), peer, async_op)
                                 : group.recv(in.named(), peer, async_op));
    }
    wait_all(works);
    expect(in.read() == std::vector<int>(30000, peer), "the message");
    expect(communicators() == before + 1, "one more communicator");
    group.barrier();
  });
}

TEST_CASE("a rank waits for the first messages of many late ranks, over the stand-in") {
  constexpr int kSize = 7;
  run_over_standins(kSize, [](int rank, Words&) {
    ProcessGroup group = ProcessGroup::connect(over(kBoth));
    const OnGpu<int> out(1000, rank);
    if (rank < kSize - 1) {
      std::this_thread::sleep_for(milliseconds(1500));
      group.send(out.named(), kSize - 1);
    } else {
      std::vector<std::unique_ptr<OnGpu<int>>> in;
      std::vector<Work> works;
      for (int from = 0; from < kSize - 1; ++from) {
        in.push_back(std::make_unique<OnGpu<int>>(1000, -1));
        works.push_back(group.recv(in.back()->named(), from, async_op));
      }
      wait_all(works);
      for (int from = 0; from < kSize - 1; ++from)
        expect(in[static_cast<std::size_t>(from)]->read() == std::vector<int>(1000, from),
               "the message");
    }
    group.barrier();
  });
}

TEST_CASE("a batch is one group on the group's communicator, over the stand-in") {
  const bool is_connected = GENERATE(true, false);
  run_over_standins(4, [&](int rank, Words&) {
    ProcessGroup group = ProcessGroup::connect(over(is_connected ? "nccl" : kBoth));
    std::vector<std::unique_ptr<OnGpu<int>>> out;
    std::vector<std::unique_ptr<OnGpu<int>>> in;
    std::vector<P2POp> batch;
    for (int step = 1; step < 4; ++step) {
      out.push_back(std::make_unique<OnGpu<int>>(30000, 10 * rank + step));
      in.push_back(std::make_unique<OnGpu<int>>(30000, -1));
      batch.push_back(P2POp::send(out.back()->named(), (rank + step) % 4));
      batch.push_back(P2POp::recv(in.back()->named(), (rank + 4 - step) % 4));
    }
    const int communicators_before = is_connected ? communicators() : 0;
    const int launches_before = is_connected ? launches() : 0;
    std::vector<Work> works = batch_isend_irecv(group, batch);
    wait_all(works);
    for (int step = 1; step < 4; ++step) {
      const int from = (rank + 4 - step) % 4;
      const auto at = static_cast<std::size_t>(step - 1);
      expect(in[at]->read() == std::vector<int>(30000, 10 * from + step), "the message");
      expect(works[2 * at + 1].peer() == from, "its sender");
    }
    if (is_connected) {
      expect(launches() == launches_before + 1, "one launch");
      expect(communicators() == communicators_before, "no new communicator");
    } else {
      expect(communicators() == 3, "one communicator for each other rank");
    }
    group.barrier();
  });
}

TEST_CASE("a batch with memory of the host and of a GPU works, over the stand-in") {
  run_over_standins(2, [](int rank, Words&) {
    ProcessGroup group = ProcessGroup::connect(over(kBoth));
    const OnGpu<int> out(30000, rank);
    const OnGpu<int> in(30000, -1);
    std::vector<int> host_out(30000, rank);
    std::vector<int> host_in(30000, -1);
    group.all_reduce(out.named(), ReduceOp::Max);
    wait_all(batch_isend_irecv(
        group, {P2POp::send(host_out, 1 - rank), P2POp::send(out.named(), 1 - rank),
                P2POp::recv(in.named(), 1 - rank), P2POp::recv(host_in, 1 - rank)}));
    expect(host_in == std::vector<int>(30000, 1 - rank), "the host's message");
    expect(in.read() == std::vector<int>(30000, 1), "the GPU's message");
    group.barrier();
  });
}

TEST_CASE("with DRUN_DEBUG=1 a batch of other sizes is a mismatch, over the stand-in") {
  const StoreProcess store;
  const auto ends = run_ranks(
      {.size = 2, .port = store.port(), .environment = {{"DRUN_DEBUG", "1"}}},
      [&](int rank, const Say& say) {
        test::use_standins();
        ProcessGroup group = ProcessGroup::connect(over("nccl", seconds(5)));
        const OnGpu<int> out(4, rank);
        const OnGpu<int> in(rank == 0 ? 4 : 3, -1);
        say(error_of([&] {
          wait_all(batch_isend_irecv(
              group, {P2POp::send(out.named(), 1 - rank), P2POp::recv(in.named(), 1 - rank)}));
        }));
      });
  CHECK_THAT(ends[1].said, ContainsSubstring("rank 0 sends i32 x 4, this rank receives i32 x 3"));
}

TEST_CASE("a rank has one more communicator for each group that it is in, over the stand-in") {
  run_over_standins(4, [](int rank, Words&) {
    ProcessGroup world = ProcessGroup::connect(over("nccl"));
    int before = communicators();
    const auto created = [&before] {
      return communicators() - std::exchange(before, communicators());
    };
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    expect(created() == 2, "one for each dimension");
    std::optional<ProcessGroup> half = world.split(rank % 2 == 0 ? -7 : 5, -rank);
    expect(created() == 1, "one for the half");
    expect(half && half->size() == 2 && half->rank() == (rank < 2 ? 1 : 0), "ordered by key");
    const OnGpu<int> number(1, rank);
    half->all_reduce(number.named());
    expect(number.read()[0] == (rank % 2 == 0 ? 2 : 4), "the sum of the half");
    std::optional<ProcessGroup> few = world.split(rank == 0 ? std::nullopt : std::optional(3));
    expect(few.has_value() == (rank != 0) && created() == (rank == 0 ? 0 : 1), "without a color");
    expect(!world.split(std::nullopt), "no group");
    std::optional<ProcessGroup> two = world.new_group({3, 1});
    expect(created() == (rank % 2 == 1 ? 1 : 0), "only on its members");
    world.barrier();
  });
}

TEST_CASE("a group leaves nothing in the store, over the stand-in") {
  const StoreProcess store;
  check_exited(run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say&) {
    test::use_standins();
    const auto own = std::make_shared<test::OwnKeys>(store.port());
    InitOptions options = over("nccl");
    options.store = own;
    options.rank = rank;
    options.world_size = 3;
    ProcessGroup world = ProcessGroup::connect(options);
    const OnGpu<float> number(1, 1);
    const std::set<std::string> before = own->left();
    for (int i = 0; i < 5; ++i) {
      ProcessGroup group = world.split(0, -rank).value();
      group.all_reduce(number.named());
      if (rank == 2) group.send(number.named(), 1);
      if (rank == 1) group.recv(number.named(), 0);
    }
    world.barrier();  // each rank has removed what it removes
    const std::set<std::string> after = own->left();
    expect(after == before, std::to_string(before.size()) + " keys, not " +
                                std::to_string(after.size()) + ", such as " + *after.rbegin());
    world.barrier();
  }));
}

TEST_CASE("the end of a group does not wait for another group's collective, over the stand-in") {
  run_over_standins(2, [](int rank, Words& words) {
    ProcessGroup world = ProcessGroup::connect(over("nccl", seconds(10)));
    std::optional<ProcessGroup> part = world.new_group({0, 1});
    const OnGpu<int> number(1, 1);
    const OnGpu<int> other(1, 1);
    part->barrier();
    Work work;
    if (rank == 0) work = world.all_reduce(number.named(), async_op);
    part.reset();
    if (rank == 0) words.tell("the group has ended");
    if (rank == 1) words.await("the group has ended");
    if (rank == 1) work = world.all_reduce(number.named(), async_op);
    work.wait();
    world.barrier();
  });
}

TEST_CASE("with a device NCCL connects in init, and uses only that GPU, over the stand-in") {
  run_over_standins(2,
                    [](int rank, Words&) {
                      InitOptions options = over(kBoth);
                      options.device = 1 - rank;
                      ProcessGroup group = ProcessGroup::connect(options);
                      expect(communicators() == 1, "connected");
                      const OnGpu<int> number(1, 1, 1 - rank);
                      group.all_reduce(number.named());
                      expect(communicators() == 1 && number.read()[0] == 2, "the sum");
                      const OnGpu<int> other(1, 1, rank);
                      const std::string said = error_of([&] { group.all_reduce(other.named()); });
                      expect(said.find("this group works on GPU " + std::to_string(1 - rank)) !=
                                 std::string::npos,
                             said);
                      std::optional<ProcessGroup> alone = group.new_group({1});
                      if (alone) alone->all_reduce(number.named());
                      group.barrier();
                    },
                    {{"STANDIN_GPUS", "2"}});
}

TEST_CASE("a device that does not exist or is shared is rejected by init, over the stand-in") {
  const int device = GENERATE(0, 7);
  run_over_standins(
      2,
      [&](int, Words&) {
        InitOptions options = over(kBoth);
        options.device = device;
        const std::string said = error_of([&] { ProcessGroup::connect(options); });
        const std::string text = device == 0 ? "ranks 0 and 1 use the same GPU"
                                             : "there is no GPU 7: this process sees 1";
        expect(said.starts_with("usage: ") && said.find(text) != std::string::npos, said);
      },
      {{"STANDIN_SHARED_GPUS", "1"}});
}

TEST_CASE("numbers of 8 bits are reduced where NCCL and the GPU can, over the stand-in") {
  struct Case {
    std::map<std::string, std::string> environment;
    std::string refusal;
  };
  const Case which = GENERATE(
      Case{}, Case{{{"STANDIN_CAPABILITY", "8"}}, "compute capability 8.x; 9.0 or later can"},
      Case{{{"STANDIN_NCCL_FAULT", "version=22303"}}, "reduces no numbers of 8 bits before 2.24"});
  run_over_standins(
      2,
      [&](int rank, Words&) {
        ProcessGroup group = ProcessGroup::connect(over("nccl"));
        const OnGpu<Float8E4M3> numbers(3, Float8E4M3(static_cast<float>(rank) + 1.5f));
        const std::string said = error_of([&] { group.all_reduce(numbers.named()); });
        const bool is_refused = !which.refusal.empty();
        expect(is_refused ? said.starts_with("unsupported: ") &&
                                said.find(which.refusal) != std::string::npos
                          : said == "no error",
               said);
        group.broadcast(numbers.named(), 1);
        expect(numbers.read() == std::vector<Float8E4M3>(3, Float8E4M3(is_refused ? 2.5f : 4.0f)),
               "the numbers of rank 1");
        group.barrier();
      },
      which.environment);
}

TEST_CASE("premul_sum is an op of NCCL's, over the stand-in") {
  run_over_standins(2, [](int rank, Words&) {
    ProcessGroup group = ProcessGroup::connect(over("nccl"));
    const OnGpu<float> numbers(4, static_cast<float>(rank + 1));
    group.all_reduce(numbers.named(), premul_sum(0.5));
    expect(numbers.read() == std::vector<float>(4, 1.5F), "all_reduce");
    group.reduce(numbers.named(), 0, premul_sum(rank + 1));
    expect(numbers.read() == std::vector<float>(4, rank == 0 ? 4.5F : 1.5F), "reduce");
    const OnGpu<Float16> halves(4, Float16(3.0F));
    const OnGpu<Float16> part(2, Float16(0.0F));
    group.reduce_scatter(halves.named(), part.named(), premul_sum(2));
    expect(part.read() == std::vector<Float16>(2, Float16(12.0F)), "reduce_scatter");
    const OnGpu<Float16> uneven(rank == 0 ? 3 : 1, Float16(0.0F));
    group.reduce_scatter_v(halves.named(), {3, 1}, uneven.named(), premul_sum(2), async_op).wait();
    expect(uneven.read().front() == Float16(12.0F), "reduce_scatter_v");
    group.all_reduce(numbers.named());
    expect(numbers.read() == std::vector<float>(4, 6.0F), "a sum afterwards");
    group.barrier();
  });
}

TEST_CASE("work before on the thread's default stream completes first, over the stand-in") {
  run_over_standins(2, [](int rank, Words& words) {
    ProcessGroup group = ProcessGroup::connect(over(kBoth));
    const OnGpu<int> one(1, 1);
    const OnGpu<int> other(1, 0);
    std::vector<int> of_host(1, 1);
    if (rank == 1) {
      words.await("it has returned");
      group.all_reduce(one.named());
      other.write({20});
      group.all_reduce(other.named());
      group.all_reduce(of_host);
      group.barrier();
      return;
    }
    // One thread connects and another operation on the host's memory is pending, so other threads
    // could run what this one starts.
    const Work on_host = group.all_reduce(of_host, async_op);
    std::jthread connecting([&] { group.all_reduce(one.named()); });
    std::this_thread::sleep_for(milliseconds(100));
    const int written = 3;
    Kernel kernel{.to = other.data(), .from = &written, .time = milliseconds(100)};
    launch(kPerThreadStream, kernel);
    const Work work =
        group.all_reduce(device_elements(other.data(), 1, 0, kPerThreadStream), async_op);
    words.tell("it has returned");
    work.wait();
    expect(other.read()[0] == 23, "the sum, not " + std::to_string(other.read()[0]));
    on_host.wait();
    group.barrier();
  });
}

TEST_CASE("a pending operation does not break a capture of another stream, over the stand-in") {
  run_over_standins(2, [](int rank, Words& words) {
    ProcessGroup group = ProcessGroup::connect(over(kBoth));
    const OnGpu<int> number(1, 1);
    group.all_reduce(number.named());
    const OwnedStream stream;
    constexpr int kGlobal = 0;  // CU_STREAM_CAPTURE_MODE_GLOBAL
    test::standin_function<int(Stream, int)>("cuStreamBeginCapture_v2")(stream.get(), kGlobal);
    if (rank == 1) words.await("started");
    const Work work = group.all_reduce(number.named(), async_op);
    if (rank == 0) words.tell("started");
    work.wait();
    const std::string said = error_of([&] {
      const Work again = group.all_reduce(number.named(), async_op);
      again.wait_stream(stream.get());  // cannot be captured, so the thread waits
      expect(again.is_completed(), "it is done");
    });
    expect(said == "no error", said);
    void* graph = nullptr;
    expect(test::standin_function<int(Stream, void**)>("cuStreamEndCapture")(stream.get(),
                                                                             &graph) == 0,
           "an intact capture");
    group.barrier();
  });
}

TEST_CASE("a program that exits without destroy joins the group's threads") {
  const StoreProcess store;
  const bool is_on_gpu = GENERATE(false, true);
  check_exited(run_ranks({.size = 2, .port = store.port()}, [&](int, const Say&) {
    test::use_standins();
    static const auto count_threads = [] {
      using Entries = std::filesystem::directory_iterator;
      return std::distance(Entries("/proc/self/task"), Entries());
    };
    std::thread([] {}).join();  // ThreadSanitizer starts its own thread with the first one
    static const auto before = count_threads();
    std::atexit([] {
      // The stand-in's default stream has one.
      const bool has_gpu = std::getenv("HAS_GPU") != nullptr;
      const auto most = before + (has_gpu ? 1 : 0);
      // The kernel lists a thread for a moment after it was joined; an idle one stays for a second.
      for (int i = 0; i < 20 && count_threads() > most; ++i)
        std::this_thread::sleep_for(milliseconds(5));
      if (count_threads() > most) _exit(9);
    });
    std::vector<int> numbers(3, 1);
    init_process_group(over(kBoth));
    default_group().all_reduce(numbers, async_op).wait();
    if (is_on_gpu) {
      setenv("HAS_GPU", "1", 1);
      const OnGpu<int> number(1, 1);
      default_group().all_reduce(number.named(), async_op).wait();
    }
    default_group().barrier();
    has_leak_check = false;
    std::exit(0);
  }));
}

// The stand-ins abort a process that calls NCCL after its exit handlers, and CUDA's would wait for
// the operation. Rank 1 never joins it.
TEST_CASE("a program that exits during an operation on a GPU ends with its code") {
  const StoreProcess store;
  const auto began = Clock::now();
  const std::vector<RankEnd> ends =
      run_ranks({.size = 2, .port = store.port()}, [](int rank, const Say&) {
        test::use_standins();
        static ProcessGroup world = ProcessGroup::connect(over(kBoth));
        static const OnGpu<int>& number = *new OnGpu<int>(1, 1);
        world.all_reduce(number.named());
        static Work work;
        if (rank == 0) work = world.all_reduce(number.named(), async_op);
        // An idle communicator is left to the kernel at exit, also by the destructor of `world`.
        static std::vector<ProcessGroup>& kept = *new std::vector<ProcessGroup>;
        if (rank == 1) kept.push_back(world);
        if (rank == 1) std::this_thread::sleep_for(seconds(1));
        has_leak_check = false;
        std::exit(7);
      });
  for (const RankEnd& end : ends) CHECK(end.exit_code == 7);
  CHECK(Clock::now() - began < test::scaled(seconds(10)));
}

TEST_CASE(
    "a communicator that cannot be closed delays the end by seconds only, over the stand-in") {
  const auto began = Clock::now();
  run_over_standins(2,
                    [](int, Words&) {
                      ProcessGroup group = ProcessGroup::connect(over("nccl"));
                      const OnGpu<int> number(1, 1);
                      group.all_reduce(number.named());
                    },
                    {{"STANDIN_NCCL_FAULT", "stuck_close"}});
  CHECK(Clock::now() - began < test::scaled(seconds(20)));
}

}  // namespace drun::nccl_work_test
