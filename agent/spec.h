// core. What to run, as plain structs: the launcher's plan fills them, the agent obeys them.
//
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/faults.h"
#include "rendezvous/job/join_spec.h"
#include "rendezvous/job/world.h"
#include "rendezvous/net/endpoint.h"

// core. Where one worker runs: which CPUs and memory nodes it may use, which devices it sees, and
// its number of threads. The launcher's plan decides, agent/process/spawn applies it.
//
// Units:   CPUs and memory nodes by the kernel's numbers (/sys/devices/system/{cpu,node}).
// Owner:   values; copy freely.   Thread: any.

namespace drun {

enum class MemoryPolicy {
  None,    // as drun's own
  Prefer,  // from these nodes while they have any, then from others
  Strict,  // from these nodes alone; the kernel kills who needs more
};

struct WorkerPlacement {
  std::vector<int> cpus{};          // ascending; empty: not bound
  int cores = 0;                    // physical cores that those are
  std::vector<int> memory_nodes{};  // ascending; empty: memory is not bound
  MemoryPolicy memory = MemoryPolicy::None;
  std::optional<int> omp_threads{};    // OMP_NUM_THREADS; absent: inherited
  std::vector<std::string> devices{};  // its part of the visible devices; empty: all of them
  bool operator==(const WorkerPlacement&) const = default;
};

// {0, 1, 2, 5} -> "0-2,5", as the kernel writes such lists. Requires ascending numbers.
std::string ranges_text(const std::vector<int>& numbers);

// "none", "prefer", "strict".
const char* to_string(MemoryPolicy policy);

}  // namespace drun

namespace drun {

enum class OutputMode {
  Lines,     // whole lines, unchanged
  Labelled,  // whole lines, each with the label in front
  Raw,       // the workers get drun's own descriptors
  Json,      // each line an object, all of them on stdout
};

// One stream (stdout or stderr) of one worker.
struct StreamPlan {
  bool to_file = false;      // --redirects, --tee
  bool to_console = true;    // not redirected, or teed, and passed by --local-ranks-filter
  bool is_labelled = false;  // --tee's prefix, or --output=labelled
  bool operator==(const StreamPlan&) const = default;
};

struct OutputSpec {
  OutputMode mode = OutputMode::Lines;
  std::vector<std::array<StreamPlan, 2>> streams;  // [local rank][0 stdout, 1 stderr]
  // The label of a line, with ${role_name} ${local_rank} ${rank} (and ${node_rank} ${host}) still
  // in it; $$ is $.
  std::string label_template = "[${role_name}${local_rank}]:";
  bool has_timestamps = false;  // a time in front of each line, and of its label
  // Lines of all nodes go to the coordinator's console and files, which are named by rank.
  bool gathers = false;
  // With `gathers`: not the coordinator's but the starter's (--hosts). They go there as frames
  // (agent/output/host_channel.h) on the channel.
  bool gathers_by_channel = false;
  // The channel to the starter of --hosts (host_channel.h): everything goes there as frames. The
  // descriptor is open and close-on-exec. Absent: stdout and stderr are this process's own.
  std::optional<int> channel_fd;
  // Teed lines that hold any of these go to filtered_stdout.log (filtered_stderr.log) too.
  std::vector<std::string> duplicate_stdout_filters;
  std::vector<std::string> duplicate_stderr_filters;
  // Where <run_id>_<random>/attempt_N/<local_rank>/ is made. Absent: the temporary directory, and
  // what is made there is removed at the end unless streams were redirected to it. Empty: no files
  // at all (--log-dir=/dev/null).
  std::optional<std::string> log_dir;
  bool operator==(const OutputSpec&) const = default;
};

enum class StdinSource {
  DevNull,
  Rank0,      // drun's own, or what the starter passes on
  Inherited,  // drun's own, for every worker
};

// --leftovers: what becomes of processes that are still running when every worker has returned 0.
// After a failure or a stop they are stopped with the workers, whatever the policy is.
enum class LeftoverPolicy {
  Wait,  // they have --shutdown-timeout to finish; then SIGTERM, and SIGKILL 5 s later
  Kill,  // SIGTERM at once, SIGKILL after --shutdown-timeout
  Keep,  // they keep running when drun exits
};

// A command around the program, for debuggers and profilers. ${rank} and ${local_rank} in its words
// become the worker's.
struct WrapSpec {
  std::vector<std::string> argv;  // empty: none
  std::vector<int> ranks;         // global ones; empty: all
  bool operator==(const WrapSpec&) const = default;
};

// One of several programs of a job, as this node has it: its workers are the next local ranks.
struct ProgramSpec {
  std::string role{};
  int workers = 1;
  std::vector<std::string> argv{};
  std::size_t arguments_at = 1;
  std::vector<EnvironmentEntry> environment{};  // its -x: over what is inherited, below drun's own
  bool operator==(const ProgramSpec&) const = default;
};

// --preload: one interpreter imports these modules, and the workers are forks of it.
struct PreloadSpec {
  std::vector<std::string> modules{};  // empty: every worker is a new interpreter
  std::chrono::milliseconds import_timeout{std::chrono::minutes(10)};
  bool operator==(const PreloadSpec&) const = default;
};

// What each worker is: one command, ${local_rank} still to be filled in where the user wrote it.
struct WorkerSpec {
  std::vector<std::string> argv;         // argv[0] is looked up on PATH when it holds no slash
  bool substitutes_local_rank = true;    // torchrun's ${local_rank} / $$ templates in the arguments
  bool passes_local_rank = false;        // `--local-rank=N` as the program's first argument
  std::size_t program_arguments_at = 1;  // where in argv those begin; the program is before it
  // Several programs, for all of the node's workers. Empty: all are `argv`, as above.
  std::vector<ProgramSpec> programs;
  std::vector<EnvironmentEntry> environment;  // the agent's own, inherited whole
  bool virtual_local_rank = false;
  StdinSource stdin_source = StdinSource::DevNull;
  WrapSpec wrap;
  std::vector<WorkerPlacement> placements;  // by local rank; empty: nothing is placed
  // Where the devices of `placements` go.
  std::string device_variable = "CUDA_VISIBLE_DEVICES";
  PreloadSpec preload{};
  bool operator==(const WorkerSpec&) const = default;
};

// When the time that the job was given ends, and what happens before.
struct DeadlineSpec {
  std::optional<WallTime> end{};
  std::optional<std::chrono::milliseconds>
      limit{};              // from the agent's start; the earlier end counts
  std::string slurm_job{};  // asked for its end now and then; empty: none
  std::chrono::milliseconds signal_before{std::chrono::seconds(60)};
  int signal = SIGTERM;
  std::string reason{};  // "its time limit"
  bool operator==(const DeadlineSpec&) const = default;
};

// The resources used by a worker and the children that it waited for.
struct WorkerUsage {
  std::uint64_t peak_memory_bytes = 0;  // of the largest of them
  std::chrono::microseconds processor_time{0};
  bool operator==(const WorkerUsage&) const = default;
};

struct AgentSpec {
  JoinSpec join;
  WorkerSpec worker;
  std::vector<std::string> preflight_argv{};  // instead of the program, in a world of probes
  OutputSpec output;
  std::string host;  // this node's name, for reports
  std::chrono::milliseconds shutdown_timeout{std::chrono::seconds(30)};
  // From SIGKILL until a process that it does not end counts as unkillable.
  std::chrono::milliseconds unkillable_timeout{std::chrono::seconds(30)};
  LeftoverPolicy leftovers = LeftoverPolicy::Wait;
  std::chrono::milliseconds hang_timeout{0};  // --hang-timeout; 0: hangs are not looked for
  std::optional<DeadlineSpec> deadline{};
  std::optional<std::string> checkpoint_directory{};  // --checkpoint-dir
  std::vector<int> termination_signals;  // numbers; what is ignored at the start stays ignored
  std::string events_file;               // --events; empty: none
  bool keeps_events = false;             // for the report: AgentEnd::events
  std::string drun_version;              // for events
  std::optional<Endpoint> web;           // --metrics-port; a numeric address
  FaultPlan faults;                      // --inject
  std::string error_file;                // drun's own TORCHELASTIC_ERROR_FILE; empty: none
  // Standard input is the connection to the starter of this agent (agent/process/lifeline.h); these
  // bytes of it were already read.
  std::optional<std::string> lifeline;
  bool operator==(const AgentSpec&) const = default;
};

}  // namespace drun
