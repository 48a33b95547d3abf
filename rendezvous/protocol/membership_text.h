// core. Text about the nodes that have joined and those that are missing, the same on every node.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "rendezvous/protocol/control_message.h"

namespace drun::rendezvous {

// "node 1, node 2 missing (joined: node 0 (a))"; truncated lists end in "and 5 more".
std::string roll_call(const Waiting& waiting);

// "waiting for 2 of 3 nodes at 10.0.0.1:29500: <roll call>; 13m20s left".
std::string waiting_text(const Waiting& waiting, std::string_view endpoint, Milliseconds left);

// For a line that is updated while nodes join: "2 of 3 nodes joined (a, c), waiting for
// node 1; 12s", in elastic worlds "2 of 2 to 4 nodes joined (a, c); 12s".
std::string progress_text(const Waiting& waiting, Milliseconds since);

// The join timeout's message: "1 of 3 nodes joined at ... within 15m: <roll call>; <remedy>".
std::string timeout_text(const Waiting& waiting, std::string_view endpoint, Milliseconds limit);

// The same for an elastic job: "2 of 2 to 4 nodes have joined at gpu0:29400 (a, b); ...". Also for
// a spare.
std::string elastic_waiting_text(const Waiting& waiting, std::string_view endpoint);
std::string elastic_timeout_text(const Waiting& waiting, std::string_view endpoint,
                                 Milliseconds limit);

// "4 nodes", "2 to 4 nodes".
std::string node_range_text(int least, int most);

// "node 2 (host b)"; "node 2" without a host.
std::string node_text(int node_rank, std::string_view host);

}  // namespace drun::rendezvous
