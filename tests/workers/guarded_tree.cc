// A minimal launcher: guardian, signals and workers, without rendezvous and output.
//   guarded_tree <workers> <shutdown ms> program arguments...
// Prints events to stdout, one a line: "failed <rank> <status>", "succeeded", "gone leftovers=<n>
// unkillable=<n>".
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "agent/process/guardian.h"
#include "agent/process/signals.h"
#include "agent/workers/workers.h"

namespace {

using namespace drun;
using namespace drun::agent;

class Launcher : public Workers::Listener, public Signals::Listener {
 public:
  Launcher(asio::io_context& io, std::chrono::milliseconds shutdown_timeout)
      : workers_(io, Log(), {.shutdown_timeout = shutdown_timeout}, *this),
        signals_(io, {SIGTERM, SIGINT, SIGHUP, SIGQUIT}, *this) {}

  void start(const std::vector<Command>& commands) {
    signals_.start();
    workers_.start(commands);
  }
  int code() const { return code_; }

  void on_worker_failed(const WorkerEnd& end) override {
    std::printf("failed %d %s\n", end.local_rank, to_string(end.status).c_str());
    if (code_ == 0) code_ = exit_code(end.status);
  }
  void on_all_succeeded() override { std::puts("succeeded"); }
  void on_all_gone(const Leftovers& left) override {
    std::printf("gone leftovers=%zu unkillable=%zu\n", left.terminated.count,
                left.unkillable.count);
    signals_.stop();
  }
  void on_terminate(int signal) override {
    if (code_ == 0) code_ = 128 + signal;
    workers_.stop(signal);
  }
  void on_kill_now() override { workers_.kill_now(); }
  void on_pass_on(int signal) override { workers_.pass_on(signal); }

 private:
  Workers workers_;
  Signals signals_;
  int code_ = 0;
};

int run(int workers, int shutdown_ms, const Command& command) {
  asio::io_context io(1);
  Launcher launcher(io, std::chrono::milliseconds(shutdown_ms));
  launcher.start(std::vector<Command>(static_cast<std::size_t>(workers), command));
  io.run();
  std::fflush(stdout);
  return launcher.code();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  Command command;
  command.argv.assign(argv + 3, argv + argc);
  command.inherited = environment;
  const Result<int> code =
      run_guarded([&] { return run(std::atoi(argv[1]), std::atoi(argv[2]), command); });
  return code ? *code : 71;
}
