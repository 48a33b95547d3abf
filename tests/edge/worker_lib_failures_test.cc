#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <functional>
#include <limits>
#include <new>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "drun/process_group.h"
#include "tests/support/catch.h"
#include "tests/support/in_rank.h"
#include "tests/support/machine.h"
#include "tests/support/ranks.h"

namespace drun {
namespace {

using Kind = WorkerError::Kind;
using test::check_exited;
using test::RankEnd;
using test::run_ranks;
using test::Say;
using test::StoreProcess;
using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

// Returns "mismatch peer=1: rank 0: all_reduce(...): ..." for the error that `work` throws.
template <typename Work>
std::string error_and_peer_of(Work&& work) {
  try {
    work();
  } catch (const WorkerError& error) {
    return std::string(to_string(error.kind())) +
           (error.peer() ? " peer=" + std::to_string(*error.peer()) : "") + ": " + error.what();
  }
  return "no error";
}

void check_said(const std::vector<RankEnd>& ends, const std::string& what) {
  for (const RankEnd& end : ends) CHECK_THAT(end.said, ContainsSubstring(what));
}

struct Disagreement {
  const char* name;
  std::function<void(ProcessGroup&, int rank)> call;
  const char* said;
};

const std::vector<Disagreement>& disagreements() {
  static const std::vector<Disagreement> all = {
      {"count",
       [](ProcessGroup& group, int rank) {
         std::vector<float> data(rank == 1 ? 1001 : 1000);
         group.all_reduce(data);
       },
       "ranks 0, 2 call all_reduce(f32 x 1000, sum); rank 1 calls all_reduce(f32 x 1001, sum)"},
      {"nothing against something",
       [](ProcessGroup& group, int rank) {
         std::vector<float> data(rank == 2 ? 0 : 4);
         group.all_reduce(data);
       },
       "ranks 0, 1 call all_reduce(f32 x 4, sum); rank 2 calls all_reduce(f32 x 0, sum)"},
      {"type",
       [](ProcessGroup& group, int rank) {
         std::vector<float> floats(8);
         std::vector<std::int32_t> integers(8);
         rank == 0 ? group.all_reduce(integers) : group.all_reduce(floats);
       },
       "rank 0 calls all_reduce(i32 x 8, sum); ranks 1, 2 call all_reduce(f32 x 8, sum)"},
      {"op",
       [](ProcessGroup& group, int rank) {
         std::vector<float> data(8);
         group.all_reduce(data, rank == 0 ? ReduceOp::Max : ReduceOp::Sum);
       },
       "rank 0 calls all_reduce(f32 x 8, max)"},
      {"root",
       [](ProcessGroup& group, int rank) {
         std::vector<float> data(8);
         group.broadcast(data, rank == 0 ? 1 : 0);
       },
       "rank 0 calls broadcast(f32 x 8, root 1); ranks 1, 2 call broadcast(f32 x 8, root 0)"},
      {"another collective",
       [](ProcessGroup& group, int rank) {
         std::vector<float> data(1 << 20);
         rank == 0 ? group.barrier() : group.all_reduce(data);
       },
       "rank 0 calls barrier(); ranks 1, 2 call all_reduce(f32 x 1048576, sum)"},
  };
  return all;
}

}  // namespace

TEST_CASE("if ranks disagree about a collective, every rank's error shows all calls") {
  const StoreProcess store;
  for (const Disagreement& each : disagreements()) {
    INFO(each.name);
    const auto ends = run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say& say) {
      ProcessGroup group = ProcessGroup::connect();
      group.barrier();
      say(error_and_peer_of([&] { each.call(group, rank); }));
      say(error_and_peer_of([&] { group.barrier(); }));
    });
    check_exited(ends);
    check_said(ends, "mismatch: rank ");
    check_said(ends, each.said);
    check_said(ends, "broken: rank ");
  }
}

TEST_CASE("a message of another size or type is an error on both ends") {
  const StoreProcess store;
  const bool is_size = GENERATE(true, false);
  const auto ends = run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say& say) {
    ProcessGroup group = ProcessGroup::connect();
    std::vector<float> floats(100'000);
    std::vector<float> fewer(99'999);
    std::vector<std::int32_t> integers(100'000);
    say(error_and_peer_of([&] {
      if (rank == 0) {
        group.send(floats, 1);
      } else {
        is_size ? group.recv(fewer, 0) : group.recv(integers, 0);
      }
    }));
  });
  check_exited(ends);
  check_said(ends, "mismatch peer=0: rank ");
  check_said(ends, is_size ? "rank 0 sends f32 x 100000, this rank receives f32 x 99999"
                           : "rank 0 sends f32 x 100000, this rank receives i32 x 100000");
}

TEST_CASE("a killed rank fails every other rank's operation within seconds") {
  const StoreProcess store;
  const int victim = GENERATE(0, 2);
  const std::size_t count = GENERATE(1u, 2u << 20);
  const auto ends = run_ranks({.size = 4, .port = store.port()}, [&](int rank, const Say& say) {
    ProcessGroup group = ProcessGroup::connect({.timeout = seconds(30)});
    std::vector<float> data(count);
    if (rank == victim) {
      for (int turn = 0; turn < 3; ++turn) group.all_reduce(data);
      raise(SIGKILL);
    }
    const auto began = Clock::now();
    say(error_and_peer_of([&] {
      while (true) group.all_reduce(data);
    }));
    if (Clock::now() - began > test::scaled(seconds(5))) say("too late");
    say(error_and_peer_of([&] { group.all_reduce(data); }));
  });
  for (int rank = 0; rank < 4; ++rank) {
    const RankEnd& end = ends[static_cast<std::size_t>(rank)];
    INFO("rank " << rank << " said: " << end.said << " signal " << end.signal);
    if (rank == victim) {
      CHECK(end.signal == SIGKILL);
      continue;
    }
    CHECK(end.exit_code == 0);
    CHECK_THAT(end.said, ContainsSubstring("peer lost peer=" + std::to_string(victim)));
    CHECK_THAT(end.said,
               ContainsSubstring("lost rank " + std::to_string(victim) + ": its process ended"));
    CHECK_THAT(end.said, ContainsSubstring("broken peer="));
    CHECK_THAT(end.said, !ContainsSubstring("too late"));
  }
}

namespace {

// Shared by the processes of all ranks.
struct DeathTimes {
  std::atomic<std::int64_t> killed = 0;
  std::array<std::atomic<std::int64_t>, 4> noticed{};
  std::array<std::atomic<int>, 4> named{};
};

std::int64_t now_ns() { return Clock::now().time_since_epoch().count(); }

const std::vector<std::pair<const char*, std::function<void(ProcessGroup&)>>>&
waiting_operations() {
  static std::vector<float> one(1000);
  static std::vector<float> all(4000);
  static std::vector<float> others(4000);
  static const auto on_root = [](ProcessGroup& group) {
    return Elements(all.data(), group.rank() == 0 ? all.size() : 0, DataType::F32);
  };
  static const std::vector<std::pair<const char*, std::function<void(ProcessGroup&)>>> operations =
      {
          {"barrier", [](ProcessGroup& group) { group.barrier(); }},
          {"broadcast", [](ProcessGroup& group) { group.broadcast(one, 2); }},
          {"all_reduce", [](ProcessGroup& group) { group.all_reduce(one); }},
          {"reduce", [](ProcessGroup& group) { group.reduce(one, 0); }},
          {"gather", [](ProcessGroup& group) { group.gather(one, on_root(group), 0); }},
          {"all_gather", [](ProcessGroup& group) { group.all_gather(one, all); }},
          {"scatter", [](ProcessGroup& group) { group.scatter(on_root(group), one, 0); }},
          {"reduce_scatter", [](ProcessGroup& group) { group.reduce_scatter(all, one); }},
          {"all_to_all", [](ProcessGroup& group) { group.all_to_all(all, others); }},
          {"recv", [](ProcessGroup& group) { group.recv(one, 2); }},
      };
  return operations;
}

}  // namespace

TEST_CASE("all ranks name a killed rank within milliseconds, in every operation") {
  struct Limit {
    const char* backend;
    std::chrono::milliseconds time;
  };
  const Limit limit = GENERATE(Limit{"shm", std::chrono::milliseconds(20)},
                               Limit{"shm+tcp", std::chrono::milliseconds(20)},
                               Limit{"tcp", std::chrono::milliseconds(100)});
  constexpr int kVictim = 2;
  constexpr int kAttempts = 5;  // a busy machine can delay any of them
  for (const auto& waiting : waiting_operations()) {
    const auto& name = waiting.first;
    const auto& operation = waiting.second;
    INFO(limit.backend << ", " << name);
    std::int64_t fastest = std::numeric_limits<std::int64_t>::max();
    for (int i = 0; i < kAttempts && fastest > limit.time / std::chrono::nanoseconds(1); ++i) {
      void* const memory = mmap(nullptr, sizeof(DeathTimes), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
      REQUIRE(memory != MAP_FAILED);
      DeathTimes& times = *new (memory) DeathTimes;
      const StoreProcess store;
      run_ranks({.size = 4, .port = store.port()}, [&](int rank, const Say&) {
        ProcessGroup group = ProcessGroup::connect(test::over(limit.backend));
        std::vector<float> data(10);
        group.all_reduce(data);
        for (int turn = 0; turn < 3 && std::string_view(name) != "recv"; ++turn) operation(group);
        if (rank == kVictim) {
          times.killed = now_ns();
          raise(SIGKILL);
        }
        try {
          while (true) operation(group);
        } catch (const WorkerError& error) {
          times.noticed[static_cast<std::size_t>(rank)] = now_ns();
          times.named[static_cast<std::size_t>(rank)] = error.peer().value_or(-1);
        }
      });
      std::int64_t last = 0;
      for (std::size_t rank = 0; rank < 4; ++rank) {
        if (rank == kVictim) continue;
        CHECK(times.named[rank] == kVictim);
        last = std::max<std::int64_t>(last, times.noticed[rank]);
      }
      fastest = std::min<std::int64_t>(fastest, last - times.killed);
      munmap(memory, sizeof(DeathTimes));
    }
    CHECK(fastest <= test::scaled(limit.time) / std::chrono::nanoseconds(1));
  }
}

TEST_CASE("a rank that is killed in the middle of a large operation is named by all others") {
  const std::string backend = GENERATE("shm", "tcp", "shm+tcp", "gloo");
  const int operation = GENERATE(range(0, 4));
  constexpr int kVictim = 1;
  const StoreProcess store;
  const auto ends = run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say& say) {
    ProcessGroup group = ProcessGroup::connect(test::over(backend));
    std::vector<float> data(3 << 20);
    std::vector<float> all(data.size() * 3);
    std::vector<float> others(all.size());
    const auto operate = [&] {
      if (operation == 0) group.all_reduce(data);
      if (operation == 1) group.broadcast(data, kVictim);
      if (operation == 2) group.all_gather(data, all);
      if (operation == 3) group.all_to_all(all, others);
    };
    group.barrier();
    // The operations take some milliseconds each, and follow each other without a pause.
    std::thread killer;
    if (rank == kVictim)
      killer = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(40 + 7 * operation));
        raise(SIGKILL);
      });
    say(error_and_peer_of([&] {
      while (true) operate();
    }));
    if (killer.joinable()) killer.join();
  });
  for (int rank = 0; rank < 3; ++rank) {
    const RankEnd& end = ends[static_cast<std::size_t>(rank)];
    INFO(backend << ", operation " << operation << ", rank " << rank << ": " << end.said);
    CHECK(end.signal == (rank == kVictim ? SIGKILL : 0));
    if (rank != kVictim) CHECK_THAT(end.said, ContainsSubstring("peer lost peer=1"));
  }
}

TEST_CASE("an idle rank detects a killed peer at its next operation") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 2, .port = store.port()}, [](int rank, const Say& say) {
    ProcessGroup group = ProcessGroup::connect();
    group.barrier();
    if (rank == 1) raise(SIGKILL);
    std::vector<float> data(10);
    say(error_and_peer_of([&] { group.recv(data, 1); }));
  });
  CHECK(ends[0].exit_code == 0);
  CHECK_THAT(ends[0].said,
             ContainsSubstring("peer lost peer=1: rank 0: recv(f32 x 10, from rank 1)"));
}

TEST_CASE("a late rank is a timeout for all waiting ranks, after the first one's limit") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 3, .port = store.port()}, [](int rank, const Say& say) {
    ProcessGroup group = ProcessGroup::connect();
    group.barrier();
    std::vector<float> data(1000);
    const auto began = Clock::now();
    if (rank == 2) {  // starts only after the others have timed out
      say(error_and_peer_of([&] { group.recv(data, 0, 5); }));
      return;
    }
    const std::chrono::milliseconds limit(rank == 0 ? 500 : 20000);
    say(error_and_peer_of([&] { group.all_reduce(data, {limit}); }));
    const auto took = Clock::now() - began;
    // Rank 1 can begin its call long after rank 0.
    const bool is_early = rank == 0 && took < std::chrono::milliseconds(450);
    if (is_early || took > test::scaled(seconds(15))) say("at the wrong time");
    say(error_and_peer_of([&] { group.barrier(); }));
  });
  check_exited(ends);
  check_said(ends, "timeout peer=2: rank ");
  check_said(ends, "rank 2 did not come in time (500 ms)");
  CHECK_THAT(ends[0].said,
             ContainsSubstring("broken peer=2: rank 0: barrier(): the group is broken since "
                               "rank 0's all_reduce(f32 x 1000, sum)"));
  CHECK_THAT(ends[1].said, ContainsSubstring("rank 0's all_reduce(f32 x 1000, sum) failed first"));
  CHECK_THAT(ends[0].said, !ContainsSubstring("at the wrong time"));
  CHECK_THAT(ends[1].said, !ContainsSubstring("at the wrong time"));
}

TEST_CASE("two ranks that send to each other first time out instead of hanging") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 2, .port = store.port()}, [](int rank, const Say& say) {
    InitOptions options;
    options.timeout = std::chrono::milliseconds(400);
    ProcessGroup group = ProcessGroup::connect(options);
    std::vector<float> data(100'000);  // too large to be buffered before the receiver is ready
    say(error_and_peer_of([&] { group.send(data, 1 - rank); }));
  });
  check_exited(ends);
  check_said(ends, "timeout peer=");
}

TEST_CASE("a failed message wakes this rank's other thread from its collective") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 2, .port = store.port()}, [](int rank, const Say& say) {
    ProcessGroup group = ProcessGroup::connect({.timeout = seconds(30)});
    std::vector<float> data(10);
    if (rank == 1) {
      say(error_and_peer_of([&] { group.recv(data, 0, 3, {seconds(20)}); }));
      return;
    }
    std::string of_collective;
    std::thread collective([&] { of_collective = error_and_peer_of([&] { group.barrier(); }); });
    say(error_and_peer_of([&] { group.recv(data, 1, 4, {std::chrono::milliseconds(300)}); }));
    collective.join();
    say(of_collective);
  });
  check_exited(ends);
  CHECK_THAT(ends[0].said,
             ContainsSubstring("timeout peer=1: rank 0: recv(f32 x 10, from rank 1)"));
  CHECK_THAT(ends[0].said, ContainsSubstring("timeout peer=1: rank 0: barrier()"));
  CHECK(ends[0].took < test::scaled(seconds(10)));
  CHECK(ends[1].took < test::scaled(seconds(10)));
}

TEST_CASE("after a failure the same processes can form a new group") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 3, .port = store.port()}, [](int rank, const Say& say) {
    for (int turn = 0; turn < 2; ++turn) {
      ProcessGroup group = ProcessGroup::connect();
      std::vector<float> data(rank == 0 ? 3 : 4);
      say(error_and_peer_of([&] { group.all_reduce(data); }));
    }
    ProcessGroup group = ProcessGroup::connect();
    std::vector<int> ones{1};
    group.all_reduce(ones);
    if (ones[0] != 3) throw std::runtime_error("wrong sum");
    group.barrier();
  });
  check_exited(ends);
}

TEST_CASE("invalid arguments are rejected at once and change nothing") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 2, .port = store.port()}, [](int rank, const Say& say) {
    ProcessGroup group = ProcessGroup::connect();
    std::vector<float> data(4);
    say(error_and_peer_of([&] { group.broadcast(data, 2); }));
    say(error_and_peer_of([&] { group.broadcast(data, -1); }));
    say(error_and_peer_of([&] { group.send(data, rank); }));
    say(error_and_peer_of([&] { group.recv(data, 7); }));
    say(error_and_peer_of([&] { group.send(data, 1 - rank, -1); }));
    say(error_and_peer_of([&] { group.barrier({seconds(0)}); }));
    say(error_and_peer_of([&] {
      group.all_reduce(Elements{nullptr, 4, DataType::F32}, ReduceOp::Sum);
    }));
    say(error_and_peer_of([&] {
      group.all_reduce(Elements{data.data(), ~std::size_t{0} / 2, DataType::F64}, ReduceOp::Sum);
    }));
    group.all_reduce(data);
    group.barrier();
  });
  check_exited(ends);
  check_said(ends, "broadcast(f32 x 4, root 2): root is rank 2, but ranks are 0 to 1");
  check_said(ends, "root is rank -1");
  check_said(ends, "a rank cannot exchange with itself");
  check_said(ends, "the peer is rank 7, but ranks are 0 to 1");
  check_said(ends, "tag -1 is not from 0 to 1048575");
  check_said(ends, "a timeout of 0 ms leaves no time");
  check_said(ends, "the data is a null pointer");
  check_said(ends, "that many elements do not fit into memory");
}

}  // namespace drun
