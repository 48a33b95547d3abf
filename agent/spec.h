// core. The job of an agent, as plain structs. The launcher's plan fills them in; the agent only
// reads them.
#pragma once

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/faults.h"
#include "rendezvous/job/join_spec.h"
#include "rendezvous/job/world.h"
#include "rendezvous/net/endpoint.h"

namespace drun {

// --- Placement of one worker: its CPUs, memory nodes, devices and number of threads. The
// launcher's plan decides; agent/spawn/binding.h applies it. CPUs and memory nodes have the
// kernel's numbers (/sys/devices/system/{cpu,node}).

enum class MemoryPolicy {
  None,    // inherited from drun
  Prefer,  // from these nodes while they have free memory, then from others
  Strict,  // from these nodes only; the kernel kills a process that needs more
};

struct WorkerPlacement {
  std::vector<int> cpus{};          // ascending; empty: not bound
  int cores = 0;                    // number of physical cores of `cpus`
  std::vector<int> memory_nodes{};  // ascending; empty: memory is not bound
  MemoryPolicy memory = MemoryPolicy::None;
  std::optional<int> omp_threads{};    // OMP_NUM_THREADS; absent: inherited
  std::vector<std::string> devices{};  // its share of the visible devices; empty: all of them
  bool operator==(const WorkerPlacement&) const = default;
};

// {0, 1, 2, 5} -> "0-2,5", as the kernel writes such lists. Requires ascending numbers.
std::string ranges_text(const std::vector<int>& numbers);

// "none", "prefer", "strict".
const char* to_string(MemoryPolicy policy);

// --- Output

enum class OutputMode {
  Lines,    // whole lines, unchanged
  Labeled,  // whole lines, each with the label in front
  Raw,      // the workers get drun's own descriptors
  Json,     // each line an object, all of them on stdout
};

// One stream (stdout or stderr) of one worker.
struct StreamPlan {
  bool to_file = false;     // --redirects, --tee
  bool to_console = true;   // not redirected, or teed, and passed by --local-ranks-filter
  bool is_labeled = false;  // --tee's prefix, or --output=labelled
  bool operator==(const StreamPlan&) const = default;
};

struct OutputSpec {
  OutputMode mode = OutputMode::Lines;
  std::vector<std::array<StreamPlan, 2>> streams;  // [local rank][0 stdout, 1 stderr]
  // The label of a line, with placeholders ${role_name}, ${local_rank}, ${rank}, ${node_rank} and
  // ${host}; $$ is $.
  std::string label_template = "[${role_name}${local_rank}]:";
  bool has_timestamps = false;  // a time before each line and its label
  // Sends the lines of all nodes to the coordinator's console and files, which are named by rank.
  bool gathers = false;
  // With `gathers`: sends the lines to the launcher of --hosts instead of the coordinator, as
  // frames on the channel (agent/output/host_channel.h).
  bool gathers_by_channel = false;
  // The channel to the launcher of --hosts (host_channel.h), which then carries all output as
  // frames. An open close-on-exec descriptor. Absent: output goes to this process's stdout and
  // stderr.
  std::optional<int> channel_fd;
  // Teed lines that contain any of these are also written to filtered_stdout.log or
  // filtered_stderr.log.
  std::vector<std::string> duplicate_stdout_filters;
  std::vector<std::string> duplicate_stderr_filters;
  // The parent of <run_id>_<random>/attempt_N/<local_rank>/. Absent: the temporary directory; the
  // log directory is then removed at the end unless streams were redirected to it. Empty: no files
  // (--log-dir=/dev/null).
  std::optional<std::string> log_dir;
  bool operator==(const OutputSpec&) const = default;
};

enum class StdinSource {
  DevNull,
  Rank0,      // drun's own, or the input that the launcher forwards
  Inherited,  // drun's own, for every worker
};

// --leftovers: how to treat processes that are still running when every worker has returned 0.
// After a failure or a stop they are always stopped with the workers.
enum class LeftoverPolicy {
  Wait,  // they have --shutdown-timeout to finish; then SIGTERM, and SIGKILL 5 s later
  Kill,  // SIGTERM at once, SIGKILL after --shutdown-timeout
  Keep,  // they keep running when drun exits
};

// A command that runs the program, such as a debugger or profiler. ${rank} and ${local_rank} in its
// arguments are replaced for each worker.
struct WrapSpec {
  std::vector<std::string> argv;  // empty: none
  std::vector<int> ranks;         // global ones; empty: all
  bool operator==(const WrapSpec&) const = default;
};

// This node's share of one of several programs. Programs take consecutive local ranks, in order.
struct ProgramSpec {
  std::string role{};
  int workers = 1;
  std::vector<std::string> argv{};
  std::size_t arguments_at = 1;
  std::vector<EnvironmentEntry>
      environment{};  // its -x; overrides inherited variables, not drun's own
  bool operator==(const ProgramSpec&) const = default;
};

// --preload: one interpreter imports these modules, and the workers are forked from it.
struct PreloadSpec {
  std::vector<std::string> modules{};  // empty: every worker is a new interpreter
  std::chrono::milliseconds import_timeout{std::chrono::minutes(10)};
  bool operator==(const PreloadSpec&) const = default;
};

// The command of the workers, still with the user's ${local_rank} placeholders.
struct WorkerSpec {
  std::vector<std::string> argv;         // argv[0] is looked up on PATH if it contains no slash
  bool substitutes_local_rank = true;    // torchrun's ${local_rank} / $$ templates in the arguments
  bool passes_local_rank = false;        // `--local-rank=N` as the program's first argument
  std::size_t program_arguments_at = 1;  // index in argv of the program's arguments
  // Several programs, for all of the node's workers. Empty: every worker runs `argv`.
  std::vector<ProgramSpec> programs;
  std::vector<EnvironmentEntry> environment;  // the agent's environment, inherited as a whole
  bool virtual_local_rank = false;
  StdinSource stdin_source = StdinSource::DevNull;
  WrapSpec wrap;
  std::vector<WorkerPlacement> placements;  // by local rank; empty: none is bound
  // The variable that is set to the devices of a placement.
  std::string device_variable = "CUDA_VISIBLE_DEVICES";
  PreloadSpec preload{};
  bool operator==(const WorkerSpec&) const = default;
};

// The job's time limit, and the signal sent before it.
struct DeadlineSpec {
  std::optional<WallTime> end{};
  std::optional<std::chrono::milliseconds>
      limit{};              // from the agent's start; the earlier end applies
  std::string slurm_job{};  // its end time is queried regularly; empty: none
  std::chrono::milliseconds signal_before{std::chrono::seconds(60)};
  int signal = SIGTERM;
  std::string reason{};  // "its time limit"
  bool operator==(const DeadlineSpec&) const = default;
};

// The resources used by a worker and the children that it waited for.
struct WorkerUsage {
  std::uint64_t peak_memory_bytes = 0;  // of the largest process
  std::chrono::microseconds processor_time{0};
  bool operator==(const WorkerUsage&) const = default;
};

struct AgentSpec {
  JoinSpec join;
  WorkerSpec worker;
  std::vector<std::string> preflight_argv{};  // run instead of the program in a world of probes
  OutputSpec output;
  std::string host;  // this node's name, for reports
  std::chrono::milliseconds shutdown_timeout{std::chrono::seconds(30)};
  // Time from SIGKILL until a remaining process counts as unkillable.
  std::chrono::milliseconds unkillable_timeout{std::chrono::seconds(30)};
  LeftoverPolicy leftovers = LeftoverPolicy::Wait;
  std::chrono::milliseconds hang_timeout{0};  // --hang-timeout; 0: hangs are not detected
  // Of the detection of slow ranks; shorter in tests.
  std::chrono::milliseconds speed_window{std::chrono::seconds(10)};
  std::optional<DeadlineSpec> deadline{};
  std::optional<std::string> checkpoint_directory{};  // --checkpoint-dir
  std::vector<int> termination_signals;  // numbers; a signal ignored at the start stays ignored
  std::string events_file;               // --events; empty: none
  bool keeps_events = false;             // for the report: AgentEnd::events
  std::string drun_version;              // for events
  std::optional<Endpoint> web;           // --metrics-port; a numeric address
  FaultPlan faults;                      // --inject
  std::string error_file;                // drun's own TORCHELASTIC_ERROR_FILE; empty: none
  // Standard input is the connection to this agent's launcher (agent/process/lifeline.h); these
  // bytes of it were already read. Absent: there is no such connection.
  std::optional<std::string> lifeline;
  bool operator==(const AgentSpec&) const = default;
};

}  // namespace drun
