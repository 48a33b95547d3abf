#include "tests/support/process_probe.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "agent/process/descendants.h"
#include "tests/support/machine.h"
#include "tests/support/process.h"

namespace drun::test {

Pipe::Pipe() {
  if (pipe2(ends_, O_CLOEXEC) != 0) std::abort();
}

Pipe::~Pipe() {
  close(ends_[0]);
  close_writing_end();
}

void Pipe::close_writing_end() {
  if (ends_[1] >= 0) close(ends_[1]);
  ends_[1] = -1;
}

std::string Pipe::read_all() {
  close_writing_end();
  std::string text;
  char buffer[4096];
  for (ssize_t size = 0; (size = read(ends_[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(size));
  return text;
}

std::string Pipe::read_line() {
  std::string line;
  for (char letter = 0; read(ends_[0], &letter, 1) == 1 && letter != '\n';) line += letter;
  return line;
}

std::vector<pid_t> processes_with(const std::string& variable) {
  std::vector<pid_t> found;
  DIR* proc = opendir("/proc");
  while (const dirent* entry = readdir(proc)) {
    const std::string name = entry->d_name;
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string environment = '\0' + testing::read_file("/proc/" + name + "/environ");
    if (environment.find('\0' + variable + '\0') == std::string::npos) continue;
    agent::ProcessStat stat;
    if (!agent::parse_stat(testing::read_file("/proc/" + name + "/stat"), stat)) continue;
    if (stat.state != 'Z' && stat.state != 'X') found.push_back(stat.pid);
  }
  closedir(proc);
  return found;
}

bool wait_until(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + test::scaled(limit);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace drun::test
