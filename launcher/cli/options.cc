#include "launcher/cli/options.h"

#include <algorithm>
#include <vector>

#include "launcher/base/build_info.h"
#include "launcher/base/version.h"
#include "launcher/cli/help.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/option_values.h"
#include "launcher/cli/parse_programs.h"
#include "launcher/facts/small_files.h"

namespace drun {
namespace {

void declare_job(OptionTable& table, Options& options) {
  table.group("The job");
  table.value("--nnodes", options.nnodes, parse_nodes, "N|MIN:MAX",
              "nodes in the job (1); MIN:MAX with c10d or etcd: they may come and go");
  table.value("--nproc-per-node", options.nproc_per_node, parse_workers, "N|auto|cpu|gpu",
              "workers on this node (1); auto: one a GPU, else one a core");
  table.value("--node-rank", options.node_rank, parse_rank, "N", "which node this is (0)");
  table.value("--master-addr", options.master_addr, parse_text, "HOST",
              "node 0: name or address, as the others reach it (127.0.0.1)");
  table.value("--master-port", options.master_port, parse_port, "P",
              "the one port of the job, on node 0 (29500; one node alone: any free one)");
  table.flag("--standalone", options.standalone, "one node, any free port, a random run id");
  const auto set_restarts = [&options](RestartBudget restarts) {
    options.max_restarts = restarts.most;
    options.restart.window = restarts.window;
  };
  table.value<RestartBudget>("--max-restarts", set_restarts, parse_restarts, "N[/TIME]",
                             "times that a failed job is begun again, counted once for all nodes, "
                             "or within any such TIME, as 3/1h (0)");
  table.value("--rdzv-id", options.rdzv_id, parse_text, "ID",
              "run id, the same on all nodes (none)");
  table.value(
      "--rdzv-backend", options.rdzv_backend, parse_text, "NAME",
      "static: nodes have a --node-rank; c10d: they need none; etcd: nor does any of them have to "
      "last, one is elected to coordinate (also etcd-v2, etcd-v3: the same) (static)");
  table.value(
      "--rdzv-endpoint", options.rdzv_endpoint, parse_text, "HOST[:P],...",
      "where the nodes meet, instead of --master-addr and --master-port; c10d: of three "
      "or five one coordinates the job, and another takes over when it is lost; etcd: where that "
      "is, port 2379");
  table.value("--rdzv-conf", options.rdzv_conf, parse_pairs, "K=V,...",
              "join_timeout=S: wait for missing nodes (900; c10d: 600); last_call_timeout=S: from "
              "MIN nodes to the first world (30); is_host=0|1: this node listens (guessed), or may "
              "coordinate (1); etcd: protocol=https, cert, key, cacert: PEM files");
  table.value("--local-addr", options.local_addr, parse_text, "ADDR",
              "etcd: where others reach this node (whence it would talk to etcd)");
  table.value("-n,--np", options.hosts.np, parse_positive, "N",
              "workers in all, on --hosts; without them, on this machine", kMpiruns);
  table.value("--engine", options.engine, parse_engine, "auto|none",
              "ask Slurm, mpirun, Kubernetes ... for what is not given above (auto)", kOwn);
  table.value("--role", options.role, parse_text, "NAME", "ROLE_NAME of the workers (default)");
}

void declare_hosts(OptionTable& table, Options& options) {
  HostOptions& hosts = options.hosts;
  table.group("Other machines, over ssh (docs/guide/ssh.md)");
  table.value("-H,--hosts", hosts.hosts, parse_text, "LIST",
              "start the job there, from here: a,b:2,node[02-04]:4,user@host; :N: its workers",
              kMpiruns);
  table.value("--hostfile", hosts.hostfile, parse_text, "FILE",
              "the same from a file, a host a line, also as host slots=N", kMpiruns);
  table.value("--include", hosts.include, parse_text, "HOSTS",
              "only these of them, or their GPUs: host1@host2:0,2", kOwnWithoutVariable);
  table.value("--exclude", hosts.exclude, parse_text, "HOSTS", "all but these",
              kOwnWithoutVariable);
  table.values("-x,--export", hosts.exports, "VAR[=VALUE]",
               "a variable for the workers; may be repeated", kOwnWithoutVariable);
  table.value("--map-by", hosts.map_by, parse_map_by, "HOW",
              "of --np: slot: fill a host, then the next; node: one on each in turn; ppr:N:node: N "
              "on each (slot)",
              kMpiruns);
  table.flag("--oversubscribe", hosts.oversubscribe, "more workers on a host than it has slots",
             kMpiruns);
  table.value("--ssh", hosts.ssh, parse_text, "PROGRAM", "instead of ssh", kOwnWithoutVariable);
  table.value("--ssh-args", hosts.ssh_args, parse_command, "ARGS",
              "more arguments for it, such as '-F my_config -p 2222'", kOwnWithoutVariable);
  table.value("--fanout", hosts.fanout, parse_positive, "N",
              "logins at the same time (4 a core of this machine, 8 to 64)", kOwnWithoutVariable);
  table.value("--ssh-tree", hosts.ssh_tree, parse_positive, "N",
              "log in to N hosts, and from each of them to its share of the others (all from here; "
              "beyond 64 hosts the square root)",
              kOwnWithoutVariable);
  table.value("--login-timeout", hosts.login_timeout, parse_interval, "S",
              "for a host to log in and answer (120)", kOwnWithoutVariable);
  for (const char* other : {"--host", "--machinefile"}) {
    auto& field = std::string_view(other) == "--host" ? hosts.hosts : hosts.hostfile;
    table.value(other, field, parse_text, "", "", kMpiruns)->group("");
  }
  table.values("--mca", hosts.mca, "NAME VALUE",
               "Open MPI's setting, as mpirun's lines have it: OMPI_MCA_NAME for the workers",
               kMpirunsPairs);
  table.flag("--allow-run-as-root", hosts.allow_run_as_root, "", kMpiruns)->group("");
}

void declare_security(OptionTable& table, Options& options) {
  table.group("Keeping strangers out");
  table.value("--secret-file", options.secret_file, parse_text, "FILE",
              "a secret that all nodes share: what drun says between nodes is encrypted, who does "
              "not know it is turned away; else DRUN_SECRET (none)",
              kOwn);
  table.flag("--pass-secret", options.pass_secret, "leave DRUN_SECRET in the workers' environment",
             kOwn);
}

void declare_survival(OptionTable& table, Options& options) {
  table.group("Failures, and nodes that come and go");
  table.value("--heartbeat-timeout", options.heartbeat_timeout, parse_interval, "S",
              "silence after which a node is lost (10)", kOwn);
  table.value("--hang-timeout", options.hang_timeout, parse_interval, "S",
              "a worker without two signs of life for so long has hung: stacks of all ranks are "
              "shown, and it counts as failed (not looked for)",
              kOwn);
  table.value("--restart-on", options.restart.only_on, parse_exit_kinds, "CODES,SIGNALS",
              "restart only if the first failure was one of these, as 1,42,SIGKILL", kOwn);
  table.value("--no-restart-on", options.restart.never_on, parse_exit_kinds, "CODES,SIGNALS",
              "never restart after one of these", kOwn);
  const auto set_pause = [&options](RestartPause pause) {
    options.has_restart_backoff = true;
    options.restart.pause = pause.first;
    if (pause.most) options.restart.most_pause = *pause.most;
  };
  table.value<RestartPause>(
      "--restart-backoff", set_pause, parse_pause, "S[:MOST]",
      "pause before each restart, doubled each time (none, but after failures "
      "at the start 1, 2, 4 ... seconds; under the name torchrun 0:300)",
      kOwn);
  table.value("--max-same-failures", options.max_same_failures, parse_count, "K",
              "end the job after K failures in a row that have the same cause and come within "
              "--startup-time; 0: never (3; 0 under the name torchrun)",
              kOwn);
  table.value(
      "--startup-time", options.restart.startup_time, parse_interval, "S",
      "a failure within S seconds of the start of the workers is a failure at the start (60)",
      kOwn);
  constexpr const char* kOrders =
      "natural: node2 before node10; arrival; endpoint: its node first, then natural if all names "
      "have numbers, else arrival (endpoint)";
  table.value("--rank-order", options.rank_order, parse_rank_order, "ORDER", kOrders, kOwn);
  table.value("--min-uptime", options.min_uptime, parse_seconds, "S",
              "after which a world is stopped for a new node; longer if it was lost (5)", kOwn);
  table.flag("--preflight", options.preflight,
             "look at the machines first, as drun doctor does: with problems nothing is started; "
             "c10d: a spare takes a bad node's place",
             kOwn);
  table.value(
      "--exclude-after", options.exclude_after, parse_positive, "K",
      "c10d: a node whose workers were the first to fail in K rounds in a row is left out; a "
      "spare takes its place (never)",
      kOwn);
}

void declare_program(OptionTable& table, Options& options) {
  table.group("The program");
  table.flag("-m,--module", options.module, "the program is a Python module");
  table.flag("--no-python", options.no_python, "execute the program even if it ends in .py");
  table.flag("--pass-local-rank", options.pass_local_rank,
             "put --local-rank=N in front of the program's arguments", kOwn);
  table.flag("--virtual-local-rank", options.virtual_local_rank,
             "LOCAL_RANK=0 for every worker, and one device each in CUDA_VISIBLE_DEVICES");
  table.value("--app", options.app, parse_text, "FILE",
              "several programs, one a line as -np 4 [option...] program [argument...]; on the "
              "command line : stands between them (docs/guide/programs.md)",
              kMpiruns);
  table.value("--separator", options.separator, parse_separator, "WORD",
              "instead of that :", kOwnWithoutVariable);
  table.value(
      "--stdin", options.stdin_source, parse_stdin, "none|rank0",
      "which worker reads drun's standard input (none; under the name torchrun all inherit it)",
      kOwn);
  table.value("--store", options.store, parse_store, "agent|worker",
              "who serves the TCPStore on the master port: drun, or the program's rank 0; then "
              "drun meets on --rdzv-endpoint, port 29400 (agent)",
              kOwn);
  table.value("--store-memory", options.store_memory_bytes, parse_memory_size, "SIZE",
              "what the store that drun serves may keep; beyond it who asks is closed (1GiB)",
              kOwn);
}

void declare_placement(OptionTable& table, Options& options) {
  table.group("Placement");
  table.value("--bind-to", options.bind_to, parse_bind_to, "WHAT",
              "none; core: one core each; socket, numa: where that core is; gpu: the NUMA node of "
              "its GPUs (none)",
              {.is_torchruns = false, .has_variable = true, .may_have_one_dash = true});
  table.value("--numa-binding", options.numa_binding, parse_numa_binding, "MODE",
              "node, socket, exclusive (a share of the node's cores) or core-complex: those of the "
              "GPU numbered as the local rank",
              kWithoutVariable);
  table.value("--bind-memory", options.bind_memory, parse_memory_policy, "none|prefer|strict",
              "whether bound workers' memory comes from their NUMA nodes (prefer)", kOwn);
  table.value("--gpus-per-worker", options.gpus_per_worker, parse_positive, "N",
              "each worker sees N GPUs of its own in CUDA_VISIBLE_DEVICES", kOwn);
  table.value("--omp-threads", options.omp_threads, parse_omp_threads, "N|auto",
              "OMP_NUM_THREADS; auto: a worker's share of its cores (as inherited, else 1 when "
              "there are several workers)",
              kOwn);
  table.value("--wrap", options.wrap, parse_command, "COMMAND",
              "start the program through this, such as 'gdb -batch -ex run -ex bt --args'; "
              "${rank} and ${local_rank} in it are filled in",
              kOwn);
  table.value("--wrap-ranks", options.wrap_ranks, parse_global_ranks, "0,3",
              "only around these ranks (all)", kOwn);
}

void declare_output(OptionTable& table, Options& options) {
  table.group("Output (SPEC: 0 none, 1 stdout, 2 stderr, 3 both; or by local rank, 0:3,12:1)");
  table.value("--output", options.output, parse_output, "MODE",
              "lines: whole lines; labelled: with the worker's label in front; json: an object a "
              "line, all on stdout; raw: workers write to drun's own descriptors (lines; "
              "labelled with --hosts or --gather-logs)",
              kOwn);
  table.flag("--timestamps", options.timestamps, "a time (UTC) in front of each line", kOwn);
  table.flag(
      "--gather-logs", options.gather_logs,
      "send all workers' lines to node 0's console and log files (docs/reference/output.md); "
      "set it on all nodes. Implied by --hosts with --log-dir",
      kOwn);
  table.flag("--no-gather-logs", options.hosts.leaves_logs_there,
             "with --hosts: each host keeps the files of its workers", kOwn);
  table.value("-r,--redirects", options.redirects, parse_streams, "SPEC", "to files only");
  table.value("-t,--tee", options.tee, parse_streams, "SPEC",
              "to files, and labelled to the console");
  table.value("--log-dir", options.log_dir, parse_text, "DIR",
              "where those files go (a temporary folder; /dev/null: none)");
  table.value("--log-line-prefix-template", options.label, parse_text, "TEXT",
              "the label of a line, with ${role_name}, ${rank}, ${local_rank}, ${node_rank} and "
              "${hostname} filled in; else TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE "
              "([${role_name}${local_rank}]:)");
  table.value("--local-ranks-filter", options.local_ranks_filter, parse_ranks, "0,2",
              "only these workers on the console");
  table.value("--duplicate-stdout-filters", options.duplicate_stdout_filters, parse_words, "A,B",
              "teed lines with one of these words go to filtered_stdout.log too");
  table.value("--duplicate-stderr-filters", options.duplicate_stderr_filters, parse_words, "A,B",
              "the same for stderr");
}

void declare_end(OptionTable& table, Options& options) {
  table.group("The end");
  table.value("--signals-to-handle", options.signals_to_handle, parse_words, "A,B",
              "signals that end the job (SIGTERM,SIGINT,SIGHUP,SIGQUIT)");
  table.value("--shutdown-timeout", options.shutdown_timeout, parse_seconds, "S",
              "from SIGTERM to SIGKILL, for all processes of all workers together (30)");
  table.value("--leftovers", options.leftovers, parse_leftovers, "wait|kill|keep",
              "processes still running when every worker has returned 0: wait up to "
              "--shutdown-timeout for them, then end them; kill them; or keep them running "
              "(wait; keep under the name torchrun)",
              kOwn);
  table.value("--report", options.report, parse_text, "FILE", "write the outcome there as JSON",
              kOwn);
  table.value("--events", options.events, parse_text, "FILE",
              "append a JSON object a line for all that happens on this node", kOwn);
  table.value("--metrics-port", options.metrics, parse_metrics_port, "[ADDR:]PORT",
              "answer HTTP there: /metrics for Prometheus, /status, /livez, /readyz (on 127.0.0.1)",
              kOwn);
  table.value("--exit-code", options.exit_code, parse_exit_code_style, "drun|torchrun",
              "torchrun: 1 for every failure (drun)", kOwn);
}

void declare_accepted(OptionTable& table, Options& options) {
  const auto drop = [](auto&&) {};
  table.group("Taken as torchrun takes them, without effect here");
  table.flag("--run-path", options.run_path, "the program is a Python script");
  table.value<std::chrono::milliseconds>("--monitor-interval", drop, parse_interval, "S",
                                         "drun does not poll");
  table.value<std::string>("--start-method", drop, parse_text, "NAME", "workers are programs");
  table.value<std::string>("--event-log-handler", drop, parse_text, "NAME", "see --events");
  table.value<std::string>("--logs-specs", drop, parse_logs_specs, "default", "no plug-ins",
                           kWithoutVariable);
}

void declare_doctor(OptionTable& table, DoctorWishes& wishes) {
  table.group("Of drun doctor alone");
  table.flag("--json", wishes.is_json, "all that was found, as one JSON object",
             kOwnWithoutVariable);
}

// Help and version are looked for by name: nothing is stored.
void declare_drun(OptionTable& table, Options& options) {
  table.group("drun itself");
  table
      .value("--dry-run", options.dry_run, parse_dry_run, "json",
             "print the plan and stop: nodes, ranks, environment, command", kOwnWithOrWithoutValue)
      ->configurable(false);
  table.flag("--explain", options.explain, "say which engine was asked and where values came from",
             kOwnWithoutVariable);
  // The table reads the file itself: what stands there is then given like a variable.
  table
      .value<std::string>(
          "--config", [](const std::string&) {}, parse_text, "FILE", "options from a TOML file",
          kOwnWithoutVariable)
      ->configurable(false);
  table.value("--log-level", options.log_level, parse_log_level, "LEVEL",
              "of drun's own lines: debug, info, warning, error; else LOGLEVEL (info)", kOwn);
}

void declare_help(OptionTable& table, bool& help, bool& version) {
  table.flag("--version", version, "print the version", kOwnWithoutVariable)->configurable(false);
  table.flag("-h,--help", help, "print this", kWithoutVariable)->configurable(false);
}

// mpirun gives its settings to the processes that it starts in these variables.
Result<void> export_mca(HostOptions& hosts) {
  for (const std::string& setting : hosts.mca) {
    if (setting.find('=') == setting.npos || setting.starts_with('='))
      return usage_error("--mca " + setting, "expected a name and a value, as --mca btl tcp,self");
    hosts.exports.push_back("OMPI_MCA_" + setting);
  }
  return {};
}

Result<void> take_several(Options& options, const Arguments& arguments,
                          const std::vector<KnownOption>& known) {
  if (divides(options, arguments)) return take_programs(options, arguments, known);
  if (!options.app) return {};
  const std::optional<std::string> text = whole_text_of(*options.app);
  if (text) return take_app_file(options, arguments, *text, known);
  return Error{ErrorCode::Usage, "--app=" + *options.app +
                                     ": no such file, not readable, or over 4 MiB; write the path "
                                     "of a text file with a program a line"};
}

}  // namespace

Result<Command> parse_command_line(std::span<const std::string> argv, const Lookup& variables) {
  Options options;
  if (!argv.empty()) options.invoked_as = argv.front().substr(argv.front().rfind('/') + 1);
  const bool is_torchrun = options.invoked_as == "torchrun";
  auto words = argv.empty() ? argv : argv.subspan(1);
  if (words.empty()) return Command(ShowText{short_usage(options.invoked_as), 2});
  if (words.size() == 1 && words.front() == "--from-stdin") return Command(FromStdinCommand{});
  if (!is_torchrun) {
    if (auto helper = parse_helper_command(words, variables)) return *std::move(helper);
  }
  const bool is_doctor = !is_torchrun && words.front() == "doctor";
  if (is_doctor) {
    words = words.subspan(1);
    options.doctor.emplace();
  }

  bool help = false;
  bool version = false;
  OptionTable table(variables);
  if (is_doctor) declare_doctor(table, *options.doctor);
  declare_job(table, options);
  declare_hosts(table, options);
  declare_survival(table, options);
  declare_security(table, options);
  declare_program(table, options);
  declare_placement(table, options);
  declare_output(table, options);
  declare_end(table, options);
  declare_drun(table, options);
  declare_help(table, help, version);
  declare_accepted(table, options);
  Result<Arguments> arguments = table.parse(words);
  if (!arguments) return arguments.error();
  if (help && is_doctor) return Command(ShowText{doctor_help(table.help()), 0});
  if (help) {
    return Command(ShowText{
        help_text(launcher_help_head(options.invoked_as), table.help(), launcher_help_foot()), 0});
  }
  if (version) return Command(ShowText{std::string("drun ") + kVersion + " (" + kBuildInfo + ")\n", 0});
  const bool has_program = arguments->program && !arguments->program->empty();
  if (!has_program && !is_doctor && !options.app) {
    return Error{ErrorCode::Usage, "no program to start; write it after the options: " +
                                       options.invoked_as + " [option...] program [argument...]"};
  }
  options.sources = table.sources();
  if (options.hosts.names_hosts()) {
    for (const GivenOption& given : table.given())
      options.hosts.given.emplace_back(given.name, given.value);
  }
  if (Result<void> taken = export_mca(options.hosts); !taken) return taken.error();
  options.program = arguments->program.value_or("");
  options.program_arguments = own_arguments(arguments->program_arguments, is_torchrun);
  if (Result<void> taken = take_several(options, *arguments, table.known()); !taken)
    return taken.error();
  if (!options.log_level) {
    if (const auto level = variables("LOGLEVEL"))
      if (const Result<LogLevel> parsed = parse_log_level(*level)) options.log_level = *parsed;
  }
  if (is_doctor) return Command(doctor_options(std::move(options)));
  return Command(std::move(options));
}

Options doctor_options(Options options) {
  if (!options.hosts.names_hosts()) {  // with hosts they say which of them the job has
    options.nproc_per_node = WorkerCount(1);
    options.sources["--nproc-per-node"] = "drun doctor";
    options.hosts.np.reset();
    options.hosts.map_by.reset();
  }
  options.max_restarts.reset();
  options.restart = {};
  options.exclude_after.reset();
  options.preflight = false;
  options.hang_timeout.reset();
  options.store = StoreHost::Agent;
  options.stdin_source = StdinSource::DevNull;
  options.pass_local_rank = options.virtual_local_rank = false;
  options.bind_to.reset();
  options.numa_binding.reset();
  options.bind_memory.reset();
  options.gpus_per_worker.reset();
  options.omp_threads.reset();
  options.wrap.reset();
  options.wrap_ranks.reset();
  options.output = OutputMode::Lines;
  options.redirects = options.tee = {};
  options.log_dir = "/dev/null";
  options.local_ranks_filter.reset();
  options.report.reset();
  options.events.reset();
  options.metrics.reset();
  options.exit_code = ExitCodeStyle::Drun;
  return options;
}

Error usage_error(const std::string& what, const std::string& reason) {
  return Error{ErrorCode::Usage, what + ": " + reason};
}

}  // namespace drun

namespace drun {
namespace {

Error too_much(const std::string& helper, const std::string& word) {
  return {ErrorCode::Usage, helper + ": \"" + word +
                                "\" is too much; to run a program of the name " + helper +
                                ", write drun -- " + helper};
}

bool asks_for_secret(const std::string& word) {
  return word.starts_with("--secret-file") || word.starts_with("--secret_file");
}

Result<Command> parse_store_command(std::span<const std::string> words, const Lookup& variables) {
  if (std::any_of(words.begin(), words.end(), asks_for_secret))
    return Error{
        ErrorCode::Usage,
        "store: --secret-file: a TCPStore's clients know no secrets, so anyone who reaches "
        "the port can use it; listen on --loopback, or keep strangers off by a firewall"};
  StoreCommand store;
  bool help = false;
  OptionTable table(variables);
  table.group("Options");
  table.value<int>(
      "--port", [&store](int port) { store.port = static_cast<std::uint16_t>(port); }, parse_port,
      "P", "where to listen (29500; 0: any free one, which is printed)", kOwnWithoutVariable);
  table.flag("--loopback", store.is_loopback_only, "listen on 127.0.0.1 and ::1 alone",
             kOwnWithoutVariable);
  table.value("--store-memory", store.memory_bytes, parse_memory_size, "SIZE",
              "what its clients may fill; beyond it who asks is closed (1GiB)", kOwn);
  table.flag("-h,--help", help, "print this", kOwnWithoutVariable);
  const Result<Arguments> arguments = table.parse(words);
  if (!arguments) return with_context(arguments.error(), "store");
  if (help) return Command(ShowText{help_text(store_help_head(), table.help(), ""), 0});
  if (arguments->program) return too_much("store", *arguments->program);
  return Command(store);
}

// Options may stand behind the job, too.
std::vector<std::string> options_first(std::span<const std::string> words) {
  std::vector<std::string> ordered(words.begin(), words.end());
  std::stable_partition(ordered.begin(), ordered.end(),
                        [](const std::string& word) { return word.starts_with('-'); });
  return ordered;
}

Result<Command> parse_status_command(std::span<const std::string> words, const Lookup& variables) {
  StatusCommand status;
  bool help = false;
  OptionTable table(variables);
  table.group("Options");
  table.flag("--json", status.is_json, "one JSON object a job and line", kOwnWithoutVariable);
  table.flag("--node", status.is_node, "this node alone, with its workers' pids",
             kOwnWithoutVariable);
  table.flag("--watch", status.is_live, "again every second, until no job is left",
             kOwnWithoutVariable);
  table.flag("-h,--help", help, "print this", kOwnWithoutVariable);
  const Result<Arguments> arguments = table.parse(options_first(words));
  if (!arguments) return with_context(arguments.error(), "status");
  if (help) return Command(ShowText{help_text(status_help_head(), table.help(), ""), 0});
  if (!arguments->program_arguments.empty()) {
    return too_much("status", arguments->program_arguments.front());
  }
  status.job = arguments->program;
  return Command(status);
}

Result<Command> parse_stacks_command(std::span<const std::string> words, const Lookup& variables) {
  StacksCommand stacks;
  bool help = false;
  OptionTable table(variables);
  table.group("Options");
  table.flag("--json", stacks.is_json, "one JSON object a job and line", kOwnWithoutVariable);
  table.flag("-h,--help", help, "print this", kOwnWithoutVariable);
  const Result<Arguments> arguments = table.parse(options_first(words));
  if (!arguments) return with_context(arguments.error(), "stacks");
  if (help) return Command(ShowText{help_text(stacks_help_head(), table.help(), ""), 0});
  if (!arguments->program_arguments.empty()) {
    return too_much("stacks", arguments->program_arguments.front());
  }
  stacks.job = arguments->program;
  return Command(stacks);
}

}  // namespace

std::optional<Result<Command>> parse_helper_command(std::span<const std::string> words,
                                                    const Lookup& variables) {
  if (words.empty()) return std::nullopt;
  if (words.front() == "store") return parse_store_command(words.subspan(1), variables);
  if (words.front() == "status") return parse_status_command(words.subspan(1), variables);
  if (words.front() == "stacks") return parse_stacks_command(words.subspan(1), variables);
  return std::nullopt;
}

}  // namespace drun
