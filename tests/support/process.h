// Runs programs for tests: with a deadline, everything they print captured, nothing of them left
// behind.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/machine.h"

namespace drun::testing {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

// A directory of its own, removed with all in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string read_file(const std::string& path);  // "" when it cannot be read
void write_file(const std::string& path, const std::string& text, bool is_executable = false);

using test::free_port;

// Polls `condition` every few milliseconds until it holds; false when `at_most` passed first.
bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds at_most = 10s);

struct Launch {
  std::vector<std::string> argv{};
  std::map<std::string, std::optional<std::string>>
      environment{};         // set, or unset when absent; on top of ours
  std::string directory{};   // empty: ours
  std::string stdin_text{};  // its standard input, then end of file
  bool new_session = false;  // as a shell without a terminal would
};

struct Ended {
  int code = -1;  // exit code, 128 + n for a signal
  bool timed_out = false;
  std::string out;
  std::string err;
};

// A program that runs. Destroyed before its end: it is killed with everything in its process group.
class Running {
 public:
  explicit Running(const Launch& launch);
  ~Running();
  Running(Running&& other) noexcept;
  Running& operator=(Running&&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  // What it has printed so far.
  const std::string& out();
  const std::string& err();
  // Until it has printed `text` to stdout or stderr; false when it ended or `at_most` passed first.
  bool prints(const std::string& text, std::chrono::milliseconds at_most = 20s);
  // Until it ends; after `at_most` it is killed and `timed_out` is set.
  Ended wait(std::chrono::milliseconds at_most = 30s);

 private:
  void read_some(std::chrono::milliseconds at_most);
  bool reap(bool blocking);

  pid_t pid_ = -1;
  int out_fd_ = -1;
  int err_fd_ = -1;
  std::optional<int> code_;
  std::string out_;
  std::string err_;
};

Ended run(const Launch& launch, std::chrono::milliseconds at_most = 30s);

std::string drun_program();  // the drun that was built with these tests

// Processes that have `NAME=value` in their environment: what a job has left behind.
std::vector<pid_t> processes_with(const std::string& entry);

}  // namespace drun::testing
