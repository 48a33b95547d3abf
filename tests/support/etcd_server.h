// A real etcd on this machine, alone or as a cluster, on its own ports and in its own directory. It
// is not installed everywhere (Debian: etcd-server). `why_not` then has the reason, and tests skip.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/process.h"

namespace drun::testing {

class EtcdServer {
 public:
  // `arguments`: additional ones, such as certificates. `scheme`: http or https.
  explicit EtcdServer(std::vector<std::string> arguments = {}, const std::string& scheme = "http");

  // Empty if the server answers.
  const std::string& why_not() const { return why_not_; }
  int port() const { return port_; }
  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }
  // Sends SIGKILL; starts it again with the same data.
  void kill();
  void start();
  void signal(int number) const { running_->signal(number); }
  // Whether it answers on its port. Uses no certificate.
  bool listens() const;
  // Whether it belongs to a cluster with a leader. A restarted member listens before it has joined.
  // http only.
  bool is_healthy() const;

 private:
  friend class EtcdCluster;
  EtcdServer(std::string name, std::vector<std::string> arguments, std::string scheme);
  std::string peer() const { return "http://127.0.0.1:" + std::to_string(peer_port_); }
  void await();

  TemporaryDirectory directory_;
  std::string name_;
  std::string members_;  // "name=peer" of all members, separated by commas
  std::vector<std::string> arguments_;
  std::string scheme_;
  int port_ = 0;
  int peer_port_ = 0;
  std::string why_not_;
  std::unique_ptr<Running> running_;
};

class EtcdCluster {
 public:
  explicit EtcdCluster(int members);

  const std::string& why_not() const;
  EtcdServer& member(int index) { return *members_.at(static_cast<std::size_t>(index)); }
  std::string endpoints() const;  // separated by commas

 private:
  std::vector<std::unique_ptr<EtcdServer>> members_;
};

}  // namespace drun::testing
