// core. The part of the plan about several endpoints, where one agent is elected to coordinate
// (rendezvous/ELECTION.md).
// Errors:  Usage, naming option, value, reason and remedy.   Thread: any.
#pragma once

#include <string>
#include <vector>

#include "launcher/options.h"
#include "launcher/plan_join.h"
#include "rendezvous/join_spec.h"

namespace drun {

// Of --rdzv-endpoint=A,B,C; one, if there is no comma.
std::vector<std::string> listed_endpoints(const Options& options);

// `join.endpoint` is the first of them. With three or more: sets `seats`, and leaves to the
// election what only it knows, the master's address.
Result<void> plan_seats(JoinSpec& join, const Options& options);

void remark_seats(const JoinSpec& join, const Options& options, Remarks& remarks);

}  // namespace drun
