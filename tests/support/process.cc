#include "tests/support/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "tests/support/machine.h"
#include "tests/support/places.h"

extern char** environ;

namespace drun::testing {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void give_up(const std::string& action) {
  throw std::runtime_error("test support: cannot " + action + ": " + std::strerror(errno));
}

std::vector<std::string> merged_environment(const Launch& launch) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!launch.environment.contains(text.substr(0, text.find('=')))) merged.push_back(text);
  }
  for (const auto& [name, value] : launch.environment) {
    if (value) merged.push_back(name + "=" + *value);
  }
  return merged;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> raw;
  for (std::string& text : texts) raw.push_back(text.data());
  raw.push_back(nullptr);
  return raw;
}

int stdin_with(const std::string& text) {
  const int fd = memfd_create("stdin", MFD_CLOEXEC);
  if (fd < 0 || write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    give_up("make a stdin");
  lseek(fd, 0, SEEK_SET);
  return fd;
}

// Appends the available text. Returns false at the end of the file.
bool read_into(int fd, std::string& text) {
  char buffer[65536];
  const ssize_t size = read(fd, buffer, sizeof buffer);
  if (size > 0) text.append(buffer, static_cast<std::size_t>(size));
  return size > 0 || (size < 0 && (errno == EINTR || errno == EAGAIN));
}

}  // namespace

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = std::filesystem::temp_directory_path().string() + "/drun-test-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) give_up("make a temporary directory");
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ec;
  std::filesystem::remove_all(path_, ec);
}

std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

void write_file(const std::string& path, const std::string& text, bool is_executable) {
  std::ofstream(path, std::ios::binary) << text;
  if (is_executable) chmod(path.c_str(), 0755);
}

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds at_most) {
  const Clock::time_point deadline = Clock::now() + test::scaled(at_most);
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(3ms);
  }
  return true;
}

Running::Running(const Launch& launch) {
  int out[2];
  int err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) give_up("make a pipe");
  const int input = stdin_with(launch.stdin_text);
  std::vector<std::string> arguments = launch.argv;
  std::vector<std::string> variables = merged_environment(launch);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(variables);
  pid_ = fork();
  if (pid_ < 0) give_up("fork");
  if (pid_ == 0) {
    if (launch.new_session)
      setsid();
    else
      setpgid(0, 0);
    dup2(input, 0);
    dup2(out[1], 1);
    dup2(err[1], 2);
    if (!launch.directory.empty() && chdir(launch.directory.c_str()) != 0) _exit(126);
    execvpe(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  setpgid(pid_, pid_);
  close(input);
  close(out[1]);
  close(err[1]);
  out_fd_ = out[0];
  err_fd_ = err[0];
}

Running::Running(Running&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      out_fd_(std::exchange(other.out_fd_, -1)),
      err_fd_(std::exchange(other.err_fd_, -1)),
      code_(other.code_),
      out_(std::move(other.out_)),
      err_(std::move(other.err_)) {}

Running::~Running() {
  if (pid_ > 0 && !code_) {
    kill(-pid_, SIGKILL);
    kill(pid_, SIGKILL);
    reap(true);
  }
  if (out_fd_ >= 0) close(out_fd_);
  if (err_fd_ >= 0) close(err_fd_);
}

void Running::signal(int number) const {
  if (!code_) kill(pid_, number);
}

bool Running::reap(bool blocking) {
  if (code_) return true;
  int status = 0;
  if (waitpid(pid_, &status, blocking ? 0 : WNOHANG) != pid_) return false;
  code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return true;
}

void Running::read_some(std::chrono::milliseconds at_most) {
  pollfd waits[2] = {{out_fd_, POLLIN, 0}, {err_fd_, POLLIN, 0}};
  if (poll(waits, 2, static_cast<int>(at_most.count())) <= 0) return;
  if (waits[0].revents != 0 && !read_into(out_fd_, out_)) close(std::exchange(out_fd_, -1));
  if (waits[1].revents != 0 && !read_into(err_fd_, err_)) close(std::exchange(err_fd_, -1));
}

const std::string& Running::out() {
  read_some(0ms);
  return out_;
}

const std::string& Running::err() {
  read_some(0ms);
  return err_;
}

bool Running::prints(const std::string& text, std::chrono::milliseconds at_most) {
  const Clock::time_point deadline = Clock::now() + test::scaled(at_most);
  const auto is_there = [&] {
    return out_.find(text) != out_.npos || err_.find(text) != err_.npos;
  };
  while (!is_there()) {
    if (Clock::now() > deadline || (out_fd_ < 0 && err_fd_ < 0)) return false;
    read_some(20ms);
  }
  return true;
}

Ended Running::wait(std::chrono::milliseconds at_most) {
  const Clock::time_point deadline = Clock::now() + test::scaled(at_most);
  bool timed_out = false;
  while (!reap(false) || out_fd_ >= 0 || err_fd_ >= 0) {
    if (Clock::now() > deadline) {
      timed_out = true;
      if (!code_) kill(-pid_, SIGKILL);
      if (!code_) kill(pid_, SIGKILL);
      reap(true);
      break;
    }
    if (out_fd_ < 0 && err_fd_ < 0) {
      std::this_thread::sleep_for(1ms);
    } else {
      read_some(5ms);
    }
  }
  return Ended{.code = code_.value_or(-1), .timed_out = timed_out, .out = out_, .err = err_};
}

Ended run(const Launch& launch, std::chrono::milliseconds at_most) {
  return Running(launch).wait(at_most);
}

std::string drun_program() { return built("drun"); }

std::vector<pid_t> processes_with(const std::string& entry) {
  std::vector<pid_t> found;
  for (const auto& directory : std::filesystem::directory_iterator("/proc")) {
    const std::string name = directory.path().filename();
    if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; }))
      continue;
    const std::string variables = '\0' + read_file("/proc/" + name + "/environ") + '\0';
    if (variables.find('\0' + entry + '\0') != variables.npos) found.push_back(std::stoi(name));
  }
  return found;
}

}  // namespace drun::testing
