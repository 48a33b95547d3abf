// core. The gaps of the command line filled with what the engine says that started this agent, and
// where each value came from. Flags and PET_ variables win; an engine that was needed and does not
// tell all is an error, never a default.
//
// Owner:   values; copy freely.   Thread: any.
// Errors:  Usage: the engine, what is missing or contradictory, what to write.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "launcher/plan/rendezvous.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/join_spec.h"

namespace drun {

// What the rest of the plan is made from.
struct Settled {
  Options options{};     // `sources` also names variables of the engine
  HostFacts host{};      // without variables that are false for workers, and with granted CPUs only
  std::string engine{};  // "Slurm, step 7.0", or why none was asked
  std::vector<std::string> removed{};  // those variables
};

Result<Settled> settle(const Options& options, const HostFacts& host, Remarks& remarks);

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

Origins origins_of(const Settled& settled, const JoinSpec& join);

// For --explain and the plan: lines of words, with a newline after each.
std::string origins_text(const Origins& origins);

}  // namespace drun
