// core. Several programs in the plan: what each is started with, and what they are in words.
//
// JSON:    one object a program of this node, in the order of its local ranks; fields are only ever
//          added:
//            role, local_rank (its first), workers, command [words], variables {its -x}
// Errors:  Usage, naming program, option, reason and remedy.   Thread: any.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <vector>

#include "agent/spec.h"
#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "launcher/plan/plan.h"
#include "launcher/plan/rendezvous.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/join_spec.h"

namespace drun {

// Requires settled programs (programs.h). `cannot_start`: the first that cannot be started
// here; untouched if all can. Empty when there is only one program.
Result<std::vector<ProgramSpec>> plan_programs(const Options& options, const HostFacts& host,
                                               Remarks& remarks,
                                               std::optional<CannotStart>& cannot_start);

// Why one of the job's programs, or the only one, cannot be started here; empty: all can, or there
// is none.
std::string programs_problem(const Options& options, const HostFacts& host);

// GPUs of each of this node's workers, by --gpus-per-worker; empty: nobody has some of its own.
std::vector<int> gpus_of_workers(const Options& options, int workers);

// Lines of words, a newline after each; empty without several programs.
std::string programs_text(const std::vector<ProgramSpec>& programs);
// Null without several programs.
nlohmann::ordered_json programs_json(const std::vector<ProgramSpec>& programs);

}  // namespace drun

// core. Which of the job's workers are this node's, when the job's line counts them all: one
// program or several.
//
// Rule:    -np N on n nodes: N/n each, the first N%n nodes one more (--map-by=ppr:K:node: K each
//          until N is reached). Programs follow each other in this order: a node may have the end
//          of one and the begin of the next.
// Errors:  Usage, naming what was asked for and what there is.   Thread: any.

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
