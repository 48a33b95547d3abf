#include "rendezvous/coordinator/server_specs.h"

#include <algorithm>

#include "rendezvous/protocol/line_window.h"

namespace drun::rendezvous {

ListenSpec listen_spec(const JoinSpec& spec) {
  ListenSpec listen;
  listen.listening = spec.listening;
  listen.port = spec.endpoint.port;
  error_code ec;
  const auto address = asio::ip::make_address(spec.master_addr, ec);
  const bool is_loopback_literal = !ec && address.is_loopback();
  listen.loopback_only = is_loopback_literal || spec.master_addr == "localhost";
  if (is_loopback_literal) listen.loopback_host = spec.master_addr;
  return listen;
}

RoundSpec round_spec(const JoinSpec& spec, std::uint16_t port) {
  return {.run_id = spec.run_id,
          .node_count = spec.node_count,
          .elastic = spec.elastic,
          .max_restarts = spec.max_restarts,
          .restart = spec.restart,
          .preflight = spec.preflight,
          .endpoint = to_string(Endpoint{spec.endpoint.host, port}),
          .master_addr = spec.master_addr,
          .master_port = spec.master_port != 0 ? spec.master_port : port,
          .use_agent_store = spec.store_host == StoreHost::Agent,
          .join_timeout = spec.join_timeout,
          .heartbeat_timeout = spec.heartbeat_timeout,
          .line_window_bytes = spec.gathers_lines ? line_window_bytes(spec.node_count) : 0,
          .make_stack_answers = spec.make_stack_answers};
}

StoreLimits store_limits(const JoinSpec& spec) {
  StoreLimits limits;
  limits.memory_bytes = spec.store_memory_bytes;
  return limits;
}

}  // namespace drun::rendezvous
