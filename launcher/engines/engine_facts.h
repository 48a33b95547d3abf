// core. What an engine (Slurm, mpirun, Kubernetes ...) says about the agent that it started: which
// node of how many, where node 0 is. A rule reads variables and gives Facts; detect.h has the order
// of the rules, launcher/plan/engine.h fills the gaps of the command line with them.
//
// Shape:   each value comes with the name of the variable (or file) that it was read from. What is
//          absent was not told; `missing` and `no_master` say what to do about it.
// Owner:   values; copy freely.   Thread: any.
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
struct Told {
  T value{};
  std::string from{};  // "SLURM_NODEID"
  bool operator==(const Told&) const = default;
};

struct Facts {
  std::string engine{};  // "Slurm, step 7.0"
  std::optional<Told<int>> nodes{};
  std::optional<Told<int>> node_rank{};
  std::optional<Told<std::string>> master_addr{};
  bool is_slurm_name = false;  // master_addr: if nothing resolves it, Slurm may know its address
  std::optional<Told<int>> master_port{};
  std::optional<Told<int>> meeting_port{};  // for drun, where rank 0 serves the store itself
  std::optional<Told<std::string>> run_id{};
  std::optional<Told<int>> workers{};  // what was granted, one worker each
  std::optional<Told<int>> cpus{};     // granted on this node
  // Variables that should be there and are not: "SLURM_NODEID, SLURM_STEP_NODELIST".
  std::string missing{};
  // The first contradiction, as a sentence with its remedy: these facts are not to be used.
  std::string wrong{};
  // Why there is no master address, and what to write; empty when there is one.
  std::string no_master{};
  std::vector<std::string> warnings{};
  bool operator==(const Facts&) const = default;
};

// The whole text of a file, or nothing when it cannot be read or is larger than any host file.
using FileText = std::function<std::optional<std::string>(const std::string& path)>;

// A meeting of all processes that the engine started: each calls it once, rank 0 with a text (no
// blanks), and each gets that text. Waits for all of them. Unreachable: the engine has one, but
// this machine not what it takes.
struct Met {
  std::string told{};
  int processes = 0;  // all that were started; 0: the engine does not say
};
// What the text is called there.
inline constexpr const char* kMeetingKey = "drun-node-0";
using Meeting = std::function<Result<Met>(const std::optional<std::string>& told)>;

using AddressLookup = std::function<std::vector<std::string>(const std::string& name)>;

// What a rule may look at.
struct Surroundings {
  Lookup variables{};
  std::string hostname{};
  FileText file_text{};
  std::vector<std::string> addresses{};  // of this machine's interfaces, numeric
  AddressLookup addresses_of{};          // of a name, numeric
  std::string random_id{};
  Meeting meeting{};  // empty: the engine offers none
};

}  // namespace drun::engines

// core. How rules read variables: an empty one counts as unset, what is missing is noted by name,
// and the first value that makes no sense becomes `wrong`.
//
// Owner:   borrows the surroundings and the facts for its life.   Thread: any, one at a time.

namespace drun::engines {

// What numbers of nodes, ranks and slots can be at most.
inline constexpr long kMostCount = 1L << 20;

class Reading {
 public:
  Reading(const Surroundings& surroundings, Facts& facts)
      : surroundings_(surroundings), facts_(facts) {}

  // Absent when not set. These two blame nobody.
  std::optional<Told<std::string>> text(std::string_view name) const;
  bool is_set(std::string_view name) const { return text(name).has_value(); }

  // A whole number from `least` to kMostCount; anything else is wrong. Not set: absent, and
  // missing if it is needed.
  std::optional<Told<int>> number(std::string_view name, int least);
  std::optional<Told<int>> needed_number(std::string_view name, int least);
  std::optional<Told<std::string>> needed_text(std::string_view name);

  void miss(std::string_view name);
  void blame(std::string sentence);  // the first one stays

 private:
  const Surroundings& surroundings_;
  Facts& facts_;
};

// NAME="value", the value cut short when it is long.
std::string shown(const Told<std::string>& told);

// The whole text as a decimal number without a sign; absent if it is anything else.
std::optional<std::int64_t> whole_number(std::string_view text);

// "gpu3" of "gpu3.cluster.example"; an address stays whole.
std::string_view short_name(std::string_view host);

// A run id from an engine's name for the job; absent where that cannot be one, such as a path.
std::optional<std::string> run_id_from(std::string_view prefix, std::string_view job);

// A port that agents who know nothing but the job's name agree on: above the range from which
// Linux takes ports for outgoing connections.
inline constexpr int kFirstDerivedPort = 61440;
inline constexpr int kDerivedPorts = 4096;
int derived_port(std::string_view job);

}  // namespace drun::engines
