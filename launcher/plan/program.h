// core. The program part of the plan: the worker's command line, and whether it can be executed on
// this node. Follows torchrun's rules for scripts, modules and --no-python, and execvp's for names
// without a slash.
// Errors:  Usage, naming option, value, reason and remedy.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "launcher/plan/plan.h"

namespace drun {

struct Program {
  std::vector<std::string> argv{};
  std::size_t arguments_at = 1;  // index in argv of the program's first argument
  std::optional<CannotStart> cannot_start{};
  bool operator==(const Program&) const = default;
};

Result<Program> plan_program(const Options& options, const HostFacts& host);

// Whether --wrap's program can be executed.
std::optional<CannotStart> check_wrap(const std::string& program, const HostFacts& host);

}  // namespace drun
