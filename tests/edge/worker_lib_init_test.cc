#include <signal.h>
#include <unistd.h>

#include <stdexcept>
#include <thread>
#include <vector>

#include "drun/process_group.h"
#include "tests/support/catch.h"
#include "tests/support/in_rank.h"
#include "tests/support/machine.h"
#include "tests/support/process.h"
#include "tests/support/ranks.h"

namespace drun {
namespace {

using std::chrono::seconds;
using test::check_exited;
using test::free_port;
using test::RankEnd;
using test::run_ranks;
using test::Say;
using test::StoreProcess;

void count_ranks(ProcessGroup& group) {
  std::vector<int> ones{1};
  group.all_reduce(ones);
  if (ones[0] != group.size()) throw std::runtime_error("wrong count of ranks");
  group.barrier();
}

}  // namespace

TEST_CASE("without an agent's store rank 0 hosts one") {
  check_exited(
      run_ranks({.size = 3, .port = free_port(), .has_agent_store = false}, [](int, const Say&) {
        ProcessGroup group = ProcessGroup::connect();
        count_ranks(group);
      }));
}

TEST_CASE("tcp:// needs no environment variables") {
  const std::string address = "tcp://127.0.0.1:" + std::to_string(free_port());
  check_exited(run_ranks({.size = 2}, [&address](int rank, const Say&) {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK",
                             "LOCAL_WORLD_SIZE", "TORCHELASTIC_USE_AGENT_STORE"}) {
      unsetenv(name);
    }
    ProcessGroup group = ProcessGroup::connect(
        {.init_method = address + "?rank=" + std::to_string(rank) + "&world_size=2"});
    count_ranks(group);
  }));
}

TEST_CASE("file:// needs no store and removes its data") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.file("job");
  const auto run = [&path] {
    return run_ranks({.size = 3}, [&path](int rank, const Say&) {
      for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK",
                               "LOCAL_WORLD_SIZE", "TORCHELASTIC_USE_AGENT_STORE"}) {
        unsetenv(name);
      }
      ProcessGroup group = init_process_group(
          {.init_method = "file://" + path + "?rank=" + std::to_string(rank) + "&world_size=3"});
      count_ranks(group);
      group.barrier();
      destroy_process_group();
    });
  };
  check_exited(run());
  CHECK(testing::read_file(path).empty());
  check_exited(run());
}

TEST_CASE("init_process_group with a stale file fails on every rank") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.file("job");
  const InitOptions options{.init_method = "file://" + path};
  for (const RankEnd& end : run_ranks({.size = 2}, [&](int, const Say&) {
         ProcessGroup group = init_process_group(options);
         group.barrier();
         kill(getpid(), SIGKILL);
       })) {
    CHECK(end.signal == SIGKILL);
  }
  const auto ends = run_ranks({.size = 2}, [&](int, const Say&) { init_process_group(options); });
  check_exited(ends, 1);
  for (const RankEnd& end : ends) {
    CHECK_THAT(end.said, ContainsSubstring(path + " is left from an earlier run"));
    CHECK(end.took < test::scaled(seconds(20)));
  }
}

TEST_CASE("a group of one rank needs neither store nor peers") {
  check_exited(run_ranks({.size = 1, .port = 1}, [](int, const Say&) {
    ProcessGroup group = ProcessGroup::connect();
    count_ranks(group);
  }));
}

TEST_CASE("ranks can be threads that share a store in memory") {
  const auto store = make_memory_key_store();
  std::vector<std::thread> ranks;
  std::vector<std::string> errors(3);
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([rank, &store, &error = errors[static_cast<std::size_t>(rank)]] {
      try {
        InitOptions options;
        options.rank = rank;
        options.world_size = 3;
        options.store = store;
        ProcessGroup group = ProcessGroup::connect(options);
        count_ranks(group);
      } catch (const std::exception& caught) {
        error = caught.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const std::string& error : errors) CHECK(error.empty());
}

TEST_CASE("the error of a rank that times out names the missing ranks") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 4, .port = store.port()}, [](int rank, const Say& say) {
    if (rank == 1 || rank == 3) return;
    try {
      ProcessGroup::connect({.timeout = std::chrono::milliseconds(700)});
    } catch (const WorkerError& error) {
      say(std::string(to_string(error.kind())) + ": " + error.what());
    }
  });
  check_exited(ends);
  for (const std::size_t rank : {0u, 2u}) {
    CHECK_THAT(ends[rank].said, ContainsSubstring("timeout: rank "));
    CHECK_THAT(ends[rank].said,
               ContainsSubstring("of 4 ranks, these have not arrived: ranks 1, 3"));
  }
}

TEST_CASE("the error about an unreachable store names its address") {
  const auto ends = run_ranks({.size = 2, .port = free_port()}, [](int, const Say& say) {
    try {
      ProcessGroup::connect({.timeout = std::chrono::milliseconds(300)});
    } catch (const WorkerError& error) {
      say(std::string(to_string(error.kind())) + ": " + error.what());
    }
  });
  check_exited(ends);
  for (const RankEnd& end : ends) {
    CHECK_THAT(end.said, ContainsSubstring("store: rank "));
    CHECK_THAT(end.said, ContainsSubstring("127.0.0.1"));
  }
}

TEST_CASE(
    "the network interface can be chosen, and the error about an unknown one lists the known "
    "ones") {
  const StoreProcess store;
  const std::string name = GENERATE("lo", "nosuch0");
  const auto ends = run_ranks(
      {.size = 2, .port = store.port(), .environment = {{"GLOO_SOCKET_IFNAME", name}}},
      [](int, const Say&) {
        ProcessGroup group = ProcessGroup::connect({.backend = "gloo", .timeout = seconds(10)});
        count_ranks(group);
      });
  check_exited(ends, name == "lo" ? 0 : 1);
  if (name == "lo") return;
  for (const RankEnd& end : ends) {
    CHECK_THAT(end.said, ContainsSubstring("network interface \"nosuch0\" has no address"));
    CHECK_THAT(end.said, ContainsSubstring("lo"));
  }
}

TEST_CASE("a worker without the launcher's variables reports the missing variable") {
  const auto ends = run_ranks({.size = 1}, [](int, const Say&) {
    unsetenv("WORLD_SIZE");
    ProcessGroup::connect();
  });
  check_exited(ends, 1);
  CHECK_THAT(ends[0].said, ContainsSubstring("WORLD_SIZE is not set"));
}

}  // namespace drun
