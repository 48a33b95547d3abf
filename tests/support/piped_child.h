// A child process with a pipe to it and a pipe from it. The destructor kills and reaps it.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/machine.h"

extern char** environ;

namespace drun {

class PipedChild {
 public:
  explicit PipedChild(std::vector<std::string> argv) {
    int in[2];
    int out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDERR_FILENO);
    std::vector<char*> args;
    for (std::string& arg : argv) args.push_back(arg.data());
    args.push_back(nullptr);
    const int failure = posix_spawnp(&pid_, args[0], &actions, nullptr, args.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    in_ = in[1];
    out_ = out[0];
    if (failure != 0) pid_ = -1;
  }
  ~PipedChild() {
    close_input();
    close(out_);
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  PipedChild(const PipedChild&) = delete;
  PipedChild& operator=(const PipedChild&) = delete;

  bool has_started() const { return pid_ > 0; }
  void close_input() {
    if (in_ >= 0) close(in_);
    in_ = -1;
  }
  // Returns the next line without its newline, or nothing if none arrives within 60 s.
  std::optional<std::string> line() {
    const auto deadline = std::chrono::steady_clock::now() + test::scaled(std::chrono::seconds(60));
    while (true) {
      const std::size_t end = read_.find('\n');
      if (end != read_.npos) {
        std::string one = read_.substr(0, end);
        read_.erase(0, end + 1);
        return one;
      }
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      pollfd ready{.fd = out_, .events = POLLIN, .revents = 0};
      if (left.count() <= 0 || poll(&ready, 1, static_cast<int>(left.count())) <= 0) return {};
      char buffer[4096];
      const ssize_t count = read(out_, buffer, sizeof(buffer));
      if (count <= 0) return {};
      read_.append(buffer, static_cast<std::size_t>(count));
    }
  }
  // Waits. Returns 128 + n for a signal.
  int exit_code() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
  std::string read_;
};

}  // namespace drun
