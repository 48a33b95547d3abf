// A real etcd on this machine, on ports and in a directory of its own. It is not there everywhere
// (Debian's etcd-server): `why_not` says so, and a test is skipped.
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

 private:
  TemporaryDirectory directory_;
  std::vector<std::string> arguments_;
  std::string scheme_;
  int port_ = 0;
  int peer_port_ = 0;
  std::string why_not_;
  std::unique_ptr<Running> running_;
};

}  // namespace drun::testing
