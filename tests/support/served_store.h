// A store server on a separate thread, for tests whose clients block.
//
// All server code runs on that thread. `on_loop` runs a function there and returns its result.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/store/client.h"
#include "rendezvous/store/server.h"
#include "tests/support/process.h"

namespace drun {

class ServedStore {
 public:
  explicit ServedStore(rendezvous::StoreServerSpec spec = loopback()) {
    Log log([this](LogLevel, std::string_view line) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(line);
    });
    auto server = rendezvous::StoreServer::start(io_, spec, log);
    if (!server) throw std::runtime_error(server.error().message);
    server_ = *std::move(server);
    port_ = server_->port();
    thread_ = std::thread([this] { io_.run(); });
  }
  ~ServedStore() {
    stop();
    thread_.join();
  }

  static rendezvous::StoreServerSpec loopback() {
    rendezvous::StoreServerSpec spec;
    spec.listen.loopback_only = true;
    return spec;
  }

  std::uint16_t port() const { return port_; }
  Endpoint endpoint() const { return {.host = "127.0.0.1", .port = port_}; }
  std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

  template <typename Work>
  auto on_loop(Work work) {
    std::packaged_task<decltype(work(*server_))()> task([&] { return work(*server_); });
    auto result = task.get_future();
    asio::post(io_, [&task] { task(); });
    return result.get();
  }
  std::size_t connection_count() {
    return on_loop([](rendezvous::StoreServer& server) { return server.connection_count(); });
  }
  void stop() {
    asio::post(io_, [this] { server_->stop(); });
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
  asio::io_context io_{1};
  std::unique_ptr<rendezvous::StoreServer> server_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

using testing::eventually;

}  // namespace drun
