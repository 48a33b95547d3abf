// Ranks as processes, each with a separate backend that connects the processes.
#pragma once

#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "drun/backend.h"
#include "tests/support/in_rank.h"
#include "tests/support/ranks.h"
#include "worker_lib/gloo/gloo_backend.h"
#include "worker_lib/tcp/tcp_mesh.h"
#include "worker_lib/ucx/ucx_mesh.h"

namespace drun::test {

inline Deadline in(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

// All ranks are on node 0. The store is the one in the rank's environment.
inline BackendContext context_of(int rank, int size, bool is_debug = false) {
  BackendContext context;
  context.rank = rank;
  context.size = size;
  context.node_of.assign(static_cast<std::size_t>(size), 0);
  const auto port = static_cast<std::uint16_t>(std::stoi(getenv("MASTER_PORT")));
  context.store = connect_key_store("127.0.0.1", port, std::chrono::seconds(20));
  context.address = "127.0.0.1";
  context.is_debug = is_debug;
  context.deadline = in(std::chrono::seconds(20));
  return context;
}

// The transports of this build.
inline std::vector<std::string> transports() {
  if (worker::has_ucx()) return {"gloo", "tcp", "ucx"};
  return {"gloo", "tcp"};
}

inline std::unique_ptr<Backend> connect(const std::string& transport,
                                        const BackendContext& context) {
  if (transport == "ucx") return worker::connect_ucx(context);
  return transport == "tcp" ? worker::connect_tcp(context) : worker::connect_gloo(context);
}

// Returns "peer lost peer=1: lost the connection to ..." for the failure that the function throws.
template <typename Action>
std::string failure_of(Action&& action) {
  try {
    action();
  } catch (const BackendFailure& failure) {
    return std::string(to_string(failure.kind)) +
           (failure.peer ? " peer=" + std::to_string(*failure.peer) : "") + ": " + failure.what();
  }
  return "no failure";
}

}  // namespace drun::test
