#include "launcher/plan/plan.h"

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdint>
#include <string>

#include "agent/preload/protocol.h"
#include "agent/workers/worker_command.h"
#include "launcher/base/text.h"
#include "launcher/cli/option_values.h"
#include "launcher/plan/doctor.h"
#include "launcher/plan/programs.h"
#include "launcher/plan/rendezvous.h"
#include "rendezvous/base/text.h"
#include "rendezvous/tls/secret.h"

namespace drun {
namespace {

// SLURM_JOB_END_TIME, in seconds since 1970.
std::optional<WallTime> slurms_end(const HostFacts& host) {
  const std::optional<std::string> text = variable(host, "SLURM_JOB_END_TIME");
  if (!text) return std::nullopt;
  const std::optional<std::int64_t> seconds = whole_number<std::int64_t>(*text);
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (!seconds || *seconds < 1 || *seconds > kMost) return std::nullopt;
  return WallTime(std::chrono::seconds(*seconds));
}

constexpr const char* kTerminationSignals[] = {"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"};

std::vector<std::string> signal_names(const Options& options) {
  return options.signals_to_handle.value_or(
      std::vector<std::string>(std::begin(kTerminationSignals), std::end(kTerminationSignals)));
}

// SIGIO is the guardian's (guardian.h).
bool can_be_handled(int signal) {
  return signal != SIGKILL && signal != SIGSTOP && signal != SIGCHLD && signal != SIGIO;
}

}  // namespace

Result<std::optional<DeadlineSpec>> plan_deadline(const Options& options, const HostFacts& host,
                                                  std::chrono::milliseconds shutdown_timeout) {
  if (!options.time_limit && !options.signal_before && !options.requeue) return {std::nullopt};
  DeadlineSpec deadline;
  deadline.limit = options.time_limit;
  deadline.slurm_job = variable(host, "SLURM_JOB_ID").value_or("");
  deadline.end = slurms_end(host);
  if (options.requeue && deadline.slurm_job.empty())
    return usage_error("--requeue", "SLURM_JOB_ID is not set, so there is no job to requeue");
  if (!deadline.limit && deadline.slurm_job.empty())
    return usage_error("--signal-before",
                       "no deadline is known; give --time-limit, or start drun in a Slurm job");
  if (options.signal_before) {
    deadline.signal_before = options.signal_before->time;
    deadline.signal = options.signal_before->signal;
  }
  if (deadline.limit && deadline.signal_before >= *deadline.limit)
    return usage_error(
        "--time-limit=" + rendezvous::duration_text(*deadline.limit),
        "workers get " + signal_name(deadline.signal) + " " +
            rendezvous::duration_text(deadline.signal_before) +
            " before it, so at their start; give a longer limit, or a shorter --signal-before and "
            "--shutdown-timeout");
  if (deadline.signal_before <= shutdown_timeout)
    return usage_error(
        "--signal-before=" + rendezvous::duration_text(deadline.signal_before),
        "workers are stopped --shutdown-timeout (" + rendezvous::duration_text(shutdown_timeout) +
            ") before the deadline, so they would have no time; give a longer time, or a shorter "
            "--shutdown-timeout");
  deadline.reason =
      deadline.limit ? "the time limit of " + rendezvous::duration_text(*deadline.limit) + " ends"
                     : "the time limit of Slurm job " + deadline.slurm_job + " ends";
  return {std::move(deadline)};
}

std::vector<int> plan_signals(const Options& options, PlanNotes& notes) {
  std::vector<int> signals;
  for (const std::string& name : signal_names(options)) {
    const std::optional<int> signal = signal_number(name);
    if (!signal || !can_be_handled(*signal)) {
      notes.warnings.push_back("--signals-to-handle: " + name +
                               (signal ? " cannot be handled" : " is not a signal") +
                               " and is ignored; write names such as SIGTERM,SIGUSR1");
    } else if (std::find(signals.begin(), signals.end(), *signal) == signals.end()) {
      signals.push_back(*signal);
    }
  }
  return signals;
}

namespace {

Result<std::chrono::milliseconds> plan_shutdown(const Options& options, const HostFacts& host) {
  constexpr const char kName[] = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
  if (options.shutdown_timeout) return *options.shutdown_timeout;
  const std::optional<std::string> text = variable(host, kName);
  if (!text || text->empty()) return AgentSpec{}.shutdown_timeout;
  Result<std::chrono::milliseconds> parsed = parse_seconds(*text);
  if (!parsed) return usage_error(std::string(kName) + "=" + *text, parsed.error().message);
  return parsed;
}

// torchrun's limit on the wait for a worker that SIGKILL does not end. In torchrun, a value that is
// not a positive number means no limit.
std::chrono::milliseconds plan_unkillable(const HostFacts& host) {
  const auto text = variable(host, "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT");
  if (!text) return AgentSpec{}.unkillable_timeout;
  const Result<std::chrono::milliseconds> parsed = parse_interval(*text);
  return parsed ? *parsed : AgentSpec{}.unkillable_timeout;
}

// For tests: a minute is six windows.
std::chrono::milliseconds plan_speed_window(const HostFacts& host) {
  const auto text = variable(host, "DRUN_SPEED_WINDOW");
  const auto parsed = parse_interval(text.value_or(""));
  return parsed ? *parsed : AgentSpec{}.speed_window;
}

Result<void> check_ranks(const StreamChoice& choice, const std::string& option, int workers) {
  if (choice.of_ranks.empty() || choice.of_ranks.rbegin()->first < workers) return {};
  return usage_error(option,
                     "there is no local rank " + std::to_string(choice.of_ranks.rbegin()->first) +
                         "; the local ranks of this node are 0 to " + std::to_string(workers - 1));
}

bool has_stream(const StreamChoice& choice, int local_rank, int bit) {
  const auto of_rank = choice.of_ranks.find(local_rank);
  return ((of_rank == choice.of_ranks.end() ? choice.all : of_rank->second) & bit) != 0;
}

OutputMode output_mode(const Options& options) {
  const bool is_given = options.sources.contains("--output");
  return options.gather_logs && !is_given ? OutputMode::Labeled : options.output;
}

Result<OutputSpec> plan_output(const Options& options, const HostFacts& host, int workers) {
  if (auto fits = check_ranks(options.redirects, "--redirects", workers); !fits)
    return fits.error();
  if (auto fits = check_ranks(options.tee, "--tee", workers); !fits) return fits.error();
  const std::vector<int> shown = options.local_ranks_filter.value_or(std::vector<int>{});
  for (const int rank : shown) {
    if (rank >= workers)
      return check_ranks({.of_ranks = {{rank, 0}}}, "--local-ranks-filter", workers).error();
  }
  if (auto fits = check_output(options); !fits) return fits.error();
  OutputSpec output;
  output.mode = output_mode(options);
  output.has_timestamps = options.timestamps;
  output.gathers = options.gather_logs;
  output.log_dir = plan_log_dir(options, host);
  const bool keeps_all = output.gathers && output.log_dir && !output.log_dir->empty();
  for (int rank = 0; rank < workers; ++rank) {
    const bool is_shown =
        shown.empty() || std::find(shown.begin(), shown.end(), rank) != shown.end();
    auto& streams = output.streams.emplace_back();
    for (int i = 0; i < 2; ++i) {
      const bool is_teed = has_stream(options.tee, rank, 1 << i);
      const bool is_redirected = has_stream(options.redirects, rank, 1 << i);
      streams[static_cast<std::size_t>(i)] = {
          .to_file = is_teed || is_redirected || keeps_all,
          .to_console = is_shown && (is_teed || !is_redirected),
          .is_labeled = is_teed || output.mode == OutputMode::Labeled};
    }
  }
  if (output.gathers)
    output.label_template = options.programs.empty() ? kHostLabel : kHostRoleLabel;
  if (const auto label = chosen_label(options, host)) output.label_template = *label;
  output.duplicate_stdout_filters = options.duplicate_stdout_filters;
  output.duplicate_stderr_filters = options.duplicate_stderr_filters;
  return output;
}

// The environment that workers inherit: the agent's, then -x.
std::vector<EnvironmentEntry> inherited_environment(const HostFacts& host) {
  std::vector<EnvironmentEntry> environment = host.environment;
  for (const EnvironmentEntry& entry : host.exports) set_variable(environment, entry);
  return environment;
}

Result<void> check_virtual_ranks(const Options& options, const HostFacts& host, int workers) {
  if (!options.virtual_local_rank || options.gpus_per_worker) return {};
  const auto list = agent::inherited_devices(inherited_environment(host));
  if (!list) return {};
  const std::size_t devices = list->devices.size();
  if (devices >= static_cast<std::size_t>(workers)) return {};
  const std::string value = workers_variable(host, list->variable).value_or("");
  return usage_error("--virtual-local-rank",
                     list->variable + "=\"" + value + "\" names " + std::to_string(devices) +
                         " devices for " + std::to_string(workers) +
                         " workers; list more devices or start fewer workers");
}

std::vector<EnvironmentEntry> plan_environment(const HostFacts& host, int workers,
                                               const Options& options, PlanNotes& notes) {
  std::vector<EnvironmentEntry> environment = inherited_environment(host);
  // The worker key of another job, if a worker of that job runs this drun, is never passed on.
  std::erase_if(environment, [&options](const auto& entry) {
    return entry.first == kWorkerKeyVariable ||
           (entry.first == kSecretVariable && !options.pass_secret);
  });
  if (!workers_variable(host, "TORCH_NCCL_ASYNC_ERROR_HANDLING"))
    environment.emplace_back("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  // Without these, Gloo transfers 8 W^3 bytes through the store for a group of W ranks. They must
  // be the same on all ranks; versions of Gloo without them ignore them.
  for (const char* const name : {"GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER", "GLOO_ENABLE_STORE_V2_API"})
    if (!workers_variable(host, name)) environment.emplace_back(name, "1");
  set_variable(environment, {"TORCHELASTIC_SIGNALS_TO_HANDLE", joined(signal_names(options), ",")});
  if (workers > 1 && !options.omp_threads && !workers_variable(host, "OMP_NUM_THREADS")) {
    environment.emplace_back("OMP_NUM_THREADS", "1");
    notes.notes.push_back("OMP_NUM_THREADS=1 for each of the " + std::to_string(workers) +
                          " workers; set the variable or --omp-threads to change it");
  }
  return environment;
}

// Workers that are not Python programs start as usual.
Result<void> plan_preload(PreloadSpec& preload, const std::vector<std::string>& argv,
                          const Options& options, PlanNotes& notes) {
  for (const std::string& module : options.preload) {
    const bool is_name = std::all_of(module.begin(), module.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '.' || c >= 0x80;
    });
    if (module.empty() || !is_name)
      return usage_error("--preload", "\"" + module + "\" is not the name of a Python module");
  }
  if (options.preload_timeout && options.preload.empty())
    return usage_error("--preload-timeout", "it requires --preload");
  if (options.preload.empty()) return {};
  if (!agent::preload::python_program(argv)) {
    notes.warnings.push_back(
        "--preload has no effect: the program is not a Python script or module");
    return {};
  }
  if (options.wrap && !options.wrap_ranks) {
    notes.warnings.push_back(
        "--preload has no effect: --wrap starts every worker by another program");
    return {};
  }
  preload.modules = options.preload;
  if (options.preload_timeout) preload.import_timeout = *options.preload_timeout;
  return {};
}

Result<WorkerSpec> plan_worker(const Options& options, const HostFacts& host, int workers,
                               PlanNotes& notes, std::optional<CannotStart>& cannot_start) {
  const bool has_several = !options.doctor && !options.programs.empty();
  Result<Program> program = Program();
  if (options.doctor)
    program = doctor_program(options, host);
  else if (!has_several)
    program = plan_program(options, host);
  if (!program) return program.error();
  if (auto fits = check_virtual_ranks(options, host, workers); !fits) return fits.error();
  cannot_start = std::move(program->cannot_start);
  WorkerSpec worker;
  if (has_several) {
    auto programs = plan_programs(options, host, notes, cannot_start);
    if (!programs) return programs.error();
    worker.programs = *std::move(programs);
    program->argv = worker.programs.front().argv;
    program->arguments_at = worker.programs.front().arguments_at;
  }
  if (auto planned = plan_preload(worker.preload, program->argv, options, notes); !planned)
    return planned.error();
  if (!cannot_start && options.wrap) cannot_start = check_wrap(options.wrap->front(), host);
  worker.argv = std::move(program->argv);
  worker.passes_local_rank = options.pass_local_rank;
  worker.program_arguments_at = program->arguments_at;
  worker.environment = plan_environment(host, workers, options, notes);
  worker.virtual_local_rank = options.virtual_local_rank;
  // With torchrun, workers inherit standard input, so that breakpoint() works.
  worker.stdin_source = options.stdin_source.value_or(
      options.invoked_as == "torchrun" ? StdinSource::Inherited : StdinSource::DevNull);
  return worker;
}

// Hang detection relies on the workers' output, resource use and heartbeats.
Result<void> plan_hang(AgentSpec& agent, const Options& options, PlanNotes& notes) {
  if (!options.hang_timeout) return {};
  if (*options.hang_timeout < std::chrono::seconds(1))
    return usage_error("--hang-timeout", "expected at least one second");
  agent.hang_timeout = *options.hang_timeout;
  const auto& streams = agent.output.streams;
  const bool is_hidden = agent.output.mode == OutputMode::Raw ||
                         std::any_of(streams.begin(), streams.end(), [](const auto& worker) {
                           return std::any_of(worker.begin(), worker.end(), [](const auto& plan) {
                             return !plan.to_file && !plan.to_console;
                           });
                         });
  if (is_hidden) {
    notes.warnings.push_back(
        "--hang-timeout: the output of some workers does not pass through drun (--output=raw or "
        "--local-ranks-filter); drun detects their hangs only if they send heartbeats");
  }
  return {};
}

Result<void> plan_faults(AgentSpec& agent, const Options& options, const HostFacts& host) {
  JobSize size{.nodes = agent.join.node_count};
  if (agent.join.node_count == 1) size.workers = agent.join.local_world_size;
  if (Result<void> fits = check_faults(options.inject, size); !fits)
    return with_context(fits.error(), "--inject");
  // The launcher of --local-nodes has checked this already.
  for (const Fault& fault : options.inject.faults)
    if (fault.kind == FaultKind::CutNode && !host.launched)
      return usage_error("--inject=" + fault.text,
                         "only a network that drun has made is cut; write --local-nodes=N,netns");
  agent.faults = options.inject;
  return {};
}

// For a job without --hosts: moves -np, -x and --map-by to where the plan for this machine reads
// them. The launcher of --hosts has processed them already.
Result<void> resolve_without_hosts(Options& options, HostFacts& host, PlanNotes& notes) {
  const HostOptions& host_options = options.hosts;
  for (const char* option : {"--include", "--exclude", "--ssh", "--ssh-args", "--fanout",
                             "--login-timeout", "--no-gather-logs", "--no-copy"}) {
    if (options.sources.contains(option))
      return usage_error(option, "it requires --hosts or --hostfile");
  }
  const Lookup here = [&host](std::string_view name) { return variable(host, name); };
  Result<std::vector<EnvironmentEntry>> exports = exported(host_options.exports, here, notes);
  if (!exports) return exports.error();
  host.exports = *std::move(exports);
  const auto per_node = host_options.map_by ? host_options.map_by->per_node : std::nullopt;
  const std::optional<int> workers = host_options.np ? host_options.np : per_node;
  if (!workers) return {};
  const std::string option = host_options.np ? "--np" : "--map-by";
  if (options.nproc_per_node)
    return usage_error(option + " and --nproc-per-node", "they conflict; remove one");
  options.nproc_per_node = WorkerCount(*workers);
  options.sources["--nproc-per-node"] = option;
  return {};
}

Result<ResolvedOptions> resolve_all(const Options& given, const HostFacts& whole_host,
                                    PlanNotes& notes) {
  Options options = given;
  HostFacts host = whole_host;
  if (!host.launched) {
    Result<void> done = resolve_without_hosts(options, host, notes);
    if (!done) return done.error();
  }
  Result<ResolvedOptions> settled = settle(options, host, notes);
  if (!settled) return settled;
  Result<void> counted = resolve_programs(settled->options, settled->host);
  return counted ? std::move(settled) : counted.error();
}

}  // namespace

std::optional<std::string> chosen_label(const Options& options, const HostFacts& host) {
  if (options.label && !options.label->empty()) return options.label;
  return variable(host, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
}

bool names_log_directory(const Options& options) {
  return options.log_dir && !options.log_dir->empty() && *options.log_dir != "/dev/null";
}

std::optional<std::string> plan_log_dir(const Options& options, const HostFacts& host) {
  if (!options.log_dir || options.log_dir->empty()) return std::nullopt;
  if (*options.log_dir == "/dev/null") return "";
  if (options.log_dir->starts_with('/') || host.working_directory.empty()) return options.log_dir;
  return host.working_directory + "/" + *options.log_dir;
}

Result<void> check_output(const Options& options) {
  const bool is_raw = options.output == OutputMode::Raw;
  if (is_raw && (options.timestamps || options.gather_logs))
    return usage_error(
        options.timestamps ? "--timestamps" : "--gather-logs",
        "it cannot be combined with --output=raw: those lines do not pass through drun");
  const bool is_filtered =
      !options.duplicate_stdout_filters.empty() || !options.duplicate_stderr_filters.empty();
  if (is_filtered && options.gather_logs)
    return usage_error("--duplicate-stdout-filters, --duplicate-stderr-filters",
                       "they cannot be combined with --gather-logs; search its log files instead");
  return {};
}

Result<ReportFiles> report_files(const std::vector<std::string>& names, const HostFacts& host) {
  ReportFiles files;
  for (const std::string& name : names) {
    std::optional<std::string>& file = name.ends_with(".html") ? files.html : files.json;
    if (name.empty()) return usage_error("--report=", "it is empty; give the name of a file");
    if (file)
      return usage_error("--report=" + name, "--report=" + *file +
                                                 " is of the same kind; give one .html file and "
                                                 "one other file at most");
    if (host.probe && host.probe(name) == FileKind::Directory)
      return usage_error("--report=" + name, "it is a directory; give the name of a file");
    const std::size_t slash = name.rfind('/');
    const std::string directory = name.substr(0, slash == name.npos ? 0 : slash);
    if (!directory.empty() && host.probe && host.probe(directory) != FileKind::Directory)
      return usage_error("--report=" + name, "there is no directory " + directory +
                                                 "; create it, or give another path");
    file = name;
  }
  return files;
}

Result<Plan> make_plan(const Options& given, const HostFacts& whole_host) {
  PlanNotes notes;
  const Result<ResolvedOptions> settled = resolve_all(given, whole_host, notes);
  if (!settled) return settled.error();
  const Options& options = settled->options;
  const HostFacts& host = settled->host;
  Plan plan;
  Result<JoinSpec> join = plan_join(options, host, notes);
  if (!join) return join.error();
  const int workers = join->local_world_size;
  plan.origins = origins_of(*settled, *join);
  plan.explain = options.explain;
  plan.is_doctor = options.doctor.has_value();
  plan.agent.join = *std::move(join);
  if (auto planned = plan_secret(plan.agent.join, options, host); !planned) return planned.error();
  Result<WorkerSpec> worker = plan_worker(options, host, workers, notes, plan.cannot_start);
  if (!worker) return worker.error();
  plan.agent.worker = *std::move(worker);
  plan.agent.preflight_argv = preflight_words(host);
  if (options.preflight && !plan.cannot_start) plan.cannot_start = check_probe(host);
  if (auto placed = plan_placement(plan.agent.worker, options, host, plan.agent.join, notes);
      !placed)
    return placed.error();
  Result<OutputSpec> output = plan_output(options, host, workers);
  if (!output) return output.error();
  plan.agent.output = *std::move(output);
  plan.agent.join.gathers_lines = options.gather_logs;
  plan.agent.join.shows_progress = plan.agent.join.is_coordinator && host.has_terminal;
  // The coordinator writes the log files of all ranks.
  const bool is_sender = options.gather_logs && !plan.agent.join.is_coordinator;
  if (is_sender && plan.agent.output.log_dir != "") plan.agent.output.log_dir.reset();
  const Result<std::chrono::milliseconds> shutdown = plan_shutdown(options, host);
  if (!shutdown) return shutdown.error();
  plan.agent.shutdown_timeout = *shutdown;
  plan.agent.join.kill_grace = plan.agent.join.heartbeat_timeout + *shutdown;
  plan.agent.unkillable_timeout = plan_unkillable(host);
  plan.agent.speed_window = plan_speed_window(host);
  plan.agent.checkpoint_directory = options.checkpoint_directory;
  Result<std::optional<DeadlineSpec>> deadline = plan_deadline(options, host, *shutdown);
  if (!deadline) return deadline.error();
  plan.agent.deadline = *std::move(deadline);
  plan.requeues = options.requeue;
  plan.agent.host = host.hostname;
  if (Result<void> hang = plan_hang(plan.agent, options, notes); !hang) return hang.error();
  plan.agent.termination_signals = plan_signals(options, notes);
  plan.agent.error_file = variable(host, "TORCHELASTIC_ERROR_FILE").value_or("");
  if (plan.cannot_start && plan.agent.join.node_count > 1 && !host.launched) {
    notes.warnings.push_back(plan.cannot_start->message + "; the job will fail on this node");
    plan.cannot_start.reset();
  }
  if (Result<void> fits = plan_faults(plan.agent, options, host); !fits) return fits.error();
  const Result<ReportFiles> reports = report_files(options.reports, host);
  if (!reports) return reports.error();
  plan.report_file = reports->json;
  plan.html_report_file = reports->html;
  plan.agent.keeps_events = reports->html.has_value();
  plan.agent.drun_version = host.drun_version;
  plan.agent.events_file = options.events.value_or("");
  plan.agent.web = options.metrics;
  const bool is_torchrun = options.invoked_as == "torchrun";
  plan.agent.leftovers =
      options.leftovers.value_or(is_torchrun ? LeftoverPolicy::Keep : LeftoverPolicy::Wait);
  plan.exit_codes =
      options.exit_code.value_or(is_torchrun ? ExitCodeStyle::Torchrun : ExitCodeStyle::Drun);
  plan.dry_run = options.dry_run;
  plan.log_level = options.log_level.value_or(LogLevel::Info);
  plan.notes = std::move(notes.notes);
  plan.warnings = std::move(notes.warnings);
  return plan;
}

}  // namespace drun
