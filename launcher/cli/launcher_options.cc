#include <string>
#include <string_view>

#include "launcher/cli/option_table.h"
#include "launcher/cli/option_values.h"

namespace drun {
namespace {

void declare_job(OptionTable& table, Options& options) {
  table.group("Job");
  table.value("--nnodes", options.nnodes, parse_nodes, "N|MIN:MAX",
              "number of nodes; MIN:MAX for an elastic job (c10d, etcd) [default: 1]");
  table.value("--nproc-per-node", options.nproc_per_node, parse_workers, "N|auto|cpu|gpu",
              "workers per node; auto: one per GPU, or one per core if there is no GPU "
              "[default: 1]");
  table.value("--node-rank", options.node_rank, parse_rank, "N", "rank of this node [default: 0]");
  table.value("--master-addr", options.master_addr, parse_text, "HOST",
              "name or address of node 0, as the other nodes reach it [default: 127.0.0.1]");
  table.value("--master-port", options.master_port, parse_port, "P",
              "the job's only port, on node 0 [default: 29500; with one node or --hosts, "
              "any free port]");
  table.flag("--standalone", options.standalone,
             "run on one node with any free port and a random run id");
  const auto set_restarts = [&options](RestartBudget restarts) {
    options.max_restarts = restarts.most;
    options.restart.window = restarts.window;
    options.restart.per_progress = restarts.per_progress;
  };
  table.value<RestartBudget>("--max-restarts", set_restarts, parse_restarts, "N[/TIME]",
                             "restart a failed job up to N times: in total, within TIME (3/1h), or "
                             "since it last made progress (5/progress) [default: 0]");
  table.value("--rdzv-id", options.rdzv_id, parse_text, "ID",
              "run id, the same on all nodes [default: none]");
  table.value("--rdzv-backend", options.rdzv_backend, parse_text, "static|c10d|etcd",
              "static: each node has a --node-rank; c10d: drun assigns node ranks; etcd: as c10d, "
              "and the coordinator is elected through etcd, so that any node may be lost (also "
              "etcd-v2, etcd-v3) [default: static]");
  table.value("--rdzv-endpoint", options.rdzv_endpoint, parse_text, "HOST[:P],...",
              "where the nodes meet, instead of --master-addr and --master-port. c10d: give 3 or 5 "
              "endpoints, and another one takes over if the coordinator is lost. etcd: the address "
              "of etcd, port 2379");
  table.value(
      "--rdzv-conf", options.rdzv_conf, parse_pairs, "K=V,...",
      "join_timeout=S: wait S seconds for missing nodes [default: 900; c10d, etcd: 600]; "
      "last_call_timeout=S: wait S seconds for nodes beyond MIN [default: 30; with --hosts 5]; "
      "is_host=0|1: this node is the coordinator, or may become it [default: detected]; "
      "etcd: protocol=https; cert, key, cacert: PEM files");
  table.value("--local-addr", options.local_addr, parse_text, "ADDR",
              "etcd: address at which the other nodes reach this one [default: the one used to "
              "connect to etcd]");
  table.value("-n,--np", options.hosts.np, parse_positive, "N",
              "total number of workers, on --hosts or on this machine", kMpirunOption);
  table.value("--engine", options.engine, parse_word<kEngineWords>, "auto|none",
              "take values that are not given from Slurm, an MPI launcher, Kubernetes, PBS or LSF "
              "[default: auto]",
              kDrunOption);
  table.value("--role", options.role, parse_text, "NAME",
              "ROLE_NAME of the workers [default: default]");
}

void declare_hosts(OptionTable& table, Options& options) {
  HostOptions& hosts = options.hosts;
  table.group("Other hosts, over ssh (docs/guide/ssh.md)");
  table.value("-H,--hosts", hosts.hosts, parse_text, "LIST",
              "start the job on these hosts from here: a,b:2,node[02-04]:4,user@host; :N is the "
              "number of slots (workers)",
              kMpirunOption);
  table.value("--hostfile", hosts.hostfile, parse_text, "FILE",
              "read the hosts from FILE, one per line; \"host slots=N\" is accepted",
              kMpirunOption);
  table.value("--include", hosts.include, parse_text, "HOSTS",
              "use only these hosts, or only these GPUs of a host: host1@host2:0,2",
              kOwnWithoutVariable);
  table.value("--exclude", hosts.exclude, parse_text, "HOSTS", "use all hosts or GPUs but these",
              kOwnWithoutVariable);
  table.values("-x,--export", hosts.exports, "VAR[=VALUE]",
               "set a variable for the workers; can be repeated", kOwnWithoutVariable);
  table.value("--map-by", hosts.map_by, parse_map_by, "slot|node|ppr:N:node",
              "how --np is spread: slot: fill one host, then the next; node: one worker per host "
              "in turn; ppr:N:node: N on each host [default: slot]",
              kMpirunOption);
  table.flag("--oversubscribe", hosts.oversubscribe,
             "allow more workers on a host than it has slots", kMpirunOption);
  table.value("--ssh", hosts.ssh, parse_text, "PROGRAM", "run PROGRAM instead of ssh",
              kOwnWithoutVariable);
  table.value("--ssh-args", hosts.ssh_args, parse_command, "ARGS",
              "additional arguments for ssh, such as '-F my_config -p 2222'", kOwnWithoutVariable);
  table.flag("--no-copy", hosts.copies_nothing,
             "do not copy this drun to hosts that have none, or another version",
             kOwnWithoutVariable);
  table.value("--fanout", hosts.fanout, parse_positive, "N",
              "number of logins at the same time [default: 16 per core, from 32 to 256]",
              kOwnWithoutVariable);
  table.value("--login-timeout", hosts.login_timeout, parse_interval, "S",
              "give up on a host that has not answered after S seconds [default: 120]",
              kOwnWithoutVariable);
  for (const char* other : {"--host", "--machinefile"}) {
    auto& field = std::string_view(other) == "--host" ? hosts.hosts : hosts.hostfile;
    table.value(other, field, parse_text, "", "", kMpirunAlias);
  }
  table.values("--mca", hosts.mca, "NAME VALUE",
               "Open MPI's option: sets OMPI_MCA_NAME for the workers", kMpirunsPairs);
  table.flag("--allow-run-as-root", hosts.allow_run_as_root, "", kMpirunAlias);
}

void declare_local_nodes(OptionTable& table, Options& options) {
  table.group("A cluster on this machine (docs/guide/ci.md)");
  table.value(
      "--local-nodes", options.hosts.local_nodes, parse_local_nodes, "N|MIN:MAX[,netns]",
      "start N nodes on this machine and divide its cores and GPUs among them. MIN:MAX: an "
      "elastic job; netns: each node has its own network namespace and address (requires root)",
      kOwnWithoutVariable);
  table.value(
      "--inject", options.inject, parse_faults, "FAULT,...",
      "inject faults to test recovery: kill:rank=3@20s, exit:rank=1:code=9@5s, "
      "stop:rank=2@5s, oom:rank=0@5s, kill:node=1@10s, freeze:node=1@10s, cut:node=2@10s "
      "(netns), random:seed=7:every=10s; @round=1+3s: 3 s into round 1. Set it on all nodes",
      kOwnWithoutVariable);
}

void declare_security(OptionTable& table, Options& options) {
  table.group("Security (docs/reference/security.md)");
  table.value("--secret-file", options.secret_file, parse_text, "FILE",
              "encrypt traffic between nodes and reject nodes that do not have the secret in FILE "
              "[default: the variable DRUN_SECRET, or no encryption]",
              kDrunOption);
  table.flag("--pass-secret", options.pass_secret, "keep DRUN_SECRET in the workers' environment",
             kDrunOption);
}

void declare_survival(OptionTable& table, Options& options) {
  table.group("Failures and elastic jobs (docs/guide/elastic.md)");
  table.value("--heartbeat-timeout", options.heartbeat_timeout, parse_interval, "S",
              "treat a node as lost after S seconds without a heartbeat [default: 10]",
              kDrunOption);
  table.value("--hang-timeout", options.hang_timeout, parse_interval, "S",
              "treat a worker as hung after S seconds without activity: show the stacks of all "
              "ranks and count it as failed [default: hangs are not detected]",
              kDrunOption);
  table.value("--restart-on", options.restart.only_on, parse_exit_kinds, "KINDS",
              "restart only after one of these exit codes, signals and classes of the diagnosis, "
              "such as 1,42,SIGKILL,network",
              kDrunOption);
  table.value("--no-restart-on", options.restart.never_on, parse_exit_kinds, "KINDS",
              "do not restart after one of these; pointless: after each failure for which the "
              "diagnosis says that a restart does not help",
              kDrunOption);
  const auto set_pause = [&options](RestartPause pause) {
    options.has_restart_backoff = true;
    options.restart.pause = pause.first;
    if (pause.most) options.restart.most_pause = *pause.most;
  };
  table.value<RestartPause>("--restart-backoff", set_pause, parse_pause, "S[:MAX]",
                            "wait S seconds before a restart, twice as long before each further "
                            "one, at most MAX [default: 1, 2, 4 ... seconds after startup "
                            "failures, none after others; 0:300 under the name torchrun]",
                            kDrunOption);
  table.value("--max-same-failures", options.max_same_failures, parse_count, "K",
              "end the job after K startup failures in a row with the same cause; 0: never "
              "[default: 3; 0 under the name torchrun]",
              kDrunOption);
  table.value("--startup-time", options.restart.startup_time, parse_interval, "S",
              "a failure within S seconds after the workers started is a startup failure "
              "[default: 60]",
              kDrunOption);
  table.value("--checkpoint-dir", options.checkpoint_directory, parse_text, "DIR",
              "a newer file in DIR (up to three directories deep) counts as progress of the job: "
              "failures after it are no startup failures",
              kDrunOption);
  table.value("--rank-order", options.rank_order, parse_word<kRankOrderWords>,
              "natural|arrival|endpoint",
              "order of nodes in an elastic job. natural: node2 before node10; arrival: as they "
              "joined; endpoint: the endpoint's node first, then natural if all names have "
              "numbers, or else arrival [default: endpoint]",
              kDrunOption);
  table.value("--min-uptime", options.min_uptime, parse_seconds, "S",
              "let a round run for S seconds before a new node may join; longer for a node that "
              "was lost before [default: 5]",
              kDrunOption);
  table.flag("--preflight", options.preflight,
             "run drun doctor's checks first; start the job only if they find no problem, or "
             "(elastic jobs) if spare nodes can replace the bad ones",
             kDrunOption);
  table.value(
      "--exclude-after", options.exclude_after, parse_positive, "K",
      "elastic jobs: exclude a node after its workers were the first to fail in K rounds in a row; "
      "a spare node takes its place [default: never]",
      kDrunOption);
  table.flag("--exclude-slow", options.exclude_slow,
             "elastic jobs: exclude a node that is 10 % slower than the others for a minute, or "
             "has such a "
             "rank, if a spare node can take its place; at most one node in 10 minutes",
             kDrunOption);
}

void declare_program(OptionTable& table, Options& options) {
  table.group("Program");
  table.flag("-m,--module", options.module, "the program is a Python module");
  table.flag("--no-python", options.no_python,
             "execute the program directly, even if its name ends in .py");
  table.flag("--pass-local-rank", options.pass_local_rank,
             "insert --local-rank=N before the program's arguments", kDrunOption);
  table.flag("--virtual-local-rank", options.virtual_local_rank,
             "set LOCAL_RANK=0 for every worker, and one device each in CUDA_VISIBLE_DEVICES");
  table.value("--app", options.app, parse_text, "FILE",
              "read several programs from FILE, one per line: -np 4 [options] program [args...]. "
              "On the command line, separate them by a colon (docs/guide/programs.md)",
              kMpirunOption);
  table.value("--separator", options.separator, parse_separator, "WORD",
              "separate programs by WORD instead of a colon", kOwnWithoutVariable);
  table.value("--stdin", options.stdin_source, parse_word<kStdinWords>, "none|rank0",
              "which worker reads drun's standard input [default: none; under the name torchrun, "
              "all workers inherit it]",
              kDrunOption);
  table.value("--preload", options.preload, parse_words, "MODULE,...",
              "import these Python modules, such as torch, once per node; workers are forks of "
              "that interpreter (docs/guide/preload.md)",
              kDrunOption);
  table.value("--preload-timeout", options.preload_timeout, parse_interval, "S",
              "end the job if the modules of --preload are not imported after S seconds "
              "[default: 600]",
              kDrunOption);
  table.value("--store", options.store, parse_word<kStoreWords>, "agent|worker",
              "server of the TCPStore on the master port: drun, or the program's rank 0. With "
              "worker, the nodes meet at --rdzv-endpoint, port 29400 [default: agent]",
              kDrunOption);
  table.value("--store-memory", options.store_memory_bytes, parse_memory_size, "SIZE",
              "limit for the contents of drun's store; a client that exceeds it is disconnected "
              "[default: 1GiB]",
              kDrunOption);
}

void declare_placement(OptionTable& table, Options& options) {
  table.group("Placement (docs/reference/placement.md)");
  table.value("--bind-to", options.bind_to, parse_word<kBindToWords>, "none|core|socket|numa|gpu",
              "bind each worker to one core, to that core's socket or NUMA node, or to the NUMA "
              "node of its GPUs [default: none]",
              {.is_torchruns = false, .has_variable = true, .may_have_one_dash = true});
  table.value("--numa-binding", options.numa_binding, parse_word<kNumaBindingWords>,
              "node|socket|exclusive|core-complex",
              "bind each worker near the GPU with the number of its local rank: to the NUMA node, "
              "the socket, its share of the node's cores, or a core complex",
              kTorchrunWithoutVariable);
  table.value(
      "--bind-memory", options.bind_memory, parse_word<kMemoryPolicyWords>, "none|prefer|strict",
      "whether a bound worker allocates memory on its NUMA nodes [default: prefer]", kDrunOption);
  table.value("--gpus-per-worker", options.gpus_per_worker, parse_positive, "N",
              "give each worker N GPUs in CUDA_VISIBLE_DEVICES", kDrunOption);
  table.value("--omp-threads", options.omp_threads, parse_omp_threads, "N|auto",
              "OMP_NUM_THREADS; auto: the worker's share of the cores [default: inherited; if not "
              "set, 1 when there are several workers]",
              kDrunOption);
  table.value("--wrap", options.wrap, parse_command, "COMMAND",
              "run the program under COMMAND, such as 'gdb -batch -ex run -ex bt --args'; "
              "${rank} and ${local_rank} are replaced",
              kDrunOption);
  table.value("--wrap-ranks", options.wrap_ranks, parse_global_ranks, "0,3",
              "wrap only these ranks [default: all]", kDrunOption);
}

void declare_output(OptionTable& table, Options& options) {
  table.group("Output (docs/reference/output.md). SPEC: 0 none, 1 stdout, 2 stderr, 3 both");
  table.value("--output", options.output, parse_word<kOutputWords>, "lines|labelled|json|raw",
              "lines: whole lines; labelled: with the worker's label first; json: one object per "
              "line, all on stdout; raw: workers write to drun's own descriptors [default: lines; "
              "labelled with --hosts or --gather-logs]",
              kDrunOption);
  table.flag("--timestamps", options.timestamps, "start each line with the time (UTC)",
             kDrunOption);
  table.flag("--gather-logs", options.gather_logs,
             "send the lines of all nodes to node 0's console and log files; set it on all nodes. "
             "Implied by --hosts with --log-dir",
             kDrunOption);
  table.flag("--no-gather-logs", options.hosts.leaves_logs_there,
             "with --hosts: keep log files on the host of each worker", kDrunOption);
  table.value("-r,--redirects", options.redirects, parse_streams, "SPEC",
              "write these streams to files instead of the console; per local rank: 0:3,12:1");
  table.value("-t,--tee", options.tee, parse_streams, "SPEC",
              "write these streams to files and, labeled, to the console");
  table.value("--log-dir", options.log_dir, parse_text, "DIR",
              "directory for log files; /dev/null: no files [default: a temporary directory]");
  table.value("--log-line-prefix-template", options.label, parse_text, "TEXT",
              "label of a line; ${role_name}, ${rank}, ${local_rank}, ${node_rank} and ${hostname} "
              "are replaced [default: TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE, or "
              "[${role_name}${local_rank}]:]");
  table.value("--local-ranks-filter", options.local_ranks_filter, parse_ranks, "0,2",
              "show only these local ranks on the console");
  table.value("--duplicate-stdout-filters", options.duplicate_stdout_filters, parse_words, "A,B",
              "also write stdout lines that contain one of these words to filtered_stdout.log");
  table.value("--duplicate-stderr-filters", options.duplicate_stderr_filters, parse_words, "A,B",
              "the same for stderr and filtered_stderr.log");
}

void declare_end(OptionTable& table, Options& options) {
  table.group("Shutdown, report and monitoring");
  table.value("--signals-to-handle", options.signals_to_handle, parse_words, "SIGNALS",
              "signals that stop the job [default: SIGTERM,SIGINT,SIGHUP,SIGQUIT]");
  table.value("--shutdown-timeout", options.shutdown_timeout, parse_seconds, "S",
              "seconds from SIGTERM to SIGKILL when workers are stopped [default: 30]");
  table.value("--leftovers", options.leftovers, parse_word<kLeftoverWords>, "wait|kill|keep",
              "processes that still run when every worker has returned 0. wait: terminate them "
              "after --shutdown-timeout; kill: terminate them at once; keep: leave them running "
              "[default: wait; keep under the name torchrun]",
              kDrunOption);
  table.value("--time-limit", options.time_limit, parse_time_limit, "TIME",
              "end the job after TIME, such as 90 (seconds), 30m, 12h or 2-12:00:00. Workers get "
              "a signal in advance, and the job is preempted, not failed [default: no limit]",
              kDrunOption);
  table.value("--signal-before", options.signal_before, parse_signal_before, "S[:SIGNAL]",
              "signal the workers S seconds before the time limit of drun or of the Slurm job so "
              "that they can save their state [default: 60:SIGTERM with --time-limit]",
              kDrunOption);
  table.flag("--requeue", options.requeue,
             "requeue the Slurm job after it was preempted (scontrol requeue)", kDrunOption);
  table.values("--report", options.reports, "FILE",
               "write a report of the job to FILE: a page for browsers if the name ends in .html, "
               "JUnit XML if it ends in .xml, otherwise JSON; may be repeated",
               kDrunOption);
  table.value("--events", options.events, parse_text, "FILE",
              "append each event on this node to FILE, one JSON object per line", kDrunOption);
  table.value("--metrics-port", options.metrics, parse_metrics_port, "[ADDR:]PORT",
              "serve HTTP: /metrics (Prometheus), /status, /livez, /readyz [default address: "
              "127.0.0.1]",
              kDrunOption);
  table.value("--exit-code", options.exit_code, parse_word<kExitCodeWords>, "drun|torchrun",
              "torchrun: exit with 1 after every failure [default: drun]", kDrunOption);
}

void declare_accepted(OptionTable& table, Options& options) {
  const auto drop = [](auto&&) {};
  table.group("Accepted for compatibility with torchrun, without effect");
  table.flag("--run-path", options.run_path, "the program is a Python script");
  table.value<std::chrono::milliseconds>("--monitor-interval", drop, parse_interval, "S",
                                         "drun does not poll");
  table.value<std::string>("--start-method", drop, parse_text, "NAME",
                           "workers are always programs");
  table.value<std::string>("--event-log-handler", drop, parse_text, "NAME", "see --events");
  table.value<std::string>("--logs-specs", drop, parse_logs_specs, "default",
                           "plug-ins are not supported", kTorchrunWithoutVariable);
}

// --help and --version are handled elsewhere, so they set no field.
void declare_drun(OptionTable& table, Options& options) {
  table.group("drun itself");
  table.value("--dry-run", options.dry_run, parse_dry_run, "json",
              "print the plan and exit: nodes, ranks, environment, command",
              {.is_torchruns = false,
               .has_variable = false,
               .may_lack_value = true,
               .may_be_in_file = false});
  table.flag("--explain", options.explain, "print the detected engine and the source of each value",
             kOwnWithoutVariable);
  // The table reads the file; its values then count as given, like variables.
  table.value<std::string>(
      "--config", [](const std::string&) {}, parse_text, "FILE", "read options from a TOML file",
      kOwnOnCommandLine);
  table.value("--log-level", options.log_level, parse_word<kLogLevelWords>,
              "debug|info|warning|error",
              "level of drun's own log lines [default: LOGLEVEL, or info]", kDrunOption);
}

constexpr OptionWord<Shell> kShellWords[] = {
    {"bash", Shell::Bash}, {"zsh", Shell::Zsh}, {"tcsh", Shell::Tcsh}, {"fish", Shell::Fish}};

void declare_printed(OptionTable& table, Printed& printed) {
  table.value(
      "--print-completion", printed.completion, parse_word<kShellWords>, "bash|zsh|tcsh|fish",
      "print a script that completes drun's command lines in this shell", kTorchrunOnCommandLine);
  table.flag("--version", printed.version, "print the version", kOwnOnCommandLine);
  table.flag("-h,--help", printed.help, "print the common options", kTorchrunOnCommandLine);
  table.flag("--help-all", printed.help_all, "print all options", kOwnOnCommandLine);
}

}  // namespace

void declare_launcher(OptionTable& table, Options& options, Printed& printed) {
  declare_job(table, options);
  declare_hosts(table, options);
  declare_local_nodes(table, options);
  declare_survival(table, options);
  declare_security(table, options);
  declare_program(table, options);
  declare_placement(table, options);
  declare_output(table, options);
  declare_end(table, options);
  declare_drun(table, options);
  declare_printed(table, printed);
  declare_accepted(table, options);
}

void declare_doctor(OptionTable& table, DoctorOptions& doctor) {
  table.group("drun doctor");
  table.flag("--json", doctor.is_json, "print all findings as one JSON object",
             kOwnWithoutVariable);
}

}  // namespace drun
