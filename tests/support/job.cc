#include "tests/support/job.h"

namespace drun::testing {

Words operator+(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

Launch job(const Words& options, const Words& program) {
  Launch launch;
  launch.argv = Words{drun_program()} + options + program;
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS",
        "TORCHELASTIC_ERROR_FILE", "LOGLEVEL", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"}) {
    launch.environment[name] = std::nullopt;
  }
  return launch;
}

Launch shell_job(const Words& options, const std::string& script) {
  return job(options, {"sh", "-c", script});
}

Nodes::Nodes(int count, Words options)
    : count_(count),
      port_(free_port()),
      options_(std::move(options)),
      running_(static_cast<std::size_t>(count)) {}

std::string Nodes::report_file(int node_rank) const {
  return directory_.file("report" + std::to_string(node_rank) + ".json");
}

Launch Nodes::launch(int node_rank, const Words& more_options, const std::string& script) const {
  const Words options =
      Words{"--nnodes=" + std::to_string(count_), "--node_rank=" + std::to_string(node_rank),
            "--master_addr=127.0.0.1", "--master_port=" + std::to_string(port_),
            "--report=" + report_file(node_rank)} +
      options_ + more_options;
  Launch launch = shell_job(options, script);
  launch.environment["DIR"] = directory_.path();
  return launch;
}

void Nodes::start(int node_rank, const Words& more_options, const std::string& script) {
  running_.at(static_cast<std::size_t>(node_rank)) =
      std::make_unique<Running>(launch(node_rank, more_options, script));
}

std::vector<Ended> Nodes::wait(std::chrono::milliseconds at_most) {
  std::vector<Ended> ends;
  for (const auto& running : running_) {
    if (running) ends.push_back(running->wait(at_most));
  }
  return ends;
}

nlohmann::json Nodes::report(int node_rank) const {
  return nlohmann::json::parse(read_file(report_file(node_rank)), nullptr, false);
}

}  // namespace drun::testing
