// core. The program part of the plan: the workers' command lines, of one program or several, the
// variables of -x, and whether each program can be executed on this node. Follows torchrun's rules
// for scripts, modules and --no-python, and execvp's for names without a slash.
//
// Errors:  Usage, naming program, option, value, reason and remedy.
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
#include "rendezvous/job/world.h"

namespace drun {

// --- -x: variables for the workers
//
// They do not affect drun itself, here or on the hosts, except that CUDA_VISIBLE_DEVICES and
// similar variables select the GPUs that drun counts and places.
//
//   -x VAR          uses the value of VAR here; warns if it is not set
//   -x VAR=VALUE    the value extends to the end of the word, including commas
//   -x A,B          the same as -x A -x B

// Each name occurs once; the last value wins.
Result<std::vector<EnvironmentEntry>> exported(const std::vector<std::string>& exports,
                                               const Lookup& here, PlanNotes& notes);

// Adds `entry`, replacing an older one of that name.
void set_variable(std::vector<EnvironmentEntry>& environment, EnvironmentEntry entry);

// --- One program

struct Program {
  std::vector<std::string> argv{};
  std::size_t arguments_at = 1;  // index in argv of the program's first argument
  std::optional<CannotStart> cannot_start{};
  bool operator==(const Program&) const = default;
};

Result<Program> plan_program(const Options& options, const HostFacts& host);

// Whether --wrap's program can be executed.
std::optional<CannotStart> check_wrap(const std::string& program, const HostFacts& host);

// --- Several programs
//
// docs/reference/json.md describes the JSON form.

// Requires settled programs (resolve_programs). Sets `cannot_start` to the first program that
// cannot be started here, if any. Empty if there is only one program.
Result<std::vector<ProgramSpec>> plan_programs(const Options& options, const HostFacts& host,
                                               PlanNotes& notes,
                                               std::optional<CannotStart>& cannot_start);

// Why one of the job's programs, or the only one, cannot be started here. Empty if all can, or if
// there is none.
std::string programs_problem(const Options& options, const HostFacts& host);

// Number of GPUs of each worker of this node, by --gpus-per-worker; empty if no option assigns
// GPUs.
std::vector<int> gpus_of_workers(const Options& options, int workers);

// An object of the variables and their values.
nlohmann::ordered_json variables_json(const std::vector<EnvironmentEntry>& variables);
// "local rank 4", "local ranks 0 to 3".
std::string local_ranks_text(int first, int count);
// Every line ends with a newline; empty without several programs.
std::string programs_text(const std::vector<ProgramSpec>& programs);
// Null without several programs.
nlohmann::ordered_json programs_json(const std::vector<ProgramSpec>& programs);

// --- The workers of this node if the command line gives the total number
//
// With -np N on n nodes, each node gets N/n, and the first N%n nodes get one more. With
// --map-by=ppr:K:node each gets K until N is reached. Ranks run through the programs in order, so a
// node may have the last workers of one program and the first of the next. Errors: Usage, with the
// requested and the available number.

// Ranks `first` to `first` + `count` - 1 of the job.
struct RankShare {
  int first = 0;
  int count = 0;
  bool operator==(const RankShare&) const = default;
};

// The programs (all with -np) of those ranks, with their local numbers as --nproc-per-node.
std::vector<ProgramOptions> programs_of(const std::vector<ProgramOptions>& programs,
                                        RankShare share);

// Requires 0 <= node_rank < nodes.
RankShare share_of(int np, int nodes, int node_rank, std::optional<int> per_node);

// Limits `options` to this node: sets nproc_per_node, and the number of each program. Requires that
// engine and nodes are settled.
Result<void> resolve_programs(Options& options, const HostFacts& host);

// The roles of the programs; equal neighbors are merged. Error if this node has too many.
Result<std::vector<RoleShare>> roles_of(const std::vector<ProgramOptions>& programs);

// --- Programs for other machines

// Replaces `-x VAR` by the value of VAR here. Warns about a variable that is not set.
Result<std::vector<ProgramOptions>> with_values(std::vector<ProgramOptions> programs,
                                                const HostFacts& host, PlanNotes& notes);

}  // namespace drun
