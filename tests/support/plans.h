// Command lines and options become plans, on hosts that a test describes. What does not end as a
// name says fails the test.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "launcher/plan/host_plan.h"
#include "launcher/plan/plan.h"
#include "tests/support/results.h"

namespace drun::test {

using Words = std::vector<std::string>;

// "gpu0", where there is /bin/train besides `files`; PATH is /usr/bin:/bin where it is not given.
HostFacts train_host(std::map<std::string, FileKind> files = {},
                     std::vector<EnvironmentEntry> environment = {});
// "desk", which has every program whose path is without "missing".
HostFacts desk_with(std::vector<EnvironmentEntry> environment = {});

Options running(const std::string& program);

// The line "NAME WORDS...", with the host's variables.
Result<Command> parse_line(Words words, const HostFacts& host = {},
                           const std::string& name = "drun");
Result<Options> parse_options(Words words, const HostFacts& host = {},
                              const std::string& name = "drun");
Options options_of(Words words, const HostFacts& host = {}, const std::string& name = "drun");

Plan plan_of(const Options& options, const HostFacts& host = train_host());
// Where no program is named it is "train".
JoinSpec join_of(Options options, const HostFacts& host = train_host());
std::string plan_error(Options options, const HostFacts& host = train_host());

hosts::HostPlan host_plan_of(const Words& words, const HostFacts& host);
std::string host_plan_error(const Words& words, const HostFacts& host);

template <typename T>
bool has(const std::vector<T>& all, const std::type_identity_t<T>& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

}  // namespace drun::test
