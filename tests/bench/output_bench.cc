// Measures the throughput of drun's Output: 8 writers to one file, compared with a minimal program
// that only copies whole labeled lines.
//
//   output_bench [FILE] [LINES_PER_WORKER] [LINE_BYTES] [WRITE_BYTES]
//
// MB/s and lines/s count the bytes of the workers, without labels, from the first spawn until the
// last byte is written. Each variant runs in a separate process; `peak` is the peak resident set of
// that process.
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "agent/output/log_files.h"
#include "agent/output/output.h"

namespace {

using drun::UniqueFd;
constexpr int kWorkers = 8;
const std::string kLines = std::string(DRUN_BENCH_DIR) + "/lines";

struct Load {
  std::string file;
  std::string count;
  std::string line_bytes;
  std::string write_bytes;
};

void spawn_writer(const Load& load, int rank, int out, int err) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out, 1);
  posix_spawn_file_actions_adddup2(&actions, err, 2);
  std::vector<std::string> words{kLines,     "write",         std::to_string(rank),
                                 load.count, load.line_bytes, load.write_bytes};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  if (posix_spawn(&pid, kLines.c_str(), &actions, nullptr, argv.data(), environ) != 0) std::abort();
  posix_spawn_file_actions_destroy(&actions);
}

// The minimum: reads, finds the newlines, inserts the labels, writes.
void copy_bare(const Load& load, int file) {
  std::vector<pollfd> pipes;
  std::vector<std::string> held(kWorkers);
  for (int rank = 0; rank < kWorkers; ++rank) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
    ::fcntl(ends[0], F_SETPIPE_SZ, 1 << 19);
    spawn_writer(load, rank, ends[1], 2);
    ::close(ends[1]);
    pipes.push_back({.fd = ends[0], .events = POLLIN, .revents = 0});
  }
  std::vector<char> buffer(128 << 10);
  std::string out;
  for (int left = kWorkers; left > 0;) {
    ::poll(pipes.data(), pipes.size(), -1);
    for (std::size_t rank = 0; rank < pipes.size(); ++rank) {
      if (pipes[rank].revents == 0) continue;
      const ssize_t got = ::read(pipes[rank].fd, buffer.data(), buffer.size());
      if (got <= 0) {
        ::close(pipes[rank].fd);
        pipes[rank].fd = -1;
        --left;
        continue;
      }
      const std::string label = "[default" + std::to_string(rank) + "]:";
      out.clear();
      const char* at = buffer.data();
      const char* const end = at + got;
      while (const void* found = std::memchr(at, '\n', static_cast<std::size_t>(end - at))) {
        const char* next = static_cast<const char*>(found) + 1;
        out.append(label).append(held[rank]).append(at, next);
        held[rank].clear();
        at = next;
      }
      held[rank].append(at, end);
      if (drun::agent::write_all(file, out) != 0) std::abort();
    }
  }
}

void run_output(const Load& load, int file, drun::StreamPlan plan, const std::string& log_dir,
                drun::OutputSpec spec = {}, bool is_stderr = false) {
  spec.streams.assign(kWorkers, {plan, plan});
  spec.log_dir = log_dir;
  drun::asio::io_context io(1);
  drun::agent::Output output(io, {}, spec, "here", {.out = file, .err = file});
  drun::World world;
  world.local_world_size = kWorkers;
  if (!output.prepare("bench")) std::abort();
  output.open_round(world, [&](auto streams) {
    if (!streams) std::abort();
    for (int rank = 0; rank < kWorkers; ++rank) {
      const drun::agent::WorkerStreams& own = (*streams)[static_cast<std::size_t>(rank)];
      spawn_writer(load, rank, is_stderr ? own.stderr_fd : own.stdout_fd, 2);
    }
    output.close_worker_ends();
    output.drain(std::chrono::hours(1), [] {});
  });
  io.run();
  if (!log_dir.empty()) std::system(("rm -r " + output.log_place()).c_str());
}

// Measures the cost of Output at the start of a job: creating directories and pipes, and their
// removal.
void measure_opening(int workers) {
  const auto begin = std::chrono::steady_clock::now();
  drun::asio::io_context io(1);
  drun::agent::Output output(io, {}, {}, "here", {.out = 1, .err = 2});
  drun::World world;
  world.local_world_size = workers;
  if (!output.prepare("bench")) std::abort();
  output.open_round(world, [&output](const auto& streams) {
    if (!streams) std::abort();
    output.close_worker_ends();
    output.drain(std::chrono::hours(1), [] {});
  });
  io.run();
  output.finish();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  std::printf("open and close the streams of %d workers: %.2f ms\n", workers, took.count());
}

template <typename Way>
bool measure(const char* name, const Load& load, Way way) {
  std::fflush(stdout);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const UniqueFd file(::open(load.file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    const auto begin = std::chrono::steady_clock::now();
    way(file.get());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    const double megabytes = kWorkers * std::stod(load.count) * std::stod(load.line_bytes) / 1e6;
    std::printf("%-10s %6.0f MB/s %5.2f M lines/s  peak %5.1f MB  cpu %4.2f s of %4.2f s  ", name,
                megabytes / took.count(), megabytes / std::stod(load.line_bytes) / took.count(),
                static_cast<double>(used.ru_maxrss) / 1024,
                static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                    static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6,
                took.count());
    std::fflush(stdout);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  const std::string check = kLines + " check " + std::to_string(kWorkers) + " " + load.count + " " +
                            load.line_bytes + " " + load.file;
  const bool is_whole = std::system(check.c_str()) == 0;
  ::unlink(load.file.c_str());
  return status == 0 && is_whole;
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int index, const char* otherwise) {
    return std::string(argc > index ? argv[index] : otherwise);
  };
  const Load load{.file = argument(1, "/tmp/output_bench.out"),
                  .count = argument(2, "500000"),
                  .line_bytes = argument(3, "100"),
                  .write_bytes = argument(4, "65536")};
  const auto output = [&load](drun::StreamPlan plan, const std::string& log_dir) {
    return [&load, plan, log_dir](int file) { run_output(load, file, plan, log_dir); };
  };
  measure_opening(64);
  measure_opening(256);
  bool is_good = measure("bare", load, [&](int file) { copy_bare(load, file); });
  is_good &= measure("labelled", load, output({.is_labeled = true}, ""));
  is_good &= measure("lines", load, output({}, ""));
  is_good &= measure("stderr", load, [&load](int file) {
    run_output(load, file, {.is_labeled = true}, "", {}, true);
  });
  is_good &= measure(
      "tee", load,
      output({.to_file = true, .is_labeled = true}, load.file.substr(0, load.file.rfind('/') + 1)));
  drun::OutputSpec stamped;
  stamped.has_timestamps = true;
  is_good &= measure("stamped", load,
                     [&](int file) { run_output(load, file, {.is_labeled = true}, "", stamped); });
  drun::OutputSpec json;
  json.mode = drun::OutputMode::Json;
  is_good &= measure("json", load, [&](int file) { run_output(load, file, {}, "", json); });
  return is_good ? 0 : 1;
}
