// Runs programs for tests with a deadline, captures their output, and leaves no process behind.
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

// A new directory, removed with its contents.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string operator/(const std::string& name) const { return file(name); }

 private:
  std::string path_;
};

std::string read_file(const std::string& path);  // "" if it cannot be read
void write_file(const std::string& path, const std::string& text, bool is_executable = false);

using test::free_port;

// Polls `condition` every few milliseconds until it is true. Returns false after `at_most`.
bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds at_most = 10s);

struct Launch {
  std::vector<std::string> argv{};
  std::map<std::string, std::optional<std::string>>
      environment{};         // set, or unset if absent; in addition to the test's
  std::string directory{};   // empty: the test's
  std::string stdin_text{};  // standard input, followed by end of file
  bool new_session = false;  // runs without a controlling terminal
};

struct Ended {
  int code = -1;  // exit code, or 128 + n for a signal
  bool timed_out = false;
  std::string out;
  std::string err;
};

// A running program. The destructor kills its process group.
class Running {
 public:
  explicit Running(const Launch& launch);
  ~Running();
  Running(Running&& other) noexcept;
  Running& operator=(Running&&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  // The output so far.
  const std::string& out();
  const std::string& err();
  // Waits until it has printed `text` to stdout or stderr. Returns false if it ends first or
  // `at_most` passes.
  bool prints(const std::string& text, std::chrono::milliseconds at_most = 20s);
  // Waits until it ends. After `at_most` it is killed and `timed_out` is set.
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

// Processes with `NAME=value` in their environment: what a job has left behind.
std::vector<pid_t> processes_with(const std::string& entry);

}  // namespace drun::testing
