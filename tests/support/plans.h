// Converts command lines and options to plans, on hosts that a test describes. The functions fail
// the test if the outcome is not the one in their name.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "launcher/hosts/host_plan.h"
#include "launcher/hosts/node_plan.h"
#include "launcher/plan/plan.h"
#include "tests/support/results.h"

namespace drun::test {

using Words = std::vector<std::string>;

// "gpu0", which has /bin/train in addition to `files`. PATH defaults to /usr/bin:/bin.
HostFacts train_host(std::map<std::string, FileKind> files = {},
                     std::vector<EnvironmentEntry> environment = {});
// "desk", which has every program whose path does not contain "missing".
HostFacts desk_with(std::vector<EnvironmentEntry> environment = {});

Options running(const std::string& program);

// Parses "NAME WORDS..." with the host's variables.
Result<Command> parse_line(Words words, const HostFacts& host = {},
                           const std::string& name = "drun");
Result<Options> parse_options(Words words, const HostFacts& host = {},
                              const std::string& name = "drun");
Options options_of(Words words, const HostFacts& host = {}, const std::string& name = "drun");

Plan plan_of(const Options& options, const HostFacts& host = train_host());
// The program defaults to "train".
JoinSpec join_of(Options options, const HostFacts& host = train_host());
std::string plan_error(Options options, const HostFacts& host = train_host());

hosts::HostPlan host_plan_of(const Words& words, const HostFacts& host);
std::string host_plan_error(const Words& words, const HostFacts& host);
// The plan of a node whose host has those facts and answers all lookups.
Result<Plan> planned_node(const hosts::HostPlan& plan, std::size_t rank, const HostFacts& host);
Plan node_plan_of(const hosts::HostPlan& plan, std::size_t rank, const HostFacts& host);

template <typename T>
bool has(const std::vector<T>& all, const std::type_identity_t<T>& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

}  // namespace drun::test
