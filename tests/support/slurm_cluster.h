// A Slurm with three nodes on this machine: slurmctld, three slurmd and munged, in a separate
// directory and on separate ports, without using the machine's own Slurm. It needs root. Only the
// nodes' tasks can resolve the nodes' names (a mount namespace with another /etc/hosts).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/job.h"
#include "tests/support/process.h"

namespace drun::testing {

class SlurmCluster {
 public:
  // `has_names`: the nodes' tasks can resolve the nodes' names.
  explicit SlurmCluster(bool has_names = true);
  ~SlurmCluster();
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;

  // Empty if all three nodes are idle; otherwise the reason.
  const std::string& why_not() const { return why_not_; }
  // Whether node01 and node02 have four simulated GPUs each. False if device nodes cannot be
  // created.
  bool has_gpus() const { return has_gpus_; }
  const TemporaryDirectory& directory() const { return directory_; }
  // A command that uses this Slurm.
  Launch launch(const Words& argv) const;
  Ended run(const Words& argv, std::chrono::milliseconds at_most = 60s) const;

 private:
  std::string what_is_missing() const;
  bool make_gpus() const;
  void configure(bool has_names) const;
  void start(const std::string& name, const std::string& command);
  bool has_idle_nodes() const;

  TemporaryDirectory directory_;
  std::string why_not_;
  bool has_gpus_ = false;
  std::vector<std::unique_ptr<Running>> daemons_;  // stopped in reverse order
};

// Prints the reason if it is not.
bool is_there(const SlurmCluster& slurm);

}  // namespace drun::testing
