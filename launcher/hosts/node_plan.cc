#include "launcher/hosts/node_plan.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "launcher/base/text.h"
#include "launcher/cli/option_values.h"
#include "launcher/hosts/local_nodes.h"
#include "launcher/plan/programs.h"
#include "launcher/plan/rendezvous.h"
#include "rendezvous/net/endpoint.h"

namespace drun::hosts {
namespace {

// All nodes start together; torchrun's 30 s allow for nodes that users start by hand.
constexpr const char* kLastCall = "last_call_timeout";
constexpr const char* kLastCallSeconds = "5";
// Of the paths in one message.
constexpr std::size_t kMostPathsBytes = std::size_t{1} << 20;

std::string endpoint_text(const std::string& host, int port) {
  // Without a port, the agent that listens there reports its port.
  if (port != 0) return to_string(Endpoint{.host = host, .port = static_cast<std::uint16_t>(port)});
  return bracketed_host(host);
}

// The agents of --local-nodes share the loopback interface of this machine.
int seat_port(const HostPlan& plan, std::size_t seat) {
  if (seat == 0 || plan.local_ports.empty()) return plan.master_port;
  return plan.local_ports[seat];
}

std::string endpoints_of(const HostPlan& plan) {
  // With a workers' store, rank 0 listens on the master port.
  const int port = plan.has_workers_store ? 0 : plan.master_port;
  if (plan.seats.size() == 1) return endpoint_text(plan.master_addr, port);
  return joined(plan.seats, ",", [&plan](std::size_t seat) {
    return endpoint_text(address_of(plan.nodes[seat]), seat_port(plan, seat));
  });
}

// Sets the node's options about nodes and rendezvous in a job with a fixed number of nodes.
void meet_fixed(Options& options, const HostPlan& plan, std::size_t rank) {
  const int nodes = static_cast<int>(plan.nodes.size());
  options.nnodes = NodeRange{nodes, nodes};
  options.node_rank = static_cast<int>(rank);
  if (plan.master_addr.empty()) return;
  options.master_addr = plan.master_addr;
  if (plan.master_port != 0 || nodes == 1) options.master_port = plan.master_port;
  // Avoids port conflicts between two jobs on one machine.
  if (options.store == StoreHost::Worker && !plan.local_ports.empty())
    options.rdzv_endpoint = endpoint_text(plan.master_addr, plan.local_ports.back());
}

void meet_elastic(Options& options, const HostPlan& plan, std::size_t rank) {
  options.nnodes = plan.nodes_wanted;
  options.rdzv_backend = "c10d";
  options.rdzv_endpoint = endpoints_of(plan);
  // The order of the hosts determines which of them may coordinate.
  std::erase_if(options.rdzv_conf, [](const auto& entry) { return entry.first == "is_host"; });
  if (!rdzv_conf(options, kLastCall)) options.rdzv_conf.emplace_back(kLastCall, kLastCallSeconds);
  const bool has_seat = std::find(plan.seats.begin(), plan.seats.end(), rank) != plan.seats.end();
  options.rdzv_conf.emplace_back("is_host", has_seat ? "1" : "0");
  if (options.store == StoreHost::Worker && !plan.local_ports.empty())
    options.master_port = plan.local_ports.back();
  if (plan.has_workers_store && plan.master_port != 0) options.master_port = plan.master_port;
  // Make node0 rank 0, whichever agent coordinates.
  if (plan.local_nodes && !options.rank_order && options.store == StoreHost::Agent)
    options.rank_order = RankOrder::Natural;
}

void set_log_dir(Options& options, const HostPlan& plan, const HostNode& node) {
  if (plan.lines)
    options.log_dir.reset();  // the launcher writes the files
  else if (plan.local_nodes && names_log_directory(options))
    *options.log_dir += "/" + node.name;
}

// The user's options, limited to this node.
Options node_options(const HostPlan& plan, std::size_t rank) {
  const HostNode& node = plan.nodes[rank];
  Options options = plan.options;
  options.engine = EngineChoice::None;
  options.hosts = {};
  options.rdzv_id = plan.run_id;
  options.rdzv_backend.reset();
  options.master_addr.reset();
  options.master_port.reset();
  if (plan.nodes_wanted)
    meet_elastic(options, plan, rank);
  else
    meet_fixed(options, plan, rank);
  options.programs = node.programs;
  if (!node.programs.empty()) {  // these options are the programs' own
    options.role.reset();
    options.gpus_per_worker.reset();
  }
  if (node.workers && (node.programs.empty() || options.doctor))
    options.nproc_per_node = WorkerCount(*node.workers);
  if (!options.sources.contains("--output") && !options.doctor)
    options.output = OutputMode::Labeled;
  options.gather_logs = false;
  set_log_dir(options, plan, node);
  options.secret_file.reset();  // see HostPlan::secret
  options.reports.clear();
  options.dry_run.reset();
  options.explain = false;
  return options;
}

// The facts of the node's host, and what the launcher knows about the node.
HostFacts node_facts(const HostPlan& plan, std::size_t rank, HostFacts host) {
  for (const EnvironmentEntry& entry : plan.nodes[rank].environment)
    if (!names_devices(entry.first)) host.exports.push_back(entry);
  host.addresses_of = {};  // the launcher has chosen the endpoints
  if (!plan.secret.empty()) set_variable(host.environment, {kSecretVariable, plan.secret});
  LaunchedNode& launched = host.launched.emplace();
  launched.is_placed_later = !plan.endpoints.empty();
  const auto seat = std::find(plan.endpoints.begin(), plan.endpoints.end(), rank);
  if (seat != plan.endpoints.end())
    launched.seat = static_cast<std::size_t>(seat - plan.endpoints.begin());
  return host;
}

// Sends the workers' lines to the launcher, which stores and prints them.
void send_lines(OutputSpec& output, const HostPlan& plan) {
  if (!plan.lines) return;
  output.gathers = true;
  output.gathers_by_channel = true;
  if (!plan.keeps_all_lines) return;
  for (auto& streams : output.streams)
    for (StreamPlan& stream : streams) stream.to_file = true;
}

void complete(Plan& made, const HostPlan& plan, std::size_t rank, const HostFacts& host) {
  const bool has_network = plan.local_nodes && plan.local_nodes->has_networks;
  made.agent.host = plan.nodes[rank].name;
  made.agent.faults.cut_interface = has_network ? kNodeInterface : "";
  made.agent.join.has_private_network = has_network;
  made.agent.keeps_events = !plan.html_report_file.empty();
  // The label of --hosts, unless a variable on the host sets another.
  if (!variable(host, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"))
    made.agent.output.label_template = plan.nodes[rank].label;
  send_lines(made.agent.output, plan);
}

}  // namespace

LookupAnswers look_up(const Lookups& lookups, const HostFacts& here) {
  LookupAnswers answers;
  for (const std::string& path : lookups.paths) answers.files[path] = here.probe(path);
  if (!lookups.has_topology) return answers;
  Result<Topology> topology = here.topology();
  if (topology)
    answers.topology = *std::move(topology);
  else
    answers.topology_problem = topology.error().message;
  return answers;
}

Lookups expected_lookups(const HostPlan& plan, std::size_t rank, const HostFacts& here) {
  Lookups all;
  HostReport report{.facts = here, .answers = {}};
  for (;;) {
    const auto step = plan_node(plan, rank, report);
    const Lookups* next = step ? std::get_if<Lookups>(&*step) : nullptr;
    if (next == nullptr) return all;
    for (const std::string& path : next->paths) {
      all.paths.push_back(path);
      report.answers.files[path] = here.probe(path);
    }
    all.has_topology = all.has_topology || next->has_topology;
    if (next->has_topology) report.answers.topology_problem = "of no interest here";
  }
}

Result<std::variant<Lookups, Plan>> plan_node(const HostPlan& plan, std::size_t rank,
                                              const HostReport& report) {
  const LookupAnswers& answers = report.answers;
  HostFacts host = node_facts(plan, rank, report.facts);
  std::set<std::string> paths;
  std::size_t paths_bytes = 0;
  host.probe = [&](const std::string& path) {
    const auto found = answers.files.find(path);
    if (found != answers.files.end()) return found->second;
    if (paths_bytes <= kMostPathsBytes && paths.insert(path).second) paths_bytes += path.size();
    return FileKind::Missing;
  };
  Lookups missing;
  host.topology = [&]() -> Result<Topology> {
    if (answers.topology) return *answers.topology;
    missing.has_topology = answers.topology_problem.empty();
    return Error{ErrorCode::System, answers.topology_problem};
  };
  Options options = node_options(plan, rank);
  if (!options.log_level) {
    const auto level = parse_word<kLogLevelWords>(variable(host, "LOGLEVEL").value_or(""));
    if (level) options.log_level = *level;
  }
  Result<Plan> made = make_plan(options, host);
  if (paths_bytes > kMostPathsBytes)
    return Error{ErrorCode::Usage, "the program cannot be looked up: PATH is too long there"};
  missing.paths.assign(paths.begin(), paths.end());
  if (!missing.is_empty()) return std::variant<Lookups, Plan>(std::move(missing));
  if (!made) return made.error();
  complete(*made, plan, rank, host);
  return std::variant<Lookups, Plan>(*std::move(made));
}

Result<void> check_ranks(const HostPlan& plan, std::int64_t workers) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  const JobSize size{.nodes = static_cast<int>(plan.nodes.size()),
                     .workers = static_cast<int>(std::min(workers, kMost))};
  if (Result<void> fits = check_faults(plan.options.inject, size); !fits)
    return with_context(fits.error(), "--inject");
  for (const int rank : plan.options.wrap_ranks.value_or(std::vector<int>{})) {
    if (rank < workers) continue;
    return usage_error("--wrap-ranks", "there is no rank " + std::to_string(rank) +
                                           "; ranks are 0 to " + std::to_string(workers - 1));
  }
  return {};
}

bool names_devices(std::string_view variable) {
  return variable == "CUDA_VISIBLE_DEVICES" || variable == "HIP_VISIBLE_DEVICES" ||
         variable == "ROCR_VISIBLE_DEVICES";
}

}  // namespace drun::hosts
