// Helpers for tests of processes: a pipe from them, and a search for remaining ones.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace drun::test {

// A pipe whose ends are close-on-exec.
class Pipe {
 public:
  Pipe();
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe();
  int writing_end() const { return ends_[1]; }
  void close_writing_end();
  // Closes our writing end, then reads until all other writing ends are closed.
  std::string read_all();
  // Waits for one line (without its newline).
  std::string read_line();

 private:
  int ends_[2] = {-1, -1};
};

// Pids of live processes with "NAME=value" in their environment.
std::vector<pid_t> processes_with(const std::string& variable);

// Polls `condition` every few milliseconds. Returns true if it became true within `limit`.
bool wait_until(const std::function<bool()>& condition, std::chrono::milliseconds limit);

}  // namespace drun::test
