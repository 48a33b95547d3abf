// Tests failures of the nccl backend, with stand-ins for NCCL and CUDA's driver (tests/standin)
// that simulate failures.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "drun/process_group.h"
#include "tests/support/catch.h"
#include "tests/support/gpu_memory.h"
#include "tests/support/in_rank.h"
#include "tests/support/machine.h"
#include "tests/support/own_keys.h"
#include "tests/support/ranks.h"

namespace drun {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::OnGpu;
using test::over;
using test::RankEnd;
using test::run_ranks;
using test::Say;
using test::StoreProcess;

constexpr seconds kPatience{20};
constexpr char kBoth[] = "cpu:shm+gloo,cuda:nccl";

// Returns "timeout| rank 0: all_reduce(...): ..." for an error, or "it works".
std::string outcome_of(const std::function<void()>& action) {
  try {
    action();
    return "it works";
  } catch (const WorkerError& error) {
    return std::string(to_string(error.kind())) + "| " + error.what();
  }
}

// Runs the function on each rank, and returns their outcomes. Rank `faulty` has `fault` from the
// start.
std::vector<std::string> said_with(const std::string& fault, int faulty,
                                   const std::function<void(int rank)>& action,
                                   std::map<std::string, std::string> environment = {}) {
  const StoreProcess store;
  const auto ends =
      run_ranks({.size = 2, .port = store.port(), .environment = std::move(environment)},
                [&](int rank, const Say& say) {
                  test::use_standins();
                  if (rank == faulty) setenv("STANDIN_NCCL_FAULT", fault.c_str(), 1);
                  say(outcome_of([&] { action(rank); }));
                });
  std::vector<std::string> said;
  for (const RankEnd& end : ends) {
    CHECK(end.exit_code == 0);
    said.push_back(end.said);
  }
  return said;
}

void reduce_times(ProcessGroup& group, int times, const OpOptions& options = {}) {
  const OnGpu<float> numbers(4, 1);
  for (int i = 0; i < times; ++i) group.all_reduce(numbers.named(), options);
}

}  // namespace

TEST_CASE("a slow connect is waited for, over the stand-in") {
  for (const std::string& said : said_with("slow_init=300", 1, [](int) {
         ProcessGroup group = ProcessGroup::connect(over("nccl", kPatience));
         reduce_times(group, 2);
       })) {
    CHECK(said == "it works\n");
  }
}

TEST_CASE("a rank that never connects is a timeout for the others, over the stand-in") {
  const auto began = Clock::now();
  const auto said =
      said_with("absent", 1, [](int) { ProcessGroup::connect(over("nccl", milliseconds(1500))); });
  CHECK_THAT(said[0], ContainsSubstring("timeout| rank 0: init_process_group: connecting was not "
                                        "done in time"));
  CHECK(Clock::now() - began < test::scaled(seconds(30)));
}

TEST_CASE("a rank that does not join the first operation is named, over the stand-in") {
  const auto said = said_with("", -1, [](int rank) {
    ProcessGroup group = ProcessGroup::connect(over(kBoth, kPatience));
    if (rank == 1) reduce_times(group, 1, {milliseconds(500)});
    group.monitored_barrier({seconds(1)});
  });
  CHECK_THAT(said[1], ContainsSubstring("timeout| rank 1: all_reduce(f32 x 4, sum): rank 0 did not "
                                        "come in time to connect the GPUs (500 ms)"));
}

TEST_CASE("a failed connect is reported with NCCL's message, over the stand-in") {
  const auto said = said_with("bad_init", 0,
                              [](int) { ProcessGroup::connect(over("nccl", milliseconds(1500))); });
  CHECK_THAT(said[0], ContainsSubstring("system| rank 0: init_process_group: NCCL 2.28.9: "
                                        "connecting: unhandled system error (2)"));
}

TEST_CASE("an asynchronous error names rank, operation and number, over the stand-in") {
  const auto said = said_with("async_error=3", 1,
                              [](int) {
                                ProcessGroup group = ProcessGroup::connect(over("nccl", kPatience));
                                reduce_times(group, 5);
                              },
                              {{"STANDIN_NCCL_NETWORK", "1"}});
  CHECK_THAT(said[1], ContainsSubstring("peer lost| rank 1: all_reduce(f32 x 4, sum): NCCL 2.28.9: "
                                        "collective number 3: remote process exited"));
  CHECK_THAT(said[0], ContainsSubstring("rank 0: all_reduce(f32 x 4, sum): "));
  CHECK_THAT(said[0], ContainsSubstring("collective number 3"));
}

TEST_CASE("an operation that never ends times out and breaks the group, over the stand-in") {
  const auto began = Clock::now();
  const auto said = said_with("stuck=2", 0, [](int) {
    ProcessGroup group = ProcessGroup::connect(over("nccl", kPatience));
    reduce_times(group, 1);
    const std::string first = outcome_of([&] { reduce_times(group, 1, {milliseconds(400)}); });
    const std::string second = outcome_of([&] { reduce_times(group, 1); });
    throw WorkerError({.message = first + "\n" + second});
  });
  for (const std::string& each : said) {
    CHECK_THAT(each, ContainsSubstring("all_reduce(f32 x 4, sum): "));
    CHECK_THAT(each, ContainsSubstring("collective number 2 was not done in time") ||
                         ContainsSubstring("remote process exited"));
    CHECK_THAT(each, ContainsSubstring("broken| "));
  }
  CHECK(Clock::now() - began < test::scaled(seconds(30)));
}

TEST_CASE("the timeout of a send that is never received names the peer, over the stand-in") {
  const auto said = said_with("", -1, [](int rank) {
    ProcessGroup group = ProcessGroup::connect(over("nccl", kPatience));
    const OnGpu<int> big(100000, 1);
    if (rank == 0) group.send(big.named(), 1, {milliseconds(500)});
    group.monitored_barrier({seconds(1)});
  });
  CHECK_THAT(said[0], ContainsSubstring("timeout| rank 0: send(i32 x 100000, to rank 1): "));
}

TEST_CASE("a collective on a GPU names the rank that died, over the stand-in") {
  const StoreProcess store;
  // On a single node the death is detected by the process, on several nodes by its connections.
  const std::string backend = GENERATE(kBoth, "cpu:gloo,cuda:nccl");
  const auto ends = run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say& say) {
    test::use_standins();
    ProcessGroup group = ProcessGroup::connect(over(backend, kPatience));
    reduce_times(group, 1);
    if (rank == 1) {
      std::vector<int> word(1);
      group.recv(word, 0);
      kill(getpid(), SIGKILL);
    }
    Work work;
    const OnGpu<float> numbers(4, 1);
    if (rank == 0) {
      work = group.all_reduce(numbers.named(), async_op);
      const std::vector<int> word(1);
      group.send(word, 1);
    }
    say(outcome_of([&] { rank == 0 ? work.wait() : reduce_times(group, 1); }));
  });
  for (const int rank : {0, 2}) {
    const std::string& said = ends[static_cast<std::size_t>(rank)].said;
    CHECK_THAT(said, ContainsSubstring("peer lost| rank " + std::to_string(rank)));
    CHECK_THAT(said, ContainsSubstring("the process of rank 1 has ended"));
    CHECK(ends[static_cast<std::size_t>(rank)].took < test::scaled(seconds(15)));
  }
}

TEST_CASE("a rank behind a failed network is not reported as ended, over the stand-in") {
  // Knows that the network to rank 1 has failed once the other end of its lifeline is closed.
  class BehindNetwork final : public Backend {
   public:
    explicit BehindNetwork(int lifeline) : lifeline_(lifeline) {}
    std::string name() const override { return "behind"; }
    std::string refusal(const Call&) const override { return "it moves nothing"; }
    void run(const Call&, const Turn&) override {}
    void abort() noexcept override {}
    std::vector<Lifeline> lifelines() const override {
      return lifeline_ < 0 ? std::vector<Lifeline>() : std::vector<Lifeline>{{lifeline_, 1}};
    }
    bool tell_lost(int) noexcept override { return false; }

   private:
    int lifeline_;
  };
  const auto said = said_with("", -1, [](int rank) {
    int ends[2] = {-1, -1};
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    register_backend("behind", [&](const BackendContext&) {
      return std::make_unique<BehindNetwork>(rank == 0 ? ends[0] : -1);
    });
    ProcessGroup group = ProcessGroup::connect(over("cpu:behind,cuda:nccl", kPatience));
    reduce_times(group, 1);
    if (rank == 1) return group.monitored_barrier({seconds(10)});
    const OnGpu<float> numbers(4, 1);
    const Work work = group.all_reduce(numbers.named(), async_op);
    close(ends[1]);
    const std::string outcome = outcome_of([&] { work.wait(); });
    throw WorkerError({.message = outcome});
  });
  CHECK_THAT(said[0], ContainsSubstring("peer lost| rank 0: all_reduce(f32 x 4, sum): lost rank 1 "
                                        "before collective number 2 was done"));
  CHECK_THAT(said[0], !ContainsSubstring("ended"));
}

TEST_CASE("with nccl alone, the end of a rank on the same node is detected, over the stand-in") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say& say) {
    test::use_standins();
    ProcessGroup group = ProcessGroup::connect(over("nccl", kPatience));
    reduce_times(group, 1);
    if (rank == 1) kill(getpid(), SIGKILL);
    say(outcome_of([&] { reduce_times(group, 1); }));
  });
  for (const std::size_t rank : {0u, 2u}) {
    CHECK_THAT(ends[rank].said, ContainsSubstring("peer lost| rank " + std::to_string(rank)) &&
                                    ContainsSubstring("the process of rank 1 has ended"));
    CHECK(ends[rank].took < test::scaled(seconds(15)));
  }
}

TEST_CASE("with nccl alone, a split names a rank that is late or has died, over the stand-in") {
  const bool is_dead = GENERATE(false, true);
  const StoreProcess store;
  const auto ends = run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say& say) {
    test::use_standins();
    ProcessGroup group = ProcessGroup::connect(over("nccl", kPatience));
    if (rank == 2 && is_dead) kill(getpid(), SIGKILL);
    say(outcome_of([&] {
      if (rank < 2) group.split(0, rank, {is_dead ? kPatience : milliseconds(500)});
      group.monitored_barrier({seconds(20)});
    }));
  });
  CHECK_THAT(ends[0].said,
             StartsWith(is_dead ? "peer lost| rank 0: split(): the process of rank 2 ended before"
                                : "timeout| rank 0: split(): rank 2 did not come in time"));
  CHECK(ends[0].took < test::scaled(seconds(10)));
}

TEST_CASE("destroying a group wakes a thread that waits for the GPU, over the stand-in") {
  const auto said = said_with("", -1, [](int rank) {
    ProcessGroup group = ProcessGroup::connect(over("nccl", kPatience));
    reduce_times(group, 1);
    if (rank == 1) return group.monitored_barrier({seconds(10)});
    const OnGpu<float> numbers(4, 1);
    const Work work = group.all_reduce(numbers.named(), async_op);  // the other rank never calls it
    group.monitored_barrier({seconds(10)});
    group.destroy();
    work.wait();
  });
  CHECK_THAT(said[0], ContainsSubstring("the group was destroyed"));
  CHECK(said[1] == "it works\n");
}

TEST_CASE("with DRUN_DEBUG=1 every rank reports different calls, over the stand-in") {
  const auto said = said_with("", -1,
                              [](int rank) {
                                ProcessGroup group = ProcessGroup::connect(over("nccl", kPatience));
                                reduce_times(group, 1);
                                const OnGpu<float> numbers(4, 1);
                                rank == 0 ? group.all_reduce(numbers.named())
                                          : group.broadcast(numbers.named(), 0);
                              },
                              {{"DRUN_DEBUG", "1"}});
  for (const std::string& each : said) {
    CHECK_THAT(each, ContainsSubstring("mismatch| "));
    CHECK_THAT(each, ContainsSubstring("the ranks disagree about collective number 2: rank 0 calls "
                                       "all_reduce(f32 x 4, sum); rank 1 calls broadcast(f32 x 4, "
                                       "root 0)"));
  }
}

TEST_CASE("with DRUN_DEBUG=1 every rank reports counts that differ, over the stand-in") {
  const auto said =
      said_with("", -1,
                [](int rank) {
                  ProcessGroup group = ProcessGroup::connect(over("nccl", seconds(5)));
                  const OnGpu<float> mine(rank == 0 ? 2 : 3, 1);
                  const OnGpu<float> all(4, 0);
                  group.gather_v(mine.named(), rank == 0 ? all.named() : Elements(), {2, 2}, 0);
                },
                {{"DRUN_DEBUG", "1"}});
  for (const std::string& each : said) {
    CHECK_THAT(each, ContainsSubstring("mismatch| ") &&
                         ContainsSubstring("rank 1 has 3 elements for rank 0, which expects 2"));
  }
}

TEST_CASE("with DRUN_DEBUG=1 a message of another size is a mismatch, over the stand-in") {
  const auto said = said_with("", -1,
                              [](int rank) {
                                ProcessGroup group = ProcessGroup::connect(over("nccl", kPatience));
                                const OnGpu<float> numbers(4, 1);
                                if (rank == 0)
                                  return group.send(numbers.named(), 1, async_op).wait(seconds(5));
                                const OnGpu<float> fewer(3, 1);
                                group.recv(fewer.named(), 0);
                              },
                              {{"DRUN_DEBUG", "1"}});
  CHECK_THAT(said[1],
             ContainsSubstring("mismatch| rank 1: recv(f32 x 3, from rank 0): rank 0 sends "
                               "f32 x 4, this rank receives f32 x 3"));
}

TEST_CASE("with DRUN_DEBUG=1 a message is compared after its sender's end, over the stand-in") {
  const auto said = said_with("", -1,
                              [](int rank) {
                                ProcessGroup group = ProcessGroup::connect(over("nccl", kPatience));
                                const OnGpu<float> numbers(4, 1);
                                const OnGpu<int> pid(1, getpid());
                                if (rank == 0) {
                                  group.send(pid.named(), 1);
                                  return group.send(numbers.named(), 1, async_op).wait(seconds(5));
                                }
                                group.recv(pid.named(), 0);
                                test::wait_for_end_of(pid.read()[0]);
                                const OnGpu<float> fewer(3, 1);
                                group.recv(fewer.named(), 0);
                              },
                              {{"DRUN_DEBUG", "1"}});
  CHECK_THAT(said[1], ContainsSubstring("mismatch| rank 1: ") &&
                          ContainsSubstring("rank 0 sends f32 x 4, this rank receives f32 x 3"));
}

TEST_CASE("with DRUN_DEBUG=1 messages leave nothing in the store, over the stand-in") {
  const StoreProcess store;
  const auto ends =
      run_ranks({.size = 2, .port = store.port(), .environment = {{"DRUN_DEBUG", "1"}}},
                [&](int rank, const Say& say) {
                  test::use_standins();
                  const auto own = std::make_shared<test::OwnKeys>(store.port());
                  InitOptions options = over("nccl", kPatience);
                  options.store = own;
                  options.rank = rank;
                  options.world_size = 2;
                  ProcessGroup group = ProcessGroup::connect(options);
                  const OnGpu<float> numbers(4, 1);
                  for (int i = 0; i < 6; ++i)
                    rank == 0 ? group.send(numbers.named(), 1) : group.recv(numbers.named(), 0);
                  rank == 0 ? group.recv(numbers.named(), 1) : group.send(numbers.named(), 0);
                  int compared = 0;
                  int left = 0;
                  for (const std::string& key : own->keys()) {
                    if (key.find("/nccl/pair/0-1/") == key.npos) continue;
                    ++compared;
                    if (own->has(key, kPatience)) ++left;
                  }
                  say(std::to_string(compared) + " keys, " + std::to_string(left) + " left");
                });
  CHECK_THAT(ends[0].said, ContainsSubstring("6 keys, 0 left"));
}

TEST_CASE("with DRUN_DEBUG=1 a receive names the rank that died, over the stand-in") {
  const StoreProcess store;
  const auto ends =
      run_ranks({.size = 2, .port = store.port(), .environment = {{"DRUN_DEBUG", "1"}}},
                [&](int rank, const Say& say) {
                  test::use_standins();
                  ProcessGroup group = ProcessGroup::connect(over("nccl", kPatience));
                  const OnGpu<float> numbers(4, 1);
                  if (rank == 0) group.recv(numbers.named(), 1);  // they are connected
                  if (rank == 1) group.send(numbers.named(), 0);
                  reduce_times(group, 1);
                  if (rank == 1) kill(getpid(), SIGKILL);
                  say(outcome_of([&] { group.recv(numbers.named(), 1); }));
                });
  CHECK_THAT(ends[0].said, ContainsSubstring("peer lost| rank 0: recv(f32 x 4, from rank 1)") &&
                               ContainsSubstring("the process of rank 1 has ended"));
  CHECK(ends[0].took < test::scaled(seconds(10)));
}

TEST_CASE("a call that takes long is not aborted while NCCL uses the group, over the stand-in") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say& say) {
    test::use_standins();
    if (rank == 0) setenv("STANDIN_NCCL_FAULT", "slow_calls=120", 1);
    ProcessGroup group = ProcessGroup::connect(over("nccl", kPatience));
    reduce_times(group, 1);
    if (rank == 1) kill(getpid(), SIGKILL);
    say(outcome_of([&] { reduce_times(group, 2); }));
  });
  CHECK(ends[0].exit_code == 0);
  CHECK_THAT(ends[0].said, ContainsSubstring("peer lost| rank 0: all_reduce(f32 x 4, sum)") &&
                               ContainsSubstring("the process of rank 1 has ended"));
}

TEST_CASE("different NCCL versions are a mismatch, over the stand-in") {
  const auto said = said_with("version=22707", 0,
                              [](int) { ProcessGroup::connect(over("nccl", milliseconds(1500))); });
  CHECK_THAT(said[1], ContainsSubstring("mismatch| rank 1: init_process_group: rank 0 has NCCL "
                                        "2.27.7, this rank 2.28.9"));
}

TEST_CASE("ranks that use one GPU are rejected at once and both are named, over the stand-in") {
  const auto began = Clock::now();
  const std::string backend = GENERATE("nccl", kBoth);
  for (const std::string& each : said_with(
           "", -1,
           [&](int) {
             ProcessGroup group = ProcessGroup::connect(over(backend, kPatience));
             reduce_times(group, 1);
           },
           {{"STANDIN_SHARED_GPUS", "1"}, {"NCCL_MULTI_RANK_GPU_ENABLE", "1"}})) {  // too early
    CHECK_THAT(each, ContainsSubstring("usage| rank "));
    CHECK_THAT(each, ContainsSubstring("ranks 0 and 1 use the same GPU, 0000:00:00.0, which NCCL "
                                       "2.28.9 rejects; give each rank a GPU, or set "));
  }
  CHECK(Clock::now() - began < test::scaled(kPatience));
}

TEST_CASE("ranks may share a GPU as NCCL permits it, over the stand-in") {
  using Variables = std::map<std::string, std::string>;
  Variables variables = GENERATE(
      Variables{{"NCCL_HOSTID", "one"}},
      Variables{{"NCCL_MULTI_RANK_GPU_ENABLE", "1"}, {"STANDIN_NCCL_FAULT", "version=23003"}});
  variables["STANDIN_SHARED_GPUS"] = "1";
  const StoreProcess store;
  const auto ends = run_ranks(
      {.size = 2, .port = store.port(), .environment = variables}, [](int, const Say& say) {
        test::use_standins();
        say(outcome_of([] {
          ProcessGroup group = ProcessGroup::connect(over("nccl", kPatience));
          reduce_times(group, 1);
        }));
      });
  for (const RankEnd& end : ends) CHECK(end.said == "it works\n");
}

TEST_CASE("after a split every rank can use the world at once, over the stand-in") {
  // On every rank NCCL's thread stores the new communicator, or null, long after the call.
  const StoreProcess store;
  const auto ends = run_ranks(
      {.size = 3, .port = store.port(), .environment = {{"STANDIN_NCCL_FAULT", "slow_split=300"}}},
      [](int rank, const Say& say) {
        test::use_standins();
        say(outcome_of([&] {
          ProcessGroup world = ProcessGroup::connect(over("nccl", kPatience));
          std::optional<ProcessGroup> part = world.new_group({0, 1});
          reduce_times(world, 1);
          if (rank < 2) reduce_times(part.value(), 1);
          world.monitored_barrier({kPatience});
        }));
      });
  for (const RankEnd& end : ends) {
    CHECK(end.exit_code == 0);
    CHECK(end.said == "it works\n");
  }
}

TEST_CASE(
    "a split that ends after its deadline writes to memory that is still valid, over the "
    "stand-in") {
  const StoreProcess store;
  const auto ends = run_ranks(
      {.size = 2, .port = store.port(), .environment = {{"STANDIN_NCCL_FAULT", "slow_split=1000"}}},
      [](int, const Say& say) {
        test::use_standins();
        ProcessGroup world = ProcessGroup::connect(over("nccl", kPatience));
        reduce_times(world, 1);
        say(outcome_of([&] { world.new_group({0}, {milliseconds(200)}); }));
        // Reuses any memory that was freed.
        std::vector<std::unique_ptr<void*>> others(1000);
        for (auto& other : others) other = std::make_unique<void*>(&other);
        world.destroy();
      });
  for (const RankEnd& end : ends) {
    CHECK(end.exit_code == 0);
    CHECK_THAT(end.said, ContainsSubstring("timeout| "));
    CHECK_THAT(end.said, ContainsSubstring("new_group()"));
  }
}

TEST_CASE("with DRUN_DEBUG=1 a comparison that never ends is a timeout, over the stand-in") {
  const auto began = Clock::now();
  // The third operation is the second collective's comparison.
  const auto said = said_with("stuck=3", 0,
                              [](int) {
                                ProcessGroup group = ProcessGroup::connect(over("nccl", kPatience));
                                reduce_times(group, 1);
                                reduce_times(group, 1, {milliseconds(400)});
                              },
                              {{"DRUN_DEBUG", "1"}});
  for (const std::string& each : said) {
    CHECK_THAT(each, ContainsSubstring("collective number 2 was not done in time") ||
                         ContainsSubstring("remote process exited"));
  }
  CHECK(Clock::now() - began < seconds(30));
}

TEST_CASE("an NCCL call that blocks is aborted after the deadline, over the stand-in") {
  const auto began = Clock::now();
  const auto said = said_with("blocks=2", 0, [](int) {
    ProcessGroup group = ProcessGroup::connect(over("nccl", kPatience));
    reduce_times(group, 1);
    reduce_times(group, 1, {milliseconds(400)});
  });
  CHECK_THAT(said[0], ContainsSubstring("timeout| rank 0: all_reduce(f32 x 4, sum): "));
  CHECK(Clock::now() - began < seconds(30));
}

TEST_CASE("an NCCL call that blocks is aborted when the other rank has died, over the stand-in") {
  const StoreProcess store;
  const auto began = Clock::now();
  const std::vector<RankEnd> ends =
      run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say& say) {
        test::use_standins();
        if (rank == 0) setenv("STANDIN_NCCL_FAULT", "blocks=2", 1);
        ProcessGroup group = ProcessGroup::connect(over(kBoth, seconds(60)));
        reduce_times(group, 1);
        if (rank == 1) {
          std::this_thread::sleep_for(milliseconds(300));
          kill(getpid(), SIGKILL);
        }
        say(outcome_of([&] { reduce_times(group, 1); }));
      });
  CHECK_THAT(ends[0].said, ContainsSubstring("peer lost| rank 0: all_reduce(f32 x 4, sum): ") &&
                               ContainsSubstring("rank 1"));
  CHECK(Clock::now() - began < test::scaled(seconds(15)));
}

}  // namespace drun
