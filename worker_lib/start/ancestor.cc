#include "worker_lib/start/ancestor.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace drun::worker {
namespace {

struct Process {
  std::string program;
  int parent = 0;
};

// "12 (a name) S 11 ...": the name may hold anything, also parentheses.
std::optional<Process> read_process(int id) {
  std::ifstream file("/proc/" + std::to_string(id) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  const std::size_t open = line.find('(');
  const std::size_t close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  Process process{.program = line.substr(open + 1, close - open - 1), .parent = 0};
  std::istringstream rest(line.substr(close + 1));
  std::string state;
  if (!(rest >> state >> process.parent)) return std::nullopt;
  return process;
}

}  // namespace

std::optional<int> ancestor_named(std::string_view program) {
  constexpr std::size_t kCommBytes = 15;
  constexpr int kMostGenerations = 1000;
  int id = getppid();
  for (int i = 0; i < kMostGenerations && id > 0; ++i) {
    const std::optional<Process> process = read_process(id);
    if (!process) return std::nullopt;
    if (process->program == program.substr(0, kCommBytes)) return id;
    id = process->parent;
  }
  return std::nullopt;
}

}  // namespace drun::worker
