// core. Which nodes the coordinator asks for a query (node_queries.h), and the result that it makes
// of their answers. The result of a query of the status is a census: the state of the round, and
// the answer of each node.
#pragma once

#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/coordinator/round.h"
#include "rendezvous/job/census.h"

namespace drun::rendezvous {

// The nodes of the world that are connected.
std::vector<Peer> seated_peers(const RoundState& state);
// These, and those in the line.
std::vector<Peer> all_peers(const RoundState& state);

// Refused: why there is no node to ask.
Result<std::vector<Peer>> peers_asked(const RoundState& state, const Query& query);

// Of a query that has ended. O(nodes) if a node has not answered, and for a census.
QueryResult result_of(const RoundState& state, OpenQuery& query, Time now);

// O(1), except for copying the failure and the excluded nodes.
JobFacts facts_of(const RoundState& state, Time now);

// From the answers to `query` that have arrived. O(nodes).
Census census_of(const RoundState& state, const OpenQuery& query, Time now);

}  // namespace drun::rendezvous
