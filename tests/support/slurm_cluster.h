// A Slurm of three nodes on this machine: slurmctld, three slurmd and munged, in a directory and
// on ports of their own, with nothing of the machine's own Slurm touched. Needs root; the nodes'
// names are known to their own tasks only (a mount namespace with another /etc/hosts).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/job.h"
#include "tests/support/process.h"

namespace drun::testing {

class SlurmCluster {
 public:
  // `has_names`: the nodes' tasks resolve the nodes' names.
  explicit SlurmCluster(bool has_names = true);
  ~SlurmCluster();
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;

  // Empty when all three nodes are idle; else why they are not.
  const std::string& why_not() const { return why_not_; }
  // node01 and node02 have four GPUs each, which are devices that give nothing; false: none, as no
  // device can be made here.
  bool has_gpus() const { return has_gpus_; }
  const TemporaryDirectory& directory() const { return directory_; }
  // A command that talks to this Slurm.
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
  std::vector<std::unique_ptr<Running>> daemons_;  // ended in reverse order
};

// Says so when it is not.
bool is_there(const SlurmCluster& slurm);

}  // namespace drun::testing
