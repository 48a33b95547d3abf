#include "launcher/hosts/host_plan.h"

#include <algorithm>
#include <utility>

#include "launcher/base/text.h"
#include "launcher/base/words.h"
#include "launcher/cli/option_values.h"
#include "launcher/hosts/host_pool.h"
#include "launcher/hosts/local_nodes.h"
#include "launcher/hosts/remote_command.h"
#include "launcher/plan/plan.h"
#include "launcher/plan/programs.h"
#include "launcher/plan/rendezvous.h"

namespace drun::hosts {
namespace {

bool has_streams(const StreamChoice& choice) { return choice.all != 0 || !choice.of_ranks.empty(); }

bool has_filters(const Options& options) {
  return !options.duplicate_stdout_filters.empty() || !options.duplicate_stderr_filters.empty();
}

Result<void> check_lines_home(const Options& options) {
  if (options.gather_logs && options.hosts.leaves_logs_there)
    return usage_error("--gather-logs and --no-gather-logs", "they conflict; remove one");
  return check_output(options);
}

// Whether the hosts' lines are sent here.
bool gathers_here(const Options& options) {
  if (options.hosts.leaves_logs_there || options.doctor) return false;
  if (options.hosts.local_nodes && !options.gather_logs) return false;  // one folder per node
  if (names_log_directory(options)) return !has_filters(options);
  return options.gather_logs && writes_files(options);
}

// Absent unless gathers_here().
Result<std::optional<OutputSpec>> plan_lines_home(const Options& options, const HostFacts& host) {
  if (Result<void> fits = check_lines_home(options); !fits) return fits.error();
  if (!gathers_here(options)) return std::optional<OutputSpec>();
  OutputSpec spec;
  spec.mode = options.sources.contains("--output") ? options.output : OutputMode::Labeled;
  spec.has_timestamps = options.timestamps;
  spec.gathers = true;
  spec.label_template = options.programs.empty() ? kHostLabel : kHostRoleLabel;
  if (const auto label = chosen_label(options, host)) spec.label_template = *label;
  if (names_log_directory(options)) spec.log_dir = plan_log_dir(options, host);
  return std::optional(spec);
}

constexpr std::size_t kSeats = 3;

// `hosts` is the number of hosts with workers.
Result<void> check_node_count(const Options& options, std::size_t hosts) {
  if (!options.nnodes) return {};
  const NodeRange& nodes = *options.nnodes;
  const auto most = static_cast<std::size_t>(nodes.max);
  const std::string there =
      (hosts == 1 ? "there is " : "there are ") + counted(hosts, "host") + " with workers";
  if (!options.has_node_range())
    return most == hosts ? Result<void>()
                         : usage_error("--nnodes=" + std::to_string(most),
                                       there + ", and each is a node; remove the option");
  if (most > hosts)
    return usage_error(
        "--nnodes=" + std::to_string(nodes.min) + ":" + std::to_string(nodes.max),
        there + ", and no others can join; write " +
            std::to_string(std::min<std::size_t>(hosts, static_cast<std::size_t>(nodes.min))) +
            ":" + std::to_string(hosts) + ", or list more hosts");
  return {};
}

// With three or more hosts the first three are endpoints, and the job survives the loss of one.
// With fewer hosts, --master-addr or --store=worker, only the first host is an endpoint. Call it
// after the rendezvous endpoint is set.
void plan_elastic_hosts(HostPlan& plan, const Options& options) {
  if (!options.has_node_range()) return;
  plan.nodes_wanted = *options.nnodes;
  const bool is_one =
      plan.has_own_address || options.store == StoreHost::Worker || plan.nodes.size() < kSeats;
  for (std::size_t seat = 0; seat < (is_one ? 1 : kSeats); ++seat) plan.seats.push_back(seat);
  if (!plan.local_nodes) {
    plan.endpoints = plan.seats;
    plan.has_workers_store = options.store == StoreHost::Worker;
  } else if (options.store == StoreHost::Worker && !options.master_port &&
             plan.local_ports.empty()) {
    plan.master_port = kMeetingPort;  // rank 0 listens on the master port
  }
}

// Rejects options that a job over ssh does not support.
Result<void> check(const Options& options) {
  const std::string with = options.hosts.local_nodes ? "with --local-nodes, " : "with --hosts, ";
  if (options.hosts.local_nodes) {
    if (Result<void> fits = check_local_nodes(options); !fits) return fits;
  }
  if (options.hosts.hosts && options.hosts.hostfile)
    return usage_error("--hosts and --hostfile",
                       "they conflict; use one of them, and --include to select hosts");
  if (options.node_rank)
    return usage_error("--node-rank",
                       with + "the order of the nodes sets the node ranks; remove the option");
  if ((options.exclude_after || options.exclude_slow) && !options.has_node_range())
    return usage_error(options.exclude_after ? "--exclude-after" : "--exclude-slow",
                       with +
                           "there are no spare nodes; remove the option, or set the required "
                           "number of nodes with --nnodes=MIN:MAX");
  if (options.requeue)
    return usage_error("--requeue",
                       with +
                           "drun does not requeue the Slurm job; start drun with srun on each "
                           "node, or remove the option");
  if (options.standalone)
    return usage_error("--standalone",
                       "it means one node and cannot be combined with --hosts or --local-nodes");
  if (options.rdzv_endpoint || options.rdzv_backend.value_or("static") != "static")
    return usage_error("--rdzv-backend, --rdzv-endpoint",
                       with +
                           "the nodes meet on the first of them or on --master-addr; remove these "
                           "options");
  if (options.output == OutputMode::Raw)
    return usage_error("--output=raw",
                       "not allowed " + with + "because lines of several nodes would be mixed");
  if (options.hosts.include && options.hosts.exclude)
    return usage_error("--include and --exclude", "write one of them");
  return {};
}

Result<Pool> pool_of(const Options& options, const HostFacts& host) {
  const HostOptions& host_options = options.hosts;
  if (host_options.local_nodes) return local_pool(options);
  std::string source = "--hosts=" + host_options.hosts.value_or("");
  std::optional<std::string> text = host_options.hosts;
  if (!text) {
    source = "--hostfile=" + *host_options.hostfile;
    text = host.file_text ? host.file_text(*host_options.hostfile) : std::nullopt;
    if (!text)
      return usage_error(source,
                         "cannot read the file, or it is over 4 MiB; give the path of a text file "
                         "with one host per line");
  }
  Result<Pool> pool = host_options.hosts ? parse_hosts(*text) : parse_host_file(*text);
  if (!pool) return with_context(pool.error(), source);
  if (host_options.include) {
    pool = included(Pool(*pool), *host_options.include);
    if (!pool) return with_context(pool.error(), "--include=" + *host_options.include);
  }
  if (host_options.exclude) {
    pool = excluded(Pool(*pool), *host_options.exclude);
    if (!pool) return with_context(pool.error(), "--exclude=" + *host_options.exclude);
  }
  return pool;
}

Result<void> check_inject(const Options& options, const std::vector<Share>& shares) {
  JobSize size{.nodes = static_cast<int>(shares.size()), .workers = 0};
  for (const Share& share : shares)
    size.workers = size.workers && share.workers ? std::optional(*size.workers + *share.workers)
                                                 : std::nullopt;
  if (Result<void> fits = check_faults(options.inject, size); !fits)
    return with_context(fits.error(), "--inject");
  const bool has_networks = options.hosts.local_nodes && options.hosts.local_nodes->has_networks;
  for (const Fault& fault : options.inject.faults)
    if (fault.kind == FaultKind::CutNode && !has_networks)
      return usage_error("--inject=" + fault.text,
                         "only a network that drun has made is cut; write --local-nodes=N,netns");
  return {};
}

SpreadRequest settings_of(const Options& options) {
  SpreadRequest wish{.np = options.hosts.np,
                     .map_by = options.hosts.map_by.value_or(MapBy{}),
                     .oversubscribe = options.hosts.oversubscribe};
  if (!options.nproc_per_node) return wish;
  if (const int* count = std::get_if<int>(&*options.nproc_per_node))
    wish.per_node = *count;
  else
    wish.has_per_node_word = true;
  return wish;
}

// The user's secret, or else a new one for this job.
Result<void> choose_secret(HostPlan& plan, const Options& options, const HostFacts& host) {
  JoinSpec join;
  if (Result<void> planned = plan_secret(join, options, host); !planned) return planned.error();
  if (join.secret) {
    plan.secret = join.secret->bytes();
    plan.secret_from = join.secret->from();
  } else if (plan.nodes.size() > 1 && host.new_secret && !plan.local_nodes) {
    plan.secret = host.new_secret();
    plan.secret_from = "this job's own";
  }
  return {};
}

// mpirun users often pass them to the workers: -x MASTER_ADDR=node01 -x MASTER_PORT=29500.
Result<void> place_meeting(HostPlan& plan, const Options& options,
                           const std::vector<EnvironmentEntry>& exports) {
  auto addr = options.master_addr ? options.master_addr : value_of(exports, "MASTER_ADDR");
  if (addr && addr->empty()) addr.reset();
  std::optional<int> port = options.master_port;
  if (const auto text = value_of(exports, "MASTER_PORT"); text && !port) {
    const Result<int> parsed = parse_port(*text);
    if (!parsed) return usage_error("-x MASTER_PORT=" + *text, parsed.error().message);
    port = *parsed;
  }
  if (plan.nodes.size() == 1 && !addr && !port) return {};
  plan.has_own_address = addr.has_value();
  plan.master_addr = addr.value_or(address_of(plan.nodes.front()));
  if (plan.nodes.size() > 1 && !plan.local_nodes) {
    plan.master_port = port.value_or(0);
    plan.endpoints = {0};
    return {};
  }
  const int usual = plan.local_ports.empty() ? kMasterPort : plan.local_ports.front();
  plan.master_port = port.value_or(usual);
  if (plan.master_port == 0 && plan.nodes.size() > 1)
    return usage_error("--master-port=0",
                       "the other nodes cannot know a free port; choose one, such as 29500");
  return {};
}

std::vector<EnvironmentEntry> environment_of(const PoolHost& host,
                                             const std::vector<EnvironmentEntry>& exports) {
  std::vector<EnvironmentEntry> environment = exports;
  if (host.devices.empty()) return environment;
  const auto text_of = [](int device) { return std::to_string(device); };
  set_variable(environment, {"CUDA_VISIBLE_DEVICES", joined(host.devices, ",", text_of)});
  return environment;
}

std::vector<HostNode> nodes_of(const std::vector<Share>& shares,
                               const std::vector<EnvironmentEntry>& exports, const HostFacts& host,
                               const Options& options) {
  const char* const role = options.programs.empty() ? "" : " ${role_name}";
  std::vector<HostNode> nodes;
  const auto own_label = chosen_label(options, host);
  for (const Share& share : shares) {
    const std::string label = own_label.value_or("[" + share.host.name + ":${rank}" + role + "]: ");
    nodes.push_back({.name = share.host.name,
                     .user = share.host.user,
                     .address = {},
                     .cpus = {},
                     .workers = share.workers,
                     .ssh_command = {},
                     .environment = environment_of(share.host, exports),
                     .label = label,
                     .programs = {}});
  }
  return nodes;
}

// Ranks are consecutive over programs as they are over hosts. If numbers are given per host, every
// host runs every program.
Result<void> deal_programs(HostPlan& plan, const Options& options, const HostFacts& host,
                           PlanNotes& notes) {
  if (options.programs.empty()) return {};
  if (options.hosts.np && options.has_node_range())
    return usage_error("-np",
                       "with --nnodes=MIN:MAX the hosts and their order are not known in advance; "
                       "use --nproc-per-node for each program");
  const auto programs = with_values(options.programs, host, notes);
  if (!programs) return programs.error();
  RankShare share;
  for (HostNode& node : plan.nodes) {
    share = {.first = share.first + share.count, .count = node.workers.value_or(0)};
    node.programs = options.hosts.np ? programs_of(*programs, share) : *programs;
    if (!node.workers || options.doctor) continue;
    if (const auto roles = roles_of(node.programs); !roles)
      return with_context(roles.error(), node.name);
  }
  return {};
}

// A login takes about 300 ms, including 40 ms of this machine's processor time: more logins at a
// time only delay one another.
int default_fanout(const HostFacts& host) { return std::clamp(16 * host.usable_cpus, 32, 256); }

HostPlan frame_of(const Options& options, const HostFacts& host) {
  const bool is_torchrun = options.invoked_as == "torchrun";
  return {
      .options = options,
      .run_id = options.rdzv_id && !options.rdzv_id->empty() ? *options.rdzv_id : host.random_id,
      .directory = host.working_directory,
      .fanout = options.hosts.fanout.value_or(default_fanout(host)),
      .gives_stdin = options.stdin_source == StdinSource::Rank0,
      .exit_codes =
          options.exit_code.value_or(is_torchrun ? ExitCodeStyle::Torchrun : ExitCodeStyle::Drun)};
}

}  // namespace

bool writes_files(const Options& options) {
  return options.log_dir != "/dev/null" && !options.doctor &&
         (has_streams(options.redirects) || has_streams(options.tee) || has_filters(options));
}

std::string address_of(const HostNode& node) {
  return node.address.empty() ? node.name : node.address;
}

Result<HostPlan> make_host_plan(const Options& given, const HostFacts& host,
                                const std::string& own_path) {
  Options options = given;
  if (const auto& local = given.hosts.local_nodes)
    options.nnodes = NodeRange{.min = local->min, .max = local->max};
  if (Result<void> fits = check(given); !fits) return fits.error();
  if (host.working_directory.empty())
    return Error{ErrorCode::System,
                 "the working directory has been removed; start drun in one that all hosts have"};
  const Result<Pool> pool = pool_of(options, host);
  if (!pool) return pool.error();
  const Result<std::vector<Share>> shares = spread(*pool, settings_of(options));
  if (!shares) return shares.error();
  if (Result<void> fits = check_inject(options, *shares); !fits) return fits.error();
  if (Result<void> fits = check_node_count(options, shares->size()); !fits) return fits.error();
  PlanNotes notes;
  const Lookup here = [&host](std::string_view name) { return variable(host, name); };
  const auto exports = exported(options.hosts.exports, here, notes);
  if (!exports) return exports.error();
  const Result<ReportFiles> reports = report_files(options.reports, host);
  if (!reports) return reports.error();
  HostPlan plan = frame_of(options, host);
  PlanNotes repeated;  // the agents report them
  plan.termination_signals = plan_signals(options, repeated);
  plan.report_file = reports->json.value_or("");
  plan.html_report_file = reports->html.value_or("");
  plan.nodes = nodes_of(*shares, *exports, host, options);
  auto lines = plan_lines_home(options, host);
  if (!lines) return lines.error();
  plan.lines = *std::move(lines);
  plan.keeps_all_lines = plan.lines && plan.lines->log_dir;
  if (auto dealt = deal_programs(plan, options, host, notes); !dealt) return dealt.error();
  if (options.doctor) {  // one probe on each of the job's hosts
    for (HostNode& node : plan.nodes) node.workers = 1;
  }
  if (options.hosts.local_nodes) {
    if (Result<void> done = settle_local_nodes(plan, options, host); !done) return done.error();
  }
  if (Result<void> placed = place_meeting(plan, options, *exports); !placed) return placed.error();
  plan_elastic_hosts(plan, options);
  if (Result<void> chosen = choose_secret(plan, options, host); !chosen) return chosen.error();
  for (HostNode& node : plan.nodes)
    node.ssh_command = plan.local_nodes ? std::vector<std::string>{own_path, "--from-stdin"}
                                        : ssh_command(options.hosts, node, own_path);
  plan.warnings.insert(plan.warnings.end(), notes.warnings.begin(), notes.warnings.end());
  return plan;
}

}  // namespace drun::hosts
