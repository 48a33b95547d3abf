#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "drun/error.h"
#include "drun/key_store.h"
#include "drun/process_group.h"
#include "drun/spawn.h"
#include "tests/support/catch.h"
#include "tests/support/default_sigterm.h"
#include "tests/support/machine.h"
#include "tests/support/process.h"
#include "worker_lib/start/processes.h"

namespace drun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::TemporaryDirectory;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::shared_ptr<KeyStore> own_store() {
  return connect_key_store(variable("MASTER_ADDR"),
                           static_cast<std::uint16_t>(std::stoi(variable("MASTER_PORT"))),
                           seconds(20));
}

void sleep_for_ever() {
  while (true) pause();
}

// Spawns and returns the exception.
SpawnError failure_of(const std::function<void(int)>& body, int process_count,
                      const SpawnOptions& options = {}) {
  const test::DefaultSigterm default_sigterm;
  try {
    spawn(body, process_count, options);
  } catch (const SpawnError& error) {
    return error;
  }
  throw std::runtime_error("spawn threw nothing");
}

std::string refusal_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const WorkerError& error) {
    return std::string(to_string(error.kind())) + ": " + error.what();
  }
  return "no error";
}

// A pipe whose read end reports when no process has the write end open.
class Witness {
 public:
  Witness() {
    if (pipe(ends_.data()) != 0) throw std::runtime_error("no pipe");
  }
  ~Witness() {
    close(ends_[0]);
    close(ends_[1]);
  }
  void say_one_is_there() const {
    if (write(ends_[1], "x", 1) != 1) std::abort();
  }
  bool has_come(milliseconds at_most) const {
    char one = 0;
    return poll_in(at_most) && read(ends_[0], &one, 1) == 1;
  }
  bool are_all_gone(milliseconds at_most) {
    close(ends_[1]);
    ends_[1] = -1;
    char one = 0;
    return poll_in(at_most) && read(ends_[0], &one, 1) == 0;
  }

 private:
  bool poll_in(milliseconds at_most) const {
    pollfd waiting{.fd = ends_[0], .events = POLLIN, .revents = 0};
    return poll(&waiting, 1, static_cast<int>(at_most.count())) > 0;
  }
  std::array<int, 2> ends_{-1, -1};
};

}  // namespace

TEST_CASE("spawned ranks have the launcher's variables and share a store") {
  setenv("TORCHELASTIC_RUN_ID", "of the parent", 1);
  const TemporaryDirectory directory;
  spawn(
      [&](int rank) {
        const auto store = own_store();
        store->set("from/" + std::to_string(rank), variable("RANK"), seconds(20));
        for (int other = 0; other < 3; ++other) {
          store->wait({"from/" + std::to_string(other)}, seconds(20));
        }
        std::ofstream(directory.file(std::to_string(rank)))
            << variable("LOCAL_RANK") << variable("WORLD_SIZE") << variable("LOCAL_WORLD_SIZE")
            << variable("TORCHELASTIC_USE_AGENT_STORE") << is_launched_by_agent();
      },
      3);
  CHECK(testing::read_file(directory.file("0")) == "033True0");
  CHECK(testing::read_file(directory.file("2")) == "233True0");
  CHECK(variable("RANK").empty());
  unsetenv("TORCHELASTIC_RUN_ID");
}

TEST_CASE("a program can spawn again and again") {
  for (int i = 0; i < 3; ++i) {
    spawn([](int) { own_store()->add("here", 1, seconds(20)); }, 2);
  }
}

TEST_CASE("a joined thread does not prevent spawn") {
  for (int i = 0; i < 3000; ++i) {
    std::thread([] {}).join();
    REQUIRE(worker::running_threads() == 1);
  }
}

TEST_CASE("the first exception is thrown in the parent, and the others are stopped") {
  const auto began = std::chrono::steady_clock::now();
  const SpawnError error = failure_of(
      [](int rank) {
        if (rank == 1) throw std::runtime_error("no more data");
        sleep_for_ever();
      },
      3);
  CHECK(error.rank() == 1);
  CHECK(error.exit_code() == 1);
  CHECK_FALSE(error.signal());
  CHECK(error.message() == "no more data");
  CHECK(std::string(error.what()) == "rank 1 failed with exit code 1: no more data");
  CHECK(std::chrono::steady_clock::now() - began < test::scaled(seconds(8)));
}

TEST_CASE("the error about a killed rank names the signal") {
  const SpawnError error = failure_of(
      [](int rank) {
        if (rank == 0) raise(SIGKILL);
        sleep_for_ever();
      },
      2);
  CHECK(error.rank() == 0);
  CHECK(error.signal() == SIGKILL);
  CHECK(std::string(error.what()) == "rank 0 was killed by signal 9 (Killed)");
}

TEST_CASE("a nonzero exit code of a rank is a failure") {
  CHECK(failure_of([](int rank) { _exit(rank == 1 ? 7 : 0); }, 2).exit_code() == 7);
  spawn([](int) { _exit(0); }, 2);
}

TEST_CASE("any exception is reported, as far as it has a message") {
  const SpawnError strange = failure_of([](int) { throw 3; }, 1);
  CHECK(strange.message() == "an exception that is not a std::exception");
  const SpawnError nested = failure_of(
      [](int) {
        try {
          throw std::runtime_error("disk full");
        } catch (...) {
          std::throw_with_nested(std::runtime_error("cannot save"));
        }
      },
      1);
  CHECK(nested.message() == "cannot save; caused by: disk full");
  const SpawnError lengthy =
      failure_of([](int) { throw std::runtime_error(std::string(100'000, 'x')); }, 1);
  CHECK(lengthy.message().size() > 4000);
  CHECK(lengthy.message().size() <= 4096);
}

TEST_CASE("a rank that ignores SIGTERM is killed after the grace period") {
  const Witness witness;
  SpawnOptions options;
  options.grace = milliseconds(100);
  const SpawnError error = failure_of(
      [&](int rank) {
        const auto store = own_store();
        if (rank == 0) {
          signal(SIGTERM, SIG_IGN);
          store->set("deaf", "", seconds(20));
          sleep_for_ever();
        }
        store->wait({"deaf"}, seconds(20));
        throw std::runtime_error("enough");
      },
      2, options);
  CHECK(error.rank() == 1);
}

TEST_CASE("with the longest grace period a rank has the time that it needs") {
  const Witness witness;
  SpawnOptions options;
  options.grace = milliseconds::max();
  failure_of(
      [&](int rank) {
        const auto store = own_store();
        if (rank == 0) {
          sigset_t term;
          sigemptyset(&term);
          sigaddset(&term, SIGTERM);
          sigprocmask(SIG_BLOCK, &term, nullptr);
          store->set("ready", "", seconds(20));
          sigwaitinfo(&term, nullptr);
          std::this_thread::sleep_for(milliseconds(300));
          witness.say_one_is_there();
          return;
        }
        store->wait({"ready"}, seconds(20));
        throw std::runtime_error("enough");
      },
      2, options);
  CHECK(witness.has_come(milliseconds(0)));
}

TEST_CASE("no rank survives the program that spawned it") {
  Witness witness;
  const pid_t parent = fork();
  REQUIRE(parent >= 0);
  if (parent == 0) {
    spawn(
        [&](int) {
          witness.say_one_is_there();
          sleep_for_ever();
        },
        2);
  }
  CHECK(witness.has_come(seconds(20)));
  CHECK(witness.has_come(seconds(20)));
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  CHECK(witness.are_all_gone(seconds(20)));
}

TEST_CASE("buffered output is written once, and standard input is empty") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("out");
  const int saved = dup(STDOUT_FILENO);
  std::cout.flush();
  std::fflush(stdout);
  REQUIRE(std::freopen(path.c_str(), "w", stdout) != nullptr);
  std::printf("before ");
  spawn(
      [](int) {
        std::printf("printf ");
        std::cout << "cout ";
        if (std::getchar() != EOF) std::printf("input ");
      },
      1);
  std::printf("after");
  std::fflush(stdout);
  dup2(saved, STDOUT_FILENO);
  close(saved);
  const std::string said = testing::read_file(path);
  CHECK((said == "before printf cout after" || said == "before cout printf after"));
}

TEST_CASE("unsupported calls of spawn are rejected before any process starts") {
  CHECK_THAT(refusal_of([] { spawn([](int) {}, 0); }),
             ContainsSubstring("usage: spawn: 0 processes"));
  CHECK_THAT(refusal_of([] { spawn([](int) {}, 1'000'000); }), ContainsSubstring("1 to 4096"));
  signal(SIGCHLD, SIG_IGN);
  CHECK_THAT(refusal_of([] { spawn([](int) {}, 1); }), ContainsSubstring("SIGCHLD is ignored"));
  signal(SIGCHLD, SIG_DFL);

  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::thread other([&] { const std::lock_guard held(mutex); });
  CHECK_THAT(refusal_of([] { spawn([](int) {}, 1); }), ContainsSubstring("threads"));
  lock.unlock();
  other.join();
  spawn([](int) {}, 1);
}

}  // namespace drun
