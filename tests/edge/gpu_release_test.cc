// Tests the wait for the release of GPU memory by exited workers, with a stand-in for NVML.
#include "agent/workers/gpu_release.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/event_loop.h"
#include "tests/support/places.h"
#include "tests/support/process.h"

namespace drun::agent {
namespace {

using namespace std::chrono_literals;

const std::string kLibrary = testing::built("standin/nvml/libnvidia-ml.so.1");

// Two GPUs; the listed processes use the first.
class Gpus {
 public:
  Gpus() {
    ::setenv("DRUN_TEST_NVML", "gpu 3b GPU-a; gpu 5e GPU-b", 1);
    ::setenv("DRUN_TEST_NVML_PROCESSES", path().c_str(), 1);
  }
  ~Gpus() {
    ::unsetenv("DRUN_TEST_NVML");
    ::unsetenv("DRUN_TEST_NVML_PROCESSES");
  }
  Gpus(const Gpus&) = delete;
  Gpus& operator=(const Gpus&) = delete;
  // Replaces the file atomically, because the library can read it at any time.
  void list(const std::string& pids) const {
    std::ofstream(path() + ".new") << pids;
    std::filesystem::rename(path() + ".new", path());
  }

 private:
  std::string path() const { return directory_.path() + "/processes"; }
  testing::TemporaryDirectory directory_;
};

// Returns the pid of a process that has exited.
int gone_pid() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return child;
}

struct Waiting {
  explicit Waiting(const std::string& library = kLibrary) : release(io, Log(), library) {}
  void begin(std::vector<int> pids, std::chrono::milliseconds at_most) {
    release.wait(std::move(pids), at_most, [this](const std::string& text) { unfreed = text; });
  }
  bool ends() {
    return test::run_until(io, [this] { return unfreed.has_value(); });
  }
  asio::io_context io;
  GpuRelease release;
  std::optional<std::string> unfreed;
};

}  // namespace

TEST_CASE("a restart waits until the driver no longer lists the old workers") {
  const Gpus gpus;
  const int pid = gone_pid();
  gpus.list("1 " + std::to_string(pid));
  Waiting waiting;
  waiting.begin({pid}, 60s);
  CHECK_FALSE(test::run_until(
      waiting.io, [&] { return waiting.unfreed.has_value(); }, 300ms));
  gpus.list("1");
  REQUIRE(waiting.ends());
  CHECK(*waiting.unfreed == "");
}

TEST_CASE("GPU memory that is not released in time is reported with its process") {
  const Gpus gpus;
  const int pid = gone_pid();
  gpus.list(std::to_string(pid));
  Waiting waiting;
  waiting.begin({pid, 1}, 100ms);
  REQUIRE(waiting.ends());
  CHECK_THAT(*waiting.unfreed, StartsWith("the GPU memory of pid " + std::to_string(pid)));
}

TEST_CASE("running processes and processes of other jobs are not waited for") {
  const Gpus gpus;
  gpus.list("1 " + std::to_string(getpid()));
  Waiting waiting;
  waiting.begin({getpid(), gone_pid()}, 60s);
  REQUIRE(waiting.ends());
  CHECK(*waiting.unfreed == "");
}

TEST_CASE("nothing is waited for without NVML or after a stop") {
  Waiting without("/nonexistent/libnvidia-ml.so.1");
  without.begin({gone_pid()}, 60s);
  REQUIRE(without.ends());
  CHECK(*without.unfreed == "");
  const Gpus gpus;
  const int pid = gone_pid();
  gpus.list(std::to_string(pid));
  Waiting waiting;
  waiting.begin({pid}, 60s);
  waiting.release.stop();
  CHECK(waiting.unfreed == "");
}

}  // namespace drun::agent
