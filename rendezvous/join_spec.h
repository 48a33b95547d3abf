// core. How a node takes part in a job: what the launcher's plan says and rendezvous obeys.
//
// Owner:   a value; copy freely.   Thread: any.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "rendezvous/endpoint.h"

namespace drun {

enum class StoreHost {
  Agent,   // the coordinator's agent serves the store on MASTER_PORT
  Worker,  // MASTER_PORT is left to rank 0; drun meets on an endpoint of its own
};

struct JoinSpec {
  std::string run_id = "none";
  int node_rank = 0;
  int node_count = 1;
  int local_world_size = 1;
  std::string role = "default";
  Endpoint endpoint;  // where the coordinator listens; port 0: any free one (one node only)
  bool is_coordinator = true;     // this agent listens there
  std::string master_addr;        // what workers are told, exactly as it was given
  std::uint16_t master_port = 0;  // 0: the coordinator's port, once it is known
  StoreHost store_host = StoreHost::Agent;
  int max_restarts = 0;
  std::chrono::milliseconds join_timeout{std::chrono::minutes(15)};
  std::chrono::milliseconds heartbeat_timeout{std::chrono::seconds(15)};
  bool operator==(const JoinSpec&) const = default;
};

}  // namespace drun
