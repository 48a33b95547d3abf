// core. The facts that an engine (Slurm, mpirun, Kubernetes ...) reports to the agent that it
// started: the number of nodes, the rank of this one, the address of node 0. A rule per engine
// reads variables and returns Facts. detect.h orders the rules, and launcher/plan/engine.h uses
// the facts to complete the command line.
//
// Each value has the name of its variable or file. An absent value was not reported; `missing` and
// `no_master` give the remedy.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/job/world.h"

namespace drun::engines {

template <typename T>
struct EngineFact {
  T value{};
  std::string from{};  // "SLURM_NODEID"
  bool operator==(const EngineFact&) const = default;
};

struct Facts {
  std::string engine{};  // "Slurm, step 7.0"
  std::optional<EngineFact<int>> nodes{};
  std::optional<EngineFact<int>> node_rank{};
  std::optional<EngineFact<std::string>> master_addr{};
  bool is_slurm_name = false;  // master_addr may need Slurm to resolve it
  std::optional<EngineFact<int>> master_port{};
  std::optional<EngineFact<int>> meeting_port{};  // for drun, if rank 0 serves the store itself
  std::optional<EngineFact<std::string>> run_id{};
  std::optional<EngineFact<int>> workers{};  // one per granted resource
  std::optional<EngineFact<int>> cpus{};     // granted on this node
  // Required variables that are not set: "SLURM_NODEID, SLURM_STEP_NODELIST".
  std::string missing{};
  // The first contradiction and its remedy. If set, the facts must not be used.
  std::string wrong{};
  // Why there is no master address, and the remedy; empty if there is one.
  std::string no_master{};
  std::vector<std::string> warnings{};
  bool operator==(const Facts&) const = default;
};

// The contents of a file; nullopt if it cannot be read or is larger than any host file.
using FileText = std::function<std::optional<std::string>(const std::string& path)>;

// Passes one text (without blanks) from rank 0 to every process that the engine started. Each
// process calls it once, and rank 0 provides the text. Blocks until all have called. Error
// Unreachable: the engine supports it, but this machine lacks the means, such as a library.
struct MeetingResult {
  std::string text{};
  int processes = 0;  // number of started processes; 0: unknown
};
// The key of that text.
inline constexpr const char* kMeetingKey = "drun-node-0";
using Meeting = std::function<Result<MeetingResult>(const std::optional<std::string>& own_text)>;

using AddressLookup = std::function<std::vector<std::string>(const std::string& name)>;

// Inputs of the rules.
struct EngineContext {
  Lookup variables{};
  std::string hostname{};
  FileText file_text{};
  std::vector<std::string> addresses{};  // of the interfaces, numeric
  AddressLookup addresses_of{};          // resolves a name to numeric addresses
  std::string random_id{};
  Meeting meeting{};  // empty: not offered by the engine
};

// --- Lookup of variables
//
// An empty variable counts as unset. Records the names of missing variables, and the first invalid
// value as `wrong`. Borrows the context and the facts.

// Limit of the numbers of nodes, ranks and slots.
inline constexpr long kMostCount = 1L << 20;

class Reading {
 public:
  Reading(const EngineContext& context, Facts& facts) : context_(context), facts_(facts) {}

  // Absent if not set. text() and is_set() record no error.
  std::optional<EngineFact<std::string>> text(std::string_view name) const;
  bool is_set(std::string_view name) const { return text(name).has_value(); }

  // An integer from `least` to kMostCount; any other value is recorded as wrong. An unset variable
  // gives nullopt, and is recorded as missing by the needed_ functions.
  std::optional<EngineFact<int>> number(std::string_view name, int least);
  std::optional<EngineFact<int>> needed_number(std::string_view name, int least);
  std::optional<EngineFact<std::string>> needed_text(std::string_view name);

  void miss(std::string_view name);
  void blame(std::string sentence);  // keeps the first one

 private:
  const EngineContext& context_;
  Facts& facts_;
};

// NAME="value", shortened if the value is long.
std::string shown(const EngineFact<std::string>& fact);

// Parses all of `text` as a decimal number without a sign.
std::optional<std::int64_t> whole_number(std::string_view text);

// "gpu3" for "gpu3.cluster.example"; an address is not shortened.
std::string_view short_name(std::string_view host);

// Derives a run id from the engine's name of the job; absent if that is not a valid id, such as a
// path.
std::optional<std::string> run_id_from(std::string_view prefix, std::string_view job);

// Sets the run id and both ports from the engine's name of the job.
void name_job(Facts& facts, std::string_view prefix, const EngineFact<std::string>& job);

}  // namespace drun::engines
