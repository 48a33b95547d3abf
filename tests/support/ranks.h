// edge. Ranks as child processes of a test, with a store to meet at: what an agent would set up.
//
// Thread:  the test's only; fork wants no other threads.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace drun::test {

// A store server in a process of its own, on a free port of loopback.
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
  int exit_code = -1;     // of a process that exited
  int signal = 0;         // of one that was killed
  std::string said = "";  // what the body said, and the message of an exception that left it
  std::chrono::milliseconds took{0};
};

struct Ranks {
  int size = 2;
  std::uint16_t port = 0;  // of the store
  bool has_agent_store = true;
  std::map<std::string, std::string> environment = {};  // on top
  // Late ones are killed: their `signal` is SIGKILL.
  std::chrono::seconds deadline{55};
};

using Say = std::function<void(const std::string& line)>;

// Runs `body` in `size` processes with RANK, WORLD_SIZE, MASTER_ADDR ... set; the exit code is 0,
// or 1 if it throws. Results are in rank order.
std::vector<RankEnd> run_ranks(const Ranks& ranks,
                               const std::function<void(int rank, const Say& say)>& body);

// The program at `path` instead; `said` is its standard output.
std::vector<RankEnd> run_programs(const Ranks& ranks, const std::string& path,
                                  const std::vector<std::string>& arguments = {});

}  // namespace drun::test
