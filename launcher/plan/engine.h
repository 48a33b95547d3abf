// core. Completes the command line with values from the engine that started this agent, and records
// the origin of each value. Flags and PET_ variables take precedence. If a value is needed and the
// engine does not report it, that is an error; defaults are not used.
//
// Errors:  Usage, with the engine, the missing or contradictory value, and the remedy.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "launcher/plan/rendezvous.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/join_spec.h"

namespace drun {

// Input for the rest of the plan.
struct ResolvedOptions {
  Options options{};                   // `sources` includes variables of the engine
  HostFacts host{};                    // without `removed`; only the granted CPUs
  std::string engine{};                // "Slurm, step 7.0", or why no engine was queried
  std::vector<std::string> removed{};  // variables that would be false for workers
};

Result<ResolvedOptions> settle(const Options& options, const HostFacts& host, PlanNotes& notes);

// One value of the plan.
struct Origin {
  std::string what{};   // "node rank"
  std::string value{};  // "2"
  std::string from{};   // "SLURM_NODEID", "--node-rank", "PET_NODE_RANK", "default"
  bool operator==(const Origin&) const = default;
};

struct Origins {
  std::string engine{};
  std::vector<Origin> values{};
  std::vector<std::string> removed{};
  bool operator==(const Origins&) const = default;
};

Origins origins_of(const ResolvedOptions& settled, const JoinSpec& join);

// For --explain and the plan; every line ends with a newline.
std::string origins_text(const Origins& origins);

}  // namespace drun
