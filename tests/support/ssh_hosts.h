// Three machines with an sshd each, and one to start jobs from: network namespaces with addresses
// and host names of their own, keys made for the test, nothing of the machine's own sshd or
// configuration touched. Needs root.
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

  // `preparations`: of each host, shell commands in its mount namespace before its sshd starts.
  explicit SshHosts(const std::array<std::string, kHosts>& preparations = {});
  ~SshHosts();
  SshHosts(const SshHosts&) = delete;
  SshHosts& operator=(const SshHosts&) = delete;

  // Empty when a login on each host works; else why not.
  const std::string& why_not() const { return why_not_; }
  const TemporaryDirectory& directory() const { return directory_; }
  // `drun <options> <program>` on the machine to start from, over this test's ssh; node1, node2
  // and node3 are the hosts.
  Launch launch(const Words& options, const Words& program) const;
  Ended run(const Words& options, const Words& program) const;

  void stop_sshd(int host);
  void forget_key(int host) const;
  void cut_cable(int host);
  // From then on no name is known anywhere but host1, host2 and host3, which this test's ssh alone
  // knows. `jump`: host1 is the only way to the other two.
  void know_by_aliases(bool has_jump = false);
  // Hosts reach each other over the first network no longer, and drop what they send there.
  void separate_hosts();
  // A second network of the hosts alone: 10.79.0.1, 10.79.0.2, 10.79.0.3.
  void add_network();
  // Processes there other than its sshd that listens.
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

// Says so when they are not.
bool is_there(const SshHosts& hosts);

}  // namespace drun::testing
