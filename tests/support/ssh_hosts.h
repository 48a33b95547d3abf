// Three machines with an sshd each, and one to start jobs from. They are network namespaces with
// separate addresses and host names, and with new keys. The machine's own sshd and configuration
// are not used. It needs root.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/job.h"
#include "tests/support/process.h"

namespace drun::testing {

class SshHosts {
 public:
  static constexpr int kHosts = 3;

  // `preparations`: shell commands for each host, run in its mount namespace before its sshd
  // starts.
  explicit SshHosts(const std::array<std::string, kHosts>& preparations = {});
  ~SshHosts();
  SshHosts(const SshHosts&) = delete;
  SshHosts& operator=(const SshHosts&) = delete;

  // Empty if a login works on each host; otherwise the reason.
  const std::string& why_not() const { return why_not_; }
  const TemporaryDirectory& directory() const { return directory_; }
  // `drun <options> <program>` on the machine of the launcher with this test's ssh. The hosts are
  // node1, node2 and node3.
  Launch launch(const Words& options, const Words& program) const;
  Ended run(const Words& options, const Words& program) const;

  void stop_sshd(int host);
  void forget_key(int host) const;
  void cut_cable(int host);
  // From now on the only known names are host1, host2 and host3, and only this test's ssh knows
  // them. `has_jump`: the other two hosts can only be reached through host1.
  void know_by_aliases(bool has_jump = false);
  // The first network silently drops packets between hosts from now on.
  void separate_hosts();
  // Adds a second network between the hosts only: 10.79.0.1, 10.79.0.2, 10.79.0.3.
  void add_network();
  // Processes on the host, except its listening sshd.
  std::vector<int> left_on(int host) const;
  bool are_empty() const;

 private:
  bool shell(const std::string& script);
  std::string what_is_missing();
  bool connect();
  bool configure();
  bool can_log_in();
  void start_sshd(int host, const std::string& preparation);
  std::string space(int host) const { return name_ + std::to_string(host); }

  TemporaryDirectory directory_;
  std::string name_;
  std::string why_not_;
  std::array<std::unique_ptr<Running>, kHosts> daemons_;
};

// Prints the reason if they are not.
bool is_there(const SshHosts& hosts);

}  // namespace drun::testing
