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
#include "launcher/host.h"
#include "launcher/options.h"
#include "launcher/plan.h"
#include "launcher/plan_join.h"
#include "rendezvous/result.h"

namespace drun {

// Requires settled programs (settle_programs.h). `cannot_start`: the first that cannot be started
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
