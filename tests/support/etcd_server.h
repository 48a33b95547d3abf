// A real etcd on this machine, on ports and in a directory of its own, alone or as a cluster of
// several. It is not there everywhere (Debian's etcd-server): `why_not` says so, and a test is
// skipped.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/process.h"

namespace drun::testing {

class EtcdServer {
 public:
  // More arguments for it, such as certificates; `scheme` is how it is spoken to.
  explicit EtcdServer(std::vector<std::string> arguments = {}, const std::string& scheme = "http");

  // Empty once it answers.
  const std::string& why_not() const { return why_not_; }
  int port() const { return port_; }
  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }
  // SIGKILL, and start again with the same data.
  void kill();
  void start();
  void signal(int number) const { running_->signal(number); }
  // Whether it answers on its port; no certificate is shown.
  bool listens() const;
  // Whether it takes part in a cluster that has a leader: a member that has just started listens
  // before it does. Only over http.
  bool is_healthy() const;

 private:
  friend class EtcdCluster;
  EtcdServer(std::string name, std::vector<std::string> arguments, std::string scheme);
  std::string peer() const { return "http://127.0.0.1:" + std::to_string(peer_port_); }
  void await();

  TemporaryDirectory directory_;
  std::string name_;
  std::string members_;  // "name=peer" of all, with commas
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
  std::string endpoints() const;  // with commas

 private:
  std::vector<std::unique_ptr<EtcdServer>> members_;
};

}  // namespace drun::testing
