#include "tests/support/ranks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <exception>
#include <stdexcept>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/store/server.h"
#include "tests/support/machine.h"

namespace drun::test {
namespace {

using Clock = std::chrono::steady_clock;

struct Child {
  pid_t pid = -1;
  int pipe = -1;  // -1: closed at its end
  RankEnd end;
};

void write_all(int fd, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = write(fd, text.data() + done, text.size() - done);
    if (count <= 0) return;
    done += static_cast<std::size_t>(count);
  }
}

void set_environment(const Ranks& ranks, int rank) {
  const auto set = [](const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
  };
  set("RANK", std::to_string(rank));
  set("LOCAL_RANK", std::to_string(rank));
  set("WORLD_SIZE", std::to_string(ranks.size));
  set("LOCAL_WORLD_SIZE", std::to_string(ranks.size));
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(ranks.port));
  set("TORCHELASTIC_USE_AGENT_STORE", ranks.has_agent_store ? "True" : "False");
  for (const auto& [name, value] : ranks.environment) set(name, value);
}

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  return ends;
}

template <typename Body>
Child start(Body&& body) {
  const std::array<int, 2> ends = make_pipe();
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    body(ends[1]);
    _exit(0);
  }
  close(ends[1]);
  return Child{.pid = pid, .pipe = ends[0], .end = {}};
}

// Reads what the pipe contains now.
void drain(Child& child, Clock::time_point began) {
  std::array<char, 4096> bytes{};
  const ssize_t count = read(child.pipe, bytes.data(), bytes.size());
  if (count > 0) {
    child.end.said.append(bytes.data(), static_cast<std::size_t>(count));
    return;
  }
  close(child.pipe);
  child.pipe = -1;
  child.end.took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began);
}

void drain_all(std::vector<Child>& children, Clock::time_point began, std::chrono::seconds limit) {
  while (true) {
    std::vector<pollfd> waiting;
    std::vector<Child*> whose;
    for (Child& child : children) {
      if (child.pipe < 0) continue;
      waiting.push_back({.fd = child.pipe, .events = POLLIN, .revents = 0});
      whose.push_back(&child);
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(began + limit - Clock::now());
    if (waiting.empty()) return;
    if (left.count() <= 0 ||
        poll(waiting.data(), waiting.size(), static_cast<int>(left.count())) <= 0) {
      break;
    }
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].revents != 0) drain(*whose[i], began);
    }
  }
  for (Child& child : children) {
    if (child.pipe >= 0) kill(child.pid, SIGKILL);
  }
}

std::vector<RankEnd> gather(std::vector<Child> children, Clock::time_point began,
                            std::chrono::seconds limit) {
  drain_all(children, began, limit);
  std::vector<RankEnd> ends;
  for (Child& child : children) {
    int status = 0;
    waitpid(child.pid, &status, 0);
    if (child.pipe >= 0) close(child.pipe);
    if (WIFEXITED(status)) child.end.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) child.end.signal = WTERMSIG(status);
    ends.push_back(std::move(child.end));
  }
  return ends;
}

[[noreturn]] void run_body(int pipe, int rank,
                           const std::function<void(int rank, const Say& say)>& body) {
  const Say say = [pipe](const std::string& line) { write_all(pipe, line + "\n"); };
  try {
    body(rank, say);
  } catch (const std::exception& error) {
    say(error.what());
    _exit(1);
  }
  _exit(0);
}

[[noreturn]] void serve_store(int pipe) {
  asio::io_context io(1);
  rendezvous::StoreServerSpec spec;
  spec.listen.loopback_only = true;
  const auto server = rendezvous::StoreServer::start(io, spec, Log());
  if (!server) _exit(1);
  write_all(pipe, std::to_string((*server)->port()) + "\n");
  io.run();
  _exit(0);
}

}  // namespace

StoreProcess::StoreProcess() {
  Child child = start([](int pipe) { serve_store(pipe); });
  pid_ = child.pid;
  std::array<char, 16> text{};
  if (read(child.pipe, text.data(), text.size() - 1) <= 0) throw std::runtime_error("no store");
  close(child.pipe);
  port_ = static_cast<std::uint16_t>(std::atoi(text.data()));
}

StoreProcess::~StoreProcess() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::vector<RankEnd> run_ranks(const Ranks& ranks,
                               const std::function<void(int rank, const Say& say)>& body) {
  const Clock::time_point began = Clock::now();
  std::vector<Child> children;
  for (int rank = 0; rank < ranks.size; ++rank) {
    children.push_back(start([&](int pipe) {
      set_environment(ranks, rank);
      run_body(pipe, rank, body);
    }));
  }
  return gather(std::move(children), began, scaled(ranks.deadline));
}

std::vector<RankEnd> run_programs(const Ranks& ranks, const std::string& path,
                                  const std::vector<std::string>& arguments) {
  const Clock::time_point began = Clock::now();
  std::vector<char*> argv{const_cast<char*>(path.c_str())};
  for (const std::string& each : arguments) argv.push_back(const_cast<char*>(each.c_str()));
  argv.push_back(nullptr);
  std::vector<Child> children;
  for (int rank = 0; rank < ranks.size; ++rank) {
    children.push_back(start([&](int pipe) {
      set_environment(ranks, rank);
      dup2(pipe, STDOUT_FILENO);
      execv(path.c_str(), argv.data());
      _exit(127);
    }));
  }
  return gather(std::move(children), began, scaled(ranks.deadline));
}

void wait_for_end_of(pid_t pid) {
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return;  // it has ended and was reaped
  pollfd end{.fd = process.get(), .events = POLLIN, .revents = 0};
  if (poll(&end, 1, 30000) != 1) throw std::runtime_error("the other process does not end");
}

}  // namespace drun::test
