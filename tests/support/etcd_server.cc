#include "tests/support/etcd_server.h"

#include <signal.h>
#include <unistd.h>

#include <utility>

#include "tests/support/raw_socket.h"

namespace drun::testing {
namespace {

std::string etcd_program() {
  for (const char* path : {"/usr/bin/etcd", "/usr/local/bin/etcd"}) {
    if (access(path, X_OK) == 0) return path;
  }
  return "";
}

}  // namespace

EtcdServer::EtcdServer(std::string name, std::vector<std::string> arguments, std::string scheme)
    : name_(std::move(name)), arguments_(std::move(arguments)), scheme_(std::move(scheme)) {
  if (etcd_program().empty()) {
    why_not_ = "there is no etcd here (etcd-server)";
    return;
  }
  port_ = free_port();
  peer_port_ = free_port();
  members_ = name_ + "=" + peer();
}

EtcdServer::EtcdServer(std::vector<std::string> arguments, const std::string& scheme)
    : EtcdServer("alone", std::move(arguments), scheme) {
  if (!why_not_.empty()) return;
  start();
  await();
}

void EtcdServer::await() {
  if (!eventually([this] { return listens(); }, 30s))
    why_not_ = "etcd does not start: " + running_->err();
}

void EtcdServer::start() {
  const std::string url = scheme_ + "://127.0.0.1:" + std::to_string(port_);
  Launch launch;
  launch.argv = {etcd_program(), "--name", name_, "--data-dir", directory_.file("data")};
  const std::vector<std::string> more = {"--listen-client-urls",
                                         url,
                                         "--advertise-client-urls",
                                         url,
                                         "--listen-peer-urls",
                                         peer(),
                                         "--initial-advertise-peer-urls",
                                         peer(),
                                         "--initial-cluster",
                                         members_,
                                         "--log-level",
                                         "error"};
  launch.argv.insert(launch.argv.end(), more.begin(), more.end());
  launch.argv.insert(launch.argv.end(), arguments_.begin(), arguments_.end());
  running_ = std::make_unique<Running>(launch);
}

void EtcdServer::kill() {
  running_->signal(SIGKILL);
  running_->wait();
}

EtcdCluster::EtcdCluster(int members) {
  // Short timeouts, because all members are on one machine: a new leader is elected in half a
  // second.
  const std::vector<std::string> times{"--heartbeat-interval=50", "--election-timeout=500"};
  std::string all;
  for (int i = 0; i < members; ++i) {
    members_.emplace_back(new EtcdServer("m" + std::to_string(i), times, "http"));
    all += (i == 0 ? "" : ",") + members_.back()->members_;
  }
  if (!why_not().empty()) return;
  for (const auto& each : members_) {
    each->members_ = all;
    each->start();
  }
  for (const auto& each : members_) {
    if (!eventually([&each] { return each->is_healthy(); }, 30s))
      each->why_not_ = "etcd does not join its cluster: " + each->running_->err();
  }
}

const std::string& EtcdCluster::why_not() const {
  for (const auto& each : members_)
    if (!each->why_not().empty()) return each->why_not();
  return members_.front()->why_not();
}

std::string EtcdCluster::endpoints() const {
  std::string text;
  for (const auto& each : members_) text += (text.empty() ? "" : ",") + each->endpoint();
  return text;
}

bool EtcdServer::listens() const {
  return RawSocket::connect_to(static_cast<std::uint16_t>(port_)).is_open();
}

bool EtcdServer::is_healthy() const {
  const RawSocket socket = RawSocket::connect_to(static_cast<std::uint16_t>(port_));
  if (!socket.is_open() || !socket.say("GET /health HTTP/1.0\r\n\r\n")) return false;
  return socket.hear(4096).find(R"("health":"true")") != std::string::npos;
}

}  // namespace drun::testing
