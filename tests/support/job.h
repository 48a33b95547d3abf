// Jobs for e2e tests: command lines of the built drun, on one node or several, and their reports.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/process.h"

namespace drun::testing {

using Words = std::vector<std::string>;

Words operator+(Words left, const Words& right);

// `drun <options> sh -c <script>`. Variables of the test that affect jobs are unset.
Launch shell_job(const Words& options, const std::string& script);
Launch job(const Words& options, const Words& program);

// Several nodes of one job on this machine, on 127.0.0.1 with a free port.
class Nodes {
 public:
  explicit Nodes(int count, Words options = {});

  int port() const { return port_; }
  // The launch of one node. Its report goes to report_file(node_rank).
  Launch launch(int node_rank, const Words& more_options, const std::string& script) const;
  void start(int node_rank, const Words& more_options, const std::string& script);
  Running& operator[](int node_rank) { return *running_.at(static_cast<std::size_t>(node_rank)); }
  // Waits for all started nodes; results are in node-rank order.
  std::vector<Ended> wait(std::chrono::milliseconds at_most = 40s);
  nlohmann::json report(int node_rank) const;
  const TemporaryDirectory& directory() const { return directory_; }

 private:
  std::string report_file(int node_rank) const;

  TemporaryDirectory directory_;
  int count_;
  int port_;
  Words options_;
  std::vector<std::unique_ptr<Running>> running_;
};

}  // namespace drun::testing
