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

EtcdServer::EtcdServer(std::vector<std::string> arguments, const std::string& scheme)
    : arguments_(std::move(arguments)), scheme_(scheme) {
  if (etcd_program().empty()) {
    why_not_ = "there is no etcd here (etcd-server)";
    return;
  }
  port_ = free_port();
  do peer_port_ = free_port();
  while (peer_port_ == port_);
  start();
  if (!eventually([this] { return listens(); }, 30s))
    why_not_ = "etcd does not start: " + running_->err();
}

void EtcdServer::start() {
  const std::string url = scheme_ + "://127.0.0.1:" + std::to_string(port_);
  const std::string peer = "http://127.0.0.1:" + std::to_string(peer_port_);
  Launch launch;
  launch.argv = {etcd_program(), "--name", "t", "--data-dir", directory_.file("data")};
  const std::vector<std::string> more = {"--listen-client-urls",
                                         url,
                                         "--advertise-client-urls",
                                         url,
                                         "--listen-peer-urls",
                                         peer,
                                         "--initial-advertise-peer-urls",
                                         peer,
                                         "--initial-cluster",
                                         "t=" + peer,
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

bool EtcdServer::listens() const {
  return RawSocket::connect_to(static_cast<std::uint16_t>(port_)).is_open();
}

}  // namespace drun::testing
