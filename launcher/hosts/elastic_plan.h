// core. Jobs over ssh whose hosts may be fewer than were named: --nnodes=MIN:MAX. Which hosts may
// coordinate the job, and the words that tell the agents so.
//
// Rules:   MAX is at most the number of hosts with workers; those beyond it are spares. Of three
//          hosts and more the first three are endpoints, of which one may be lost; else, and with
//          --master-addr or --store=worker, the first host alone is.
// Errors:  Usage.   Thread: any.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launcher/hosts/host_plan.h"

namespace drun::hosts {

bool is_elastic_wish(const Options& options);

// `hosts` with workers are there.
Result<void> check_node_count(const Options& options, std::size_t hosts);

// Where the nodes meet is known. Sets nodes_wanted and seats; nothing if the number is fixed.
void plan_elastic_hosts(HostPlan& plan, const Options& options, bool has_own_address);

// About nodes and where they meet, for the agent of `rank`.
std::vector<std::string> meeting_words(const HostPlan& plan, std::size_t rank);

}  // namespace drun::hosts
