// core. Which of the job's workers are this node's, when the job's line counts them all: one
// program or several.
//
// Rule:    -np N on n nodes: N/n each, the first N%n nodes one more (--map-by=ppr:K:node: K each
//          until N is reached). Programs follow each other in this order: a node may have the end
//          of one and the begin of the next.
// Errors:  Usage, naming what was asked for and what there is.   Thread: any.
#pragma once

#include <vector>

#include "launcher/host.h"
#include "launcher/options.h"
#include "rendezvous/join_spec.h"
#include "rendezvous/result.h"

namespace drun {

// Ranks `first` to `first` + `count` - 1 of the job.
struct RankShare {
  int first = 0;
  int count = 0;
  bool operator==(const RankShare&) const = default;
};

// The programs (all with -np) of those ranks, with their numbers there as --nproc-per-node.
std::vector<ProgramOptions> programs_of(const std::vector<ProgramOptions>& programs,
                                        RankShare share);

// Requires 0 <= node_rank < nodes.
RankShare share_of(int np, int nodes, int node_rank, std::optional<int> per_node);

// After it `options` say what this node alone has: nproc_per_node, and `programs` with numbers.
// Requires that engine and nodes are settled.
Result<void> settle_programs(Options& options, const HostFacts& host);

// The programs' roles, equal neighbours as one. Errors: there are too many of them on this node.
Result<std::vector<RoleShare>> roles_of(const std::vector<ProgramOptions>& programs);

}  // namespace drun
