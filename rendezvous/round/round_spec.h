// core. What the coordinator's machine (round.h) is given at its start.
// Owner:   a value; copy freely.   Thread: any.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/join_spec.h"
#include "rendezvous/round/restart_policy.h"

namespace drun::rendezvous {

struct RoundSpec {
  std::string run_id;
  std::uint64_t term = 0;  // of its election; 0: it was not elected
  int rounds = 0;          // that had begun before it
  bool is_back = false;    // it led the last of them itself: no node was lost with it
  int node_count = 1;      // the most, when elastic
  std::optional<ElasticSpec> elastic{};
  int max_restarts = 0;
  RestartPolicy restart{};
  bool preflight = false;
  std::string endpoint;     // for messages
  std::string master_addr;  // for members that were given none of their own
  std::uint16_t master_port = 0;
  bool use_agent_store = true;
  std::chrono::milliseconds join_timeout{std::chrono::minutes(15)};
  std::chrono::milliseconds heartbeat_timeout{std::chrono::seconds(15)};
  std::size_t line_window_bytes = 0;  // lines/line_window.h; 0: nodes keep their workers' lines
};

}  // namespace drun::rendezvous
