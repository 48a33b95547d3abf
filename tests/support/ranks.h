// edge. Ranks as child processes of a test, with a store, as an agent would set them up.
//
// Call it on the test's thread only: fork must not run beside other threads.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace drun::test {

// A store server in a separate process, on a free port of loopback.
class StoreProcess {
 public:
  StoreProcess();
  ~StoreProcess();
  StoreProcess(const StoreProcess&) = delete;
  StoreProcess& operator=(const StoreProcess&) = delete;

  std::uint16_t port() const { return port_; }

 private:
  pid_t pid_ = -1;
  std::uint16_t port_ = 0;
};

struct RankEnd {
  int exit_code = -1;     // if the process exited
  int signal = 0;         // if it was killed
  std::string said = "";  // the body's lines, and the message of an uncaught exception
  std::chrono::milliseconds took{0};
};

struct Ranks {
  int size = 2;
  std::uint16_t port = 0;  // the store's
  bool has_agent_store = true;
  std::map<std::string, std::string> environment = {};  // additional variables
  // Later ranks are killed: their `signal` is SIGKILL.
  std::chrono::seconds deadline{55};
};

using Say = std::function<void(const std::string& line)>;

// Runs `body` in `size` processes with RANK, WORLD_SIZE, MASTER_ADDR ... set. The exit code is 0,
// or 1 if it throws. Results are in rank order.
std::vector<RankEnd> run_ranks(const Ranks& ranks,
                               const std::function<void(int rank, const Say& say)>& body);

// Runs the program at `path` instead; `said` is its standard output.
std::vector<RankEnd> run_programs(const Ranks& ranks, const std::string& path,
                                  const std::vector<std::string>& arguments = {});

// Waits for another process. Throws if it does not end within 30 s.
void wait_for_end_of(pid_t pid);

}  // namespace drun::test
