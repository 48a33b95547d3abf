// The plan of a job with --hosts, as text and as JSON.

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "launcher/base/text.h"
#include "launcher/base/words.h"
#include "launcher/hosts/host_plan.h"
#include "launcher/plan/programs.h"
#include "rendezvous/net/endpoint.h"

namespace drun::hosts {
namespace {

using Json = nlohmann::ordered_json;

std::string field(std::string label, const std::string& value) {
  label.resize(13, ' ');
  return label + value + "\n";
}

// Names only: values of variables may be secrets.
std::string names_of(const std::vector<EnvironmentEntry>& environment) {
  return joined(environment, " ", &EnvironmentEntry::first);
}

// The programs of a node, or else the job's only one.
std::vector<ProgramOptions> programs_on(const HostPlan& plan, const HostNode& node) {
  const Options& options = plan.options;
  if (!node.programs.empty() || options.program.empty()) return node.programs;
  ProgramOptions only{.role = options.role.value_or("default"),
                      .program = options.program,
                      .arguments = options.program_arguments};
  if (node.workers) only.nproc_per_node = WorkerCount(*node.workers);
  return {only};
}

std::vector<std::string> command_of(const ProgramOptions& program) {
  std::vector<std::string> words{program.program};
  words.insert(words.end(), program.arguments.begin(), program.arguments.end());
  return words;
}

std::string program_text(const ProgramOptions& program) {
  std::string names;
  for (const std::string& entry : program.exports) names += " " + entry.substr(0, entry.find('='));
  return shell_quoted(command_of(program)) + (names.empty() ? "" : "  (sets" + names + ")");
}

Json program_json(const ProgramOptions& program) {
  const int* workers =
      program.nproc_per_node ? std::get_if<int>(&*program.nproc_per_node) : nullptr;
  Json variables = Json::object();
  for (const std::string& entry : program.exports) {
    const std::size_t equals = entry.find('=');
    variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return {{"role", program.role},
          {"workers", workers == nullptr ? Json(nullptr) : Json(*workers)},
          {"command", command_of(program)},
          {"variables", std::move(variables)}};
}

std::string workers_text(const HostNode& node) {
  if (!node.workers) return "number of workers counted on the host";
  return counted(*node.workers, "worker");
}

std::string meeting_of(const HostPlan& plan) {
  const bool is_free = plan.master_port == 0;
  const std::string port =
      is_free ? "a free port of each" : "port " + std::to_string(plan.master_port);
  if (plan.seats.size() > 1) {
    const auto name_of = [&plan](std::size_t seat) { return plan.nodes[seat].name; };
    return joined(plan.seats, ", ", name_of) + (plan.local_ports.empty() ? ", " + port : "") +
           "; one of them may be lost";
  }
  if (plan.master_addr.empty()) return "on that host, any free port";
  if (!plan.endpoints.empty() && !plan.has_own_address)
    return "on " + plan.master_addr + ", at an address that it reports, " +
           (is_free ? "a free port" : port);
  if (is_free && !plan.endpoints.empty()) return plan.master_addr + ", a free port";
  return to_string(Endpoint{plan.master_addr, static_cast<std::uint16_t>(plan.master_port)});
}

// Where the workers' lines are written to files; empty: nowhere.
std::string files_text(const HostPlan& plan) {
  const Options& options = plan.options;
  if (!plan.lines && !writes_files(options)) return "";
  const std::string selected = "; streams selected by --redirects and --tee";
  if (plan.lines)
    return plan.lines->log_dir.value_or("in a temporary directory") +
           ", on this machine, one directory per rank" + (plan.keeps_all_lines ? "" : selected);
  const std::string directory = options.log_dir.value_or("");
  if (plan.local_nodes)
    return (directory.empty() ? "in a temporary directory of each node"
                              : directory + "/node0 and so on, one directory per node") +
           selected;
  return (directory.empty() ? "in a temporary directory" : directory) + ", on each host" + selected;
}

// Without the last word, which is a script of 1.5 KB.
std::string login_text(const std::vector<std::string>& ssh_command) {
  return shell_quoted({ssh_command.begin(), ssh_command.end() - 1}) +
         " SCRIPT, which starts drun there (whole in --dry-run=json)";
}

}  // namespace

std::string host_plan_text(const HostPlan& plan) {
  std::string text = field("run id", plan.run_id);
  text += field("hosts", plan.local_nodes
                             ? std::to_string(plan.nodes.size()) + " nodes, all on this machine"
                             : std::to_string(plan.nodes.size()) + ", over ssh, " +
                                   std::to_string(plan.fanout) + " concurrent logins at most");
  if (plan.nodes_wanted)
    text += field("nodes", "at least " + std::to_string(plan.nodes_wanted->min) + ", at most " +
                               std::to_string(plan.nodes_wanted->max));
  text += field("meet", meeting_of(plan));
  text += field("directory", plan.directory);
  if (!plan.secret.empty()) text += field("secret", plan.secret_from);
  if (plan.gives_stdin) text += field("stdin", "this drun's, sent to rank 0");
  if (const std::string files = files_text(plan); !files.empty()) text += field("log files", files);
  for (std::size_t rank = 0; rank < plan.nodes.size(); ++rank) {
    const HostNode& node = plan.nodes[rank];
    text += "\n" + field("node " + std::to_string(rank), node.name + ", " + workers_text(node));
    text += plan.local_nodes ? field("  start", shell_quoted(node.ssh_command))
                             : field("  login", login_text(node.ssh_command));
    if (!node.cpus.empty()) text += field("  cpus", ranges_text(node.cpus));
    for (const ProgramOptions& program : programs_on(plan, node))
      text += field("  program", program_text(program));
    if (!node.environment.empty()) text += field("  variables", names_of(node.environment));
  }
  for (const std::string& warning : plan.warnings) text += field("warning", warning);
  return text;
}

std::string host_plan_json(const HostPlan& plan) {
  Json nodes = Json::array();
  for (const HostNode& node : plan.nodes) {
    Json programs = Json::array();
    for (const ProgramOptions& program : programs_on(plan, node))
      programs.push_back(program_json(program));
    nodes.push_back({{"host", node.name},
                     {"user", node.user.empty() ? Json(nullptr) : Json(node.user)},
                     {"cpus", node.cpus},
                     {"workers", node.workers ? Json(*node.workers) : Json(nullptr)},
                     {"ssh", node.ssh_command},
                     {"programs", std::move(programs)},
                     {"environment", variables_json(node.environment)}});
  }
  const Json json = {
      {"schema", "drun.hosts/1"},
      {"run_id", plan.run_id},
      {"meet", meeting_of(plan)},
      {"nodes_at_least",
       plan.nodes_wanted ? Json(plan.nodes_wanted->min) : Json(plan.nodes.size())},
      {"directory", plan.directory},
      {"fanout", plan.fanout},
      {"secret", plan.secret.empty() ? Json(nullptr) : Json(plan.secret_from)},
      {"log_files_here", plan.lines.has_value()},
      {"log_dir", plan.lines && plan.lines->log_dir ? Json(*plan.lines->log_dir) : Json(nullptr)},
      {"stdin", plan.gives_stdin ? "rank0" : "none"},
      {"nodes", std::move(nodes)},
      {"warnings", plan.warnings}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace drun::hosts
