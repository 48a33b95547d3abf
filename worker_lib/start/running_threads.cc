#include "worker_lib/start/running_threads.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

namespace drun::worker {
namespace {

constexpr unsigned long kExiting = 0x4;  // PF_EXITING in the kernel's linux/sched.h

bool is_running(const std::filesystem::path& task) {
  std::ifstream file(task / "stat");
  std::string line;
  if (!std::getline(file, line)) return false;  // gone since it was listed
  // The name, in brackets, may hold anything; then state, ppid, pgrp, session, tty, tpgid, flags.
  std::istringstream fields(line.substr(std::min(line.rfind(')') + 1, line.size())));
  std::string skipped;
  for (int i = 0; i < 6; ++i) fields >> skipped;
  unsigned long flags = 0;
  return !(fields >> flags) || (flags & kExiting) == 0;
}

}  // namespace

std::size_t running_threads() {
  std::error_code ec;
  std::size_t count = 0;
  std::filesystem::directory_iterator task("/proc/self/task", ec);
  for (; !ec && task != std::filesystem::directory_iterator(); task.increment(ec)) {
    if (is_running(task->path())) ++count;
  }
  return std::max<std::size_t>(count, 1);
}

}  // namespace drun::worker
