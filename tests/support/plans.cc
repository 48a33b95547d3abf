#include "tests/support/plans.h"

#include <variant>

namespace drun::test {

HostFacts train_host(std::map<std::string, FileKind> files,
                     std::vector<EnvironmentEntry> environment) {
  HostFacts host;
  host.hostname = "gpu0";
  host.usable_cpus = 6;
  host.environment = std::move(environment);
  if (!variable(host, "PATH")) host.environment.emplace_back("PATH", "/usr/bin:/bin");
  host.working_directory = "/home/me";
  host.random_id = "0123456789abcdef";
  files.emplace("/bin/train", FileKind::Executable);
  host.probe = [files = std::move(files)](const std::string& path) {
    const auto found = files.find(path);
    return found == files.end() ? FileKind::Missing : found->second;
  };
  return host;
}

HostFacts desk_with(std::vector<EnvironmentEntry> environment) {
  HostFacts host;
  host.hostname = "desk";
  host.usable_cpus = 4;
  host.random_id = "0123456789abcdef";
  host.working_directory = "/job";
  host.environment = std::move(environment);
  host.probe = [](const std::string& path) {
    return path.find("missing") == path.npos ? FileKind::Executable : FileKind::Missing;
  };
  return host;
}

Options running(const std::string& program) {
  Options options;
  options.program = program;
  return options;
}

Result<Command> parse_line(Words words, const HostFacts& host, const std::string& name) {
  words.insert(words.begin(), name);
  return parse_command_line(words, [&host](std::string_view each) { return variable(host, each); });
}

Result<Options> parse_options(Words words, const HostFacts& host, const std::string& name) {
  Result<Command> command = parse_line(std::move(words), host, name);
  if (!command) return command.error();
  return std::get<Options>(*std::move(command));
}

Options options_of(Words words, const HostFacts& host, const std::string& name) {
  return value_of(parse_options(std::move(words), host, name));
}

Plan plan_of(const Options& options, const HostFacts& host) {
  return value_of(make_plan(options, host));
}

JoinSpec join_of(Options options, const HostFacts& host) {
  if (options.program.empty()) options.program = "train";
  return plan_of(options, host).agent.join;
}

std::string plan_error(Options options, const HostFacts& host) {
  if (options.program.empty()) options.program = "train";
  return usage_error(make_plan(options, host));
}

hosts::HostPlan host_plan_of(const Words& words, const HostFacts& host) {
  return value_of(hosts::make_host_plan(options_of(words, host), host, "/opt/drun"));
}

Result<Plan> planned_node(const hosts::HostPlan& plan, std::size_t rank, const HostFacts& host) {
  hosts::HostReport report{.facts = host, .answers = {}};
  for (;;) {
    auto step = hosts::plan_node(plan, rank, report);
    if (!step) return step.error();
    if (auto* const made = std::get_if<Plan>(&*step)) return std::move(*made);
    hosts::LookupAnswers answers = hosts::look_up(std::get<hosts::Lookups>(*step), host);
    report.answers.files.merge(answers.files);
    if (answers.topology) report.answers.topology = answers.topology;
    if (!answers.topology_problem.empty())
      report.answers.topology_problem = answers.topology_problem;
  }
}

Plan node_plan_of(const hosts::HostPlan& plan, std::size_t rank, const HostFacts& host) {
  return value_of(planned_node(plan, rank, host));
}

std::string host_plan_error(const Words& words, const HostFacts& host) {
  return usage_error(hosts::make_host_plan(options_of(words, host), host, "/opt/drun"));
}

}  // namespace drun::test
