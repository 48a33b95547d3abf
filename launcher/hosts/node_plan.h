// core. The plan of one node of a job with --hosts. The launcher makes it from the job's plan and
// from what the node's host reports, and sends it to the agent there.
//
// A plan looks up files, and the topology, as it needs them. Where the report does not answer,
// plan_node() returns the lookups instead of a plan; call it again with the answers. A lookup
// without an answer counts as a missing file, so that few calls are needed.
// Errors:  those of make_plan(), and Usage if the plans of all nodes do not fit the options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/facts/host.h"
#include "launcher/facts/topology.h"
#include "launcher/hosts/host_plan.h"
#include "launcher/plan/plan.h"
#include "rendezvous/base/result.h"

namespace drun::hosts {

// --- The lookups of a plan on the node's host

struct Lookups {
  std::vector<std::string> paths{};
  bool has_topology = false;
  bool is_empty() const { return paths.empty() && !has_topology; }
  bool operator==(const Lookups&) const = default;
};

struct LookupAnswers {
  std::map<std::string, FileKind> files{};  // by path
  std::optional<Topology> topology{};
  std::string topology_problem{};  // why the topology is unknown
  bool operator==(const LookupAnswers&) const = default;
};

// On the host. May block on its file systems.
LookupAnswers look_up(const Lookups& lookups, const HostFacts& here);

// The lookups of the node's plan if its host were like this machine.
Lookups expected_lookups(const HostPlan& plan, std::size_t rank, const HostFacts& here);

// --- The plan

// Of `facts`, only the values count, not the functions.
struct HostReport {
  HostFacts facts{};
  LookupAnswers answers{};
};

Result<std::variant<Lookups, Plan>> plan_node(const HostPlan& plan, std::size_t rank,
                                              const HostReport& report);

// Checks the options that name ranks. `workers`: of all nodes, in a job with fixed nodes.
Result<void> check_ranks(const HostPlan& plan, std::int64_t workers);

// Whether the variable selects the GPUs that a host counts. The agent sets it before it collects
// the facts; other variables of -x only affect the workers.
bool names_devices(std::string_view variable);

}  // namespace drun::hosts
