#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "rendezvous/base/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/few_descriptors.h"
#include "tests/support/machine.h"
#include "tests/support/shm_ranks.h"
#include "worker_lib/base/unix_socket.h"
#include "worker_lib/shm/connect.h"
#include "worker_lib/shm/rounds.h"
#include "worker_lib/shm/segment.h"
#include "worker_lib/shm/shm_backend.h"

namespace drun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::all_reduce_of;
using test::check_exited;
using test::failure_of;
using test::finish;
using test::RankEnd;
using test::run_ranks;
using test::run_shm_processes;
using test::Say;
using test::shm_context;
using test::ShmRank;
using test::soon;
using test::StoreProcess;
using Clock = std::chrono::steady_clock;

std::string took(Clock::time_point began, milliseconds limit) {
  return Clock::now() - began < test::scaled(limit) ? "in time" : "too late";
}

// Runs groups of ranks that do not all reach a last barrier.
std::vector<RankEnd> run_failing(int size, const test::ShmBody& body) {
  const StoreProcess store;
  return run_ranks({.size = size, .port = store.port()}, [&](int rank, const Say& say) {
    ShmRank self(worker::connect_shm(shm_context(rank, size, store.port())), rank, size);
    body(self, say);
  });
}

// The setting belongs to the pid namespace, so nothing outside the child changes.
bool refuse_executable_memory() {
  std::ofstream setting("/proc/sys/vm/memfd_noexec");
  setting << 2 << std::flush;
  return setting.good();
}

// Runs the function in a process of a new pid namespace. Returns its result, or nothing if no
// namespace can be created.
std::optional<int> in_pid_namespace(const std::function<int()>& action) {
  constexpr int kNoNamespace = 77;
  const auto exit_code = [](pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  };
  const pid_t outer = fork();
  if (outer == 0) {
    if (unshare(CLONE_NEWPID) != 0) _exit(kNoNamespace);
    const pid_t inner = fork();
    if (inner == 0) _exit(action());
    _exit(exit_code(inner));
  }
  const int code = exit_code(outer);
  return code == kNoNamespace ? std::nullopt : std::optional(code);
}

}  // namespace

TEST_CASE("shared memory is created where the kernel refuses executable memory") {
  constexpr int kNoSetting = 78;
  const std::optional<int> code = in_pid_namespace([] {
    if (!refuse_executable_memory()) return kNoSetting;
    try {
      const UniqueFd memory = worker::shm::create_memory(4096);
      const worker::shm::Mapping mapping(memory.get(), 0, 4096);
      return 0;  // Linux 6.6 and later seal memory that is created without the flag
    } catch (const BackendFailure&) {
      return 1;
    }
  });
  if (!code || *code == kNoSetting) {
    WARN("skipped: vm.memfd_noexec cannot be set here (Linux 6.3, root)");
    return;
  }
  CHECK(*code == 0);
  constexpr int kSealExec = 0x20;  // F_SEAL_EXEC, which glibc before 2.38 lacks
  const UniqueFd memory = worker::shm::create_memory(4096);
  CHECK((fcntl(memory.get(), F_GET_SEALS) & kSealExec) != 0);
}

TEST_CASE("shared memory: every other rank's operation fails at once and names a killed rank") {
  const int victim = GENERATE(0, 2);
  const std::size_t count = GENERATE(1u, 2u << 20);
  const auto ends = run_failing(4, [&](ShmRank& self, const Say& say) {
    std::vector<float> data(count);
    for (int turn = 0; turn < 3; ++turn) self.run(all_reduce_of(data));
    if (self.rank() == victim) raise(SIGKILL);
    const auto began = Clock::now();
    say(self.failure_of([&] { self.run(all_reduce_of(data)); }));
    say(took(began, seconds(5)));
    say("then " + self.failure_of([&] { self.run(all_reduce_of(data)); }));
  });
  for (int rank = 0; rank < 4; ++rank) {
    const RankEnd& end = ends[static_cast<std::size_t>(rank)];
    INFO("rank " << rank << " said: " << end.said << " signal " << end.signal);
    if (rank == victim) {
      CHECK(end.signal == SIGKILL);
      continue;
    }
    CHECK(end.exit_code == 0);
    const std::string name = std::to_string(victim);
    CHECK_THAT(end.said, ContainsSubstring("peer lost " + name + ": lost rank " + name +
                                           ": its process ended\nin time"));
    CHECK_THAT(end.said, ContainsSubstring("then "));
    CHECK_THAT(end.said, !ContainsSubstring("then no failure"));
  }
}

// With 16 MB the ranks read from each other's memory, which disappears with the process.
TEST_CASE("shared memory: a rank that is killed at any point of a long sum is named") {
  for (int moment = 0; moment < 20; ++moment) {
    const auto ends = run_failing(2, [moment](ShmRank& self, const Say& say) {
      std::vector<float> data(4U << 20);
      self.run(all_reduce_of(data));
      std::thread killer;
      if (self.rank() == 1) {
        killer = std::thread([moment] {
          std::this_thread::sleep_for(std::chrono::microseconds(200 * moment));
          kill(getpid(), SIGKILL);
        });
      }
      say(self.failure_of([&] {
        while (true) self.run(all_reduce_of(data));
      }));
      if (killer.joinable()) killer.join();
    });
    INFO("moment " << moment << ", rank 0 said: " << ends[0].said);
    CHECK(ends[0].exit_code == 0);
    CHECK_THAT(ends[0].said, ContainsSubstring("peer lost 1: lost rank 1: its process ended"));
    CHECK(ends[1].signal == SIGKILL);
  }
}

TEST_CASE("shared memory: a rank that ends after its last operation is not a failure") {
  const auto ends = run_failing(3, [](ShmRank& self, const Say&) {
    std::vector<float> data(1000, 1.0f);
    self.run(all_reduce_of(data));
    if (data[999] != 3) throw std::runtime_error("wrong sum");
    std::vector<float> one(1);
    if (self.rank() == 2) self.send(one, 0, 7);
    if (self.rank() == 2) return;
    // The other ranks still exchange messages, and read those that rank 2 sent.
    if (self.rank() == 1) self.recv(one, 0, 8);
    if (self.rank() == 0) {
      self.recv(one, 2, 7);
      self.send(one, 1, 8);
    }
  });
  check_exited(ends);
}

TEST_CASE("shared memory: a send to or a receive from a lost rank fails and names it") {
  const auto ends = run_failing(3, [](ShmRank& self, const Say& say) {
    self.barrier();
    if (self.rank() == 1) raise(SIGKILL);
    std::vector<float> data(self.rank() == 0 ? 1 : 1 << 20);
    const auto began = Clock::now();
    if (self.rank() == 0) say(self.failure_of([&] { self.recv(data, 1); }));
    if (self.rank() == 2) say(self.failure_of([&] { self.send(data, 1); }));
    say(took(began, seconds(5)));
  });
  CHECK_THAT(ends[0].said,
             ContainsSubstring("peer lost 1: lost rank 1: its process ended\nin time"));
  CHECK_THAT(ends[2].said,
             ContainsSubstring("peer lost 1: lost rank 1: its process ended\nin time"));
}

TEST_CASE("shared memory: a receive from any rank fails if its sender is killed halfway") {
  const auto ends = run_shm_processes(
      3,
      [](ShmRank& self, const Say& say) {
        std::vector<float> data(4U << 20);
        std::unique_ptr<Transfer> message;
        if (self.rank() == 0) message = self.backend().start_recv(data, std::nullopt, 0);
        self.barrier();
        if (self.rank() == 1) {
          message = self.backend().start_send(data, 0, 0);
          raise(SIGKILL);
        }
        if (self.rank() == 2) return say(self.failure_of([&] { self.recv(data, 0); }));
        const auto began = Clock::now();
        say(self.failure_of([&] { finish(message); }));
        say(took(began, seconds(5)));
      },
      /*reads_peers=*/false);
  CHECK_THAT(ends[0].said,
             ContainsSubstring("peer lost 1: lost rank 1: its process ended\nin time"));
}

TEST_CASE("shared memory: abort wakes all waiting threads of this rank and of the others") {
  const auto ends = run_failing(3, [](ShmRank& self, const Say& say) {
    self.barrier();
    std::vector<float> data(10);
    const auto began = Clock::now();
    if (self.rank() == 2) {
      say(self.failure_of([&] { self.recv(data, 0); }));
    } else if (self.rank() == 1) {
      say(self.failure_of([&] { self.run(all_reduce_of(data)); }));
    } else {
      std::thread waiting([&] { say(self.failure_of([&] { self.run(all_reduce_of(data)); })); });
      say(self.failure_of(
          [&] { self.backend().start_recv(data, 1, 3)->finish(soon(milliseconds(50))); }));
      waiting.join();
      say(self.failure_of([&] { self.backend().start_recv(data, 1, 3); }));
    }
    say(took(began, seconds(5)));
  });
  check_exited(ends);
  CHECK_THAT(ends[0].said, ContainsSubstring("broken: another operation of this rank has failed"));
  CHECK_THAT(ends[0].said, ContainsSubstring("timeout 1: no message came in time"));
  CHECK_THAT(ends[1].said, ContainsSubstring("peer lost 0: rank 0 left the group\nin time"));
  CHECK_THAT(ends[2].said, ContainsSubstring("peer lost 0: rank 0 left the group\nin time"));
}

TEST_CASE("shared memory: a late rank is named after the timeout, and not before") {
  const auto ends = run_failing(4, [](ShmRank& self, const Say& say) {
    self.barrier();
    std::vector<float> data(10);
    if (self.rank() % 2 == 1) {  // starts only after the others have timed out
      say(self.failure_of([&] { self.recv(data, 0, 5); }));
      return;
    }
    const auto began = Clock::now();
    const milliseconds limit(self.rank() == 0 ? 300 : 20000);
    say(self.failure_of([&] { self.backend().run(all_reduce_of(data), self.turn(limit)); }));
    if (self.rank() == 0 && Clock::now() - began < limit) say("too early");
    say(took(began, seconds(10)));
  });
  check_exited(ends);
  CHECK_THAT(ends[0].said, ContainsSubstring("timeout: ranks 1, 3 did not come in time\nin time"));
  CHECK_THAT(ends[2].said, ContainsSubstring("peer lost 0: rank 0 left the group\nin time"));
  CHECK_THAT(ends[1].said, ContainsSubstring("peer lost 0: rank 0 left the group"));
}

TEST_CASE("shared memory: a timeout of a few milliseconds is exact") {
  const milliseconds limit(GENERATE(1, 2, 3));
  const bool is_message = GENERATE(true, false);
  const auto ends = run_failing(2, [&](ShmRank& self, const Say& say) {
    self.barrier();
    std::vector<float> data(10);
    if (self.rank() == 1) return say(self.failure_of([&] { self.recv(data, 0, 5); }));
    const auto began = Clock::now();
    say(self.failure_of([&] {
      if (is_message) {
        self.backend().start_recv(data, 1, 3)->finish(soon(limit));
      } else {
        self.backend().run(all_reduce_of(data), self.turn(limit));
      }
    }));
    say(Clock::now() - began < limit ? "too early" : "after its limit");
  });
  check_exited(ends);
  CHECK_THAT(ends[0].said, ContainsSubstring("timeout") && ContainsSubstring("after its limit"));
}

TEST_CASE("shared memory: a rank that never connects is named by all others") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 4, .port = store.port()}, [&](int rank, const Say& say) {
    if (rank == 2) return;
    const BackendContext context = shm_context(rank, 4, store.port(), milliseconds(400));
    say(failure_of([&] { worker::connect_shm(context); }));
  });
  for (const int rank : {0, 1, 3}) {
    CHECK_THAT(ends[static_cast<std::size_t>(rank)].said,
               ContainsSubstring("rank 2 did not come to share memory with rank 0"));
    CHECK_THAT(ends[static_cast<std::size_t>(rank)].said, ContainsSubstring("timeout"));
  }
}

TEST_CASE("shared memory: a rank that ends while another has not connected is named by all") {
  const StoreProcess store;
  const bool can_confirm = GENERATE(false, true);
  const auto ends = run_ranks({.size = 4, .port = store.port()}, [&](int rank, const Say& say) {
    if (rank == 3) return;  // never connects
    BackendContext context = shm_context(rank, 4, store.port());
    if (rank == 0) {
      if (can_confirm) {
        context.ended_rank = [](const std::vector<int>& asked) {
          return asked == std::vector<int>{2} ? std::optional<int>(2) : std::nullopt;
        };
      }
      return say(failure_of([&] { worker::shm::connect_ranks(context, 4096); }));
    }
    const std::string name = context.store->get("shm", seconds(20));
    const UniqueFd leader = worker::unix_socket::connect_to(name, context.deadline);
    const worker::shm::Hello hello{
        .rank = static_cast<std::uint32_t>(rank), .size = 4, .segment_bytes = 4096, .cores = {}};
    if (rank == 1) context.store->set("rank 1 has called", "", seconds(20));
    if (rank == 2) context.store->get("rank 1 has called", seconds(20));
    worker::unix_socket::send_message(leader.get(), to_text(hello));
    if (rank == 2) return;  // its process ends
    worker::unix_socket::await_readable({leader.get()}, context.deadline);
    const auto message = worker::unix_socket::receive_message(leader.get());
    if (!message) return say("no answer");
    const worker::shm::Answer answer = worker::shm::parse_answer(message->text, 0);
    say(std::to_string(answer.lost) +
        (answer.kind == worker::shm::Answer::Kind::Lost ? " lost" : ""));
  });
  CHECK_THAT(ends[0].said,
             StartsWith("peer lost 2: the process of rank 2 ended before it had connected"));
  CHECK(ends[1].said == "2 lost\n");
}

TEST_CASE("shared memory: a rank that gives up early does not count as ended") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say& say) {
    if (rank == 2) return;  // never connects
    BackendContext context = shm_context(rank, 3, store.port(), milliseconds(20'000));
    if (rank == 0) context.ended_rank = [](const std::vector<int>&) { return std::nullopt; };
    if (rank == 1) context.store->get("shm", seconds(20));
    if (rank == 1) context.deadline = Clock::now() + milliseconds(1);
    say(failure_of([&] { worker::shm::connect_ranks(context, 4096); }));
  });
  CHECK_THAT(ends[0].said, StartsWith("timeout") && ContainsSubstring("rank 1 gave up before"));
  CHECK_THAT(ends[1].said, StartsWith("timeout"));
}

TEST_CASE("shared memory: a rank without descriptors reports the limit and blames no rank") {
  const int tight = GENERATE(0, 1);
  int failures = 0;
  for (std::string said; said != "no failure\n"; ++failures) {
    REQUIRE(failures < 20);
    const StoreProcess store;
    const auto ends = run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say& say) {
      BackendContext context = shm_context(rank, 3, store.port());
      if (rank != tight) {
        context.ended_rank = [&](const std::vector<int>&) {
          const bool has_ended = context.store->has("gone", seconds(20));
          return has_ended ? std::optional<int>(tight) : std::nullopt;
        };
        return say(failure_of([&] { worker::connect_shm(context); }));
      }
      // The store opens a connection for the first key that it waits for.
      if (rank != 0) context.store->get("shm", seconds(40));
      std::optional<test::FewDescriptors> few(failures);
      say(failure_of([&] { worker::connect_shm(context); }));
      few.reset();
      context.store->set("gone", "", seconds(20));
    });
    said = ends[static_cast<std::size_t>(tight)].said;
    INFO(failures << " more descriptors: " << said << ends[1].said << ends[2].said);
    if (said == "no failure\n") continue;
    CHECK_THAT(said, StartsWith("system: ") && ContainsSubstring(": Too many open files (limit ") &&
                         ContainsSubstring("); raise it with ulimit -n"));
    CHECK_THAT(said, !ContainsSubstring("gloo"));
  }
  CHECK(failures > 3);
}

TEST_CASE("shared memory: without rank 0 the other ranks time out and name it") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say& say) {
    if (rank == 0) return;
    const BackendContext context = shm_context(rank, 2, store.port(), milliseconds(300));
    say(failure_of([&] { worker::connect_shm(context); }));
  });
  CHECK_THAT(ends[1].said, ContainsSubstring("timeout 0: rank 0 did not come to share its memory"));
}

TEST_CASE("shared memory: unknown clients that send nothing or nonsense do not block the ranks") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say& say) {
    const BackendContext context = shm_context(rank, 3, store.port());
    std::vector<UniqueFd> strangers;
    if (rank == 1) {
      const std::string name = context.store->get("shm", seconds(20));
      for (const char* says : {"", "nonsense", "I am rank 1 really, believe me, let me in"}) {
        UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET, 0));
        sockaddr_un at{};
        at.sun_family = AF_UNIX;
        std::memcpy(at.sun_path + 1, name.data(), name.size());
        const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
        if (connect(fd.get(), reinterpret_cast<sockaddr*>(&at), size) != 0) say("not connected");
        if (*says != 0 && send(fd.get(), says, std::strlen(says), 0) < 0) say("not sent");
        strangers.push_back(std::move(fd));
      }
    }
    ShmRank self(worker::connect_shm(context), rank, 3);
    std::vector<float> data(3, 1.0f);
    self.run(all_reduce_of(data));
    say(std::to_string(data[2]));
    self.barrier();
  });
  for (const RankEnd& end : ends) CHECK(end.said == "3.000000\n");
}

TEST_CASE("shared memory: a wait ends at its deadline, however long other threads use the core") {
  worker::shm::WakeFlag bell{};
  const Clock::time_point began = Clock::now();
  const auto is_done = [] {
    std::this_thread::sleep_for(milliseconds(5));
    return false;
  };
  CHECK_FALSE(worker::shm::wait_at(bell, {}, began + milliseconds(50), is_done));
  CHECK(Clock::now() - began < seconds(3));
}

TEST_CASE(
    "shared memory: a rank that has reached a round and ended is not the cause of a failure") {
  using worker::shm::Segment;
  constexpr int kRanks = 64;  // so that it takes long to look at all of them
  for (int i = 0; i < 300; ++i) {
    const UniqueFd memory = worker::shm::create_memory(Segment::bytes_for(kRanks));
    const Segment segment(memory.get(), kRanks);
    worker::shm::AbortFlag abort_flag(segment, 0);
    worker::shm::Rounds rounds(segment, 0, {.looks = 1000}, abort_flag);
    const auto reach = [&](int rank) {
      segment.station(rank, 0).stamp.store(1);
      worker::shm::ring(segment.round_bell(rank));
    };
    std::thread others([&] {
      for (const int rank : {kRanks - 1, 2}) {
        reach(rank);
        abort_flag.tell_lost(rank);
        const auto until = Clock::now() + std::chrono::nanoseconds(i * 20);
        while (Clock::now() < until) continue;
      }
      for (int rank = 1; rank < kRanks; ++rank) reach(rank);
    });
    CHECK(failure_of([&] { rounds.meet(Clock::now() + seconds(40)); }) == "no failure");
    others.join();
  }
}

TEST_CASE("shared memory: rank 0 is connected to all other ranks, and they are to rank 0") {
  check_exited(run_shm_processes(3, [](ShmRank& self, const Say&) {
    const std::vector<Lifeline> lines = self.backend().lifelines();
    const std::size_t peers = self.rank() == 0 ? 2 : 1;
    if (lines.size() != peers) throw std::runtime_error(std::to_string(lines.size()));
    for (const Lifeline& line : lines) {
      if (self.rank() != 0 && line.rank != 0) throw std::runtime_error("not rank 0's");
    }
  }));
}

}  // namespace drun
