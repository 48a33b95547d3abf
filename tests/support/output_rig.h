// Shared parts of tests of workers' output: a directory, a console that the loop reads, and
// workers.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/output/output.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/asio.h"
#include "tests/support/event_loop.h"
#include "tests/support/process.h"

namespace drun::test {

using testing::TemporaryDirectory;

std::vector<std::string> split_lines(std::string_view text);

// Runs the loop until it is idle and `pid` sleeps, which is a writer blocked by its reader.
bool run_until_blocked(asio::io_context& io, pid_t pid);

// Reads a descriptor to its end in the loop.
class Collector {
 public:
  Collector(asio::io_context& io, UniqueFd fd);
  void start();
  bool is_at_end() const { return is_at_end_; }
  const std::string& text() const { return text_; }

 private:
  asio::posix::stream_descriptor fd_;
  std::vector<char> buffer_;
  std::string text_;
  bool is_at_end_ = false;
};

// A pipe with ordinary ends: blocking and close-on-exec.
struct PipeEnds {
  UniqueFd read_end;
  UniqueFd write_end;
};
PipeEnds make_plain_pipe();

bool is_non_blocking(int fd);

// `sh -c script` with these descriptors as 1 and 2. The destructor kills and reaps it.
class Worker {
 public:
  Worker(const std::string& script, int stdout_fd, int stderr_fd);
  Worker(Worker&& other) noexcept;
  ~Worker();
  pid_t pid() const { return pid_; }
  bool is_running();
  // Returns the exit code, or 128 + signal.
  int wait();

 private:
  pid_t pid_ = 0;
  int code_ = -1;
};

// An Output with its loop and its log.
struct OutputRig {
  explicit OutputRig(OutputSpec spec, agent::ConsoleFds console);

  // Prepares the output, and opens a round with one worker per script.
  void start(const std::vector<std::string>& scripts, int round = 0);
  // Waits for the workers, and drains. Returns false if it takes more than 30 s.
  bool drain(std::chrono::milliseconds at_most = std::chrono::seconds(30));

  asio::io_context io{1};
  std::vector<std::string> log;
  agent::Output output;
  std::vector<agent::WorkerStreams> streams;
  std::vector<Worker> workers;
  int drained = 0;
  bool is_prepared = false;
};

}  // namespace drun::test
