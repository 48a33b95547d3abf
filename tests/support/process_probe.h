// What tests of processes need: a pipe to hear from them, and a look at who is still there.
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
  // Closes our writing end, then reads until everybody has closed his.
  std::string read_all();
  // Waits for one line (without its end).
  std::string read_line();

 private:
  int ends_[2] = {-1, -1};
};

// Pids of processes that have "NAME=value" in their environment; the dead are left out.
std::vector<pid_t> processes_with(const std::string& variable);

// True when it became true in time. Looks every few milliseconds: for conditions nobody reports.
bool wait_until(const std::function<bool()>& condition, std::chrono::milliseconds limit);

}  // namespace drun::test
