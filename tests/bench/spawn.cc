// Measures the overhead of Workers: starts N x `true` and waits for them, with a posix_spawn loop
// and with Workers, in turns, in one process.
//   spawn [repeats]
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "agent/workers/workers.h"

namespace {

using namespace drun;
using namespace drun::agent;
using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double bare_loop(int count) {
  const auto begin = Clock::now();
  char program[] = "/bin/true";
  char* const argv[] = {program, nullptr};
  for (int i = 0; i < count; ++i) {
    pid_t pid = 0;
    if (posix_spawn(&pid, program, nullptr, nullptr, argv, environ) != 0) std::abort();
  }
  for (int i = 0; i < count; ++i)
    if (wait(nullptr) < 0) std::abort();
  return milliseconds_since(begin);
}

struct Quiet : Workers::Listener {
  void on_worker_failed(const WorkerEnd&) override { std::abort(); }
  void on_all_succeeded() override {}
  void on_all_gone(const Leftovers&) override {}
};

double workers_loop(asio::io_context& io, Workers& workers, int count) {
  const auto begin = Clock::now();
  std::vector<std::string> inherited;
  for (char** entry = environ; *entry != nullptr; ++entry) inherited.emplace_back(*entry);
  std::vector<Command> commands(static_cast<std::size_t>(count));
  for (Command& command : commands) {
    command.argv = {"true"};
    command.inherited = inherited;
    for (int i = 0; i < 25; ++i) command.environment.emplace_back("DRUN_" + std::to_string(i), "x");
  }
  workers.start(commands);
  io.restart();
  io.run();
  return milliseconds_since(begin);
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 25;
  asio::io_context io(1);
  Quiet quiet;
  Workers workers(io, Log(), {}, quiet);
  for (const int count : {1, 64, 256}) {
    std::vector<double> bare;
    std::vector<double> ours;
    for (int i = 0; i < repeats; ++i) {
      bare.push_back(bare_loop(count));
      ours.push_back(workers_loop(io, workers, count));
    }
    std::printf("%4d x true  bare %7.2f ms  workers %7.2f ms  ratio %.2f\n", count, median(bare),
                median(ours), median(ours) / median(bare));
  }
}
