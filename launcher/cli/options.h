// edge. The parsed command line: options from the command line, PET_ variables and the
// configuration file. Parsed with CLI11.
//
// std::optional means "given or not"; plan.h applies the defaults. Precedence: command line >
// PET_<NAME> > --config FILE > default. Empty PET_ variables count as unset. Options of torchrun
// that have no effect here are accepted and ignored.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "agent/spec.h"
#include "launcher/placement/place.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/rank_ranges.h"
#include "rendezvous/job/world.h"

namespace drun {

// --signal-before: "60", "60:SIGUSR1".
struct SignalBefore {
  std::chrono::milliseconds time{0};
  int signal = 0;
  bool operator==(const SignalBefore&) const = default;
};

// --- Other machines. Absent or empty: not given. host_pool.h and host_plan.h define the syntax.

// --map-by: how -np's workers are distributed over the hosts.
struct MapBy {
  enum class Order { Slot, Node };  // fill each host first, or one each in turn
  Order order = Order::Slot;
  std::optional<int> per_node{};  // ppr:N:node
  bool operator==(const MapBy&) const = default;
};

// --local-nodes: starts several agents on this machine, each a node of the job. With MIN below MAX,
// an elastic job.
struct LocalNodes {
  int min = 1;
  int max = 1;                // number that is started
  bool has_networks = false;  // each node gets a network namespace and an address
  bool operator==(const LocalNodes&) const = default;
};

struct HostOptions {
  std::optional<std::string> hosts{};     // --hosts
  std::optional<std::string> hostfile{};  // --hostfile
  std::optional<LocalNodes> local_nodes{};
  std::optional<std::string> include{};
  std::optional<std::string> exclude{};
  std::optional<int> np{};             // total number of workers
  std::vector<std::string> exports{};  // -x, unparsed
  std::vector<std::string> mca{};      // --mca, each "NAME=VALUE"; also in `exports`
  bool allow_run_as_root = false;      // mpirun's; drun never requires it
  std::optional<MapBy> map_by{};
  bool oversubscribe = false;
  std::string ssh = "ssh";
  std::vector<std::string> ssh_args{};  // words
  bool copies_nothing = false;          // --no-copy
  std::optional<int> fanout{};
  bool leaves_logs_there = false;  // --no-gather-logs
  std::chrono::milliseconds login_timeout{std::chrono::seconds(120)};

  bool names_hosts() const { return hosts || hostfile || local_nodes; }
  bool operator==(const HostOptions&) const = default;
};

// --- Programs

enum class Device { Auto, Cpu, Gpu, Xpu };
using WorkerCount = std::variant<int, Device>;

struct ProgramOptions {
  // One of the two is set, the same one in all programs: workers in the job, or on each node.
  std::optional<int> np{};
  std::optional<WorkerCount> nproc_per_node{};
  std::string role{};
  std::vector<std::string> exports{};  // -x, unparsed
  std::optional<int> gpus_per_worker{};
  bool module = false;
  bool no_python = false;
  std::string program{};
  std::vector<std::string> arguments{};
  bool operator==(const ProgramOptions&) const = default;
};

// --- All options

struct NodeRange {
  int min = 1;
  int max = 1;
  bool is_fixed() const { return min == max; }
  bool operator==(const NodeRange&) const = default;
};

// --redirects, --tee: 1 is stdout, 2 is stderr, 3 is both.
struct StreamChoice {
  int all = 0;                    // for ranks that are not listed
  std::map<int, int> of_ranks{};  // "0:1,12:3"; `all` is then 0
  bool operator==(const StreamChoice&) const = default;
};

enum class DryRun { Text, Json };
enum class EngineChoice { Auto, None };
enum class ExitCodeStyle { Drun, Torchrun };

struct AutoThreads {  // --omp-threads=auto
  bool operator==(const AutoThreads&) const = default;
};
using OmpThreads = std::variant<AutoThreads, int>;

// `drun doctor` (launcher/plan/doctor.h): options in addition to those of the job.
struct DoctorOptions {
  bool is_json = false;
  bool operator==(const DoctorOptions&) const = default;
};

struct Options {
  std::string invoked_as = "drun";  // argv[0] without its folder; "torchrun" selects other defaults
  // The job.
  std::optional<NodeRange> nnodes{};
  std::optional<WorkerCount> nproc_per_node{};
  std::optional<int> max_restarts{};
  std::optional<std::string> role{};
  // Rendezvous.
  std::optional<int> node_rank{};
  std::optional<std::string> master_addr{};
  std::optional<int> master_port{};
  bool standalone = false;
  std::optional<std::string> rdzv_backend{};
  std::optional<std::string> rdzv_endpoint{};
  std::optional<std::string> rdzv_id{};
  std::vector<std::pair<std::string, std::string>> rdzv_conf{};
  std::optional<std::string> local_addr{};
  std::optional<std::string> secret_file{};
  bool pass_secret = false;
  StoreHost store = StoreHost::Agent;
  std::optional<std::size_t> store_memory_bytes{};
  // Elastic jobs and restarts.
  std::optional<RankOrder> rank_order{};
  std::optional<std::chrono::milliseconds> min_uptime{};
  std::optional<int> exclude_after{};
  bool exclude_slow = false;
  bool preflight = false;
  std::optional<std::chrono::milliseconds> heartbeat_timeout{};
  std::optional<std::chrono::milliseconds> hang_timeout{};
  RestartPolicy restart{};
  bool has_restart_backoff = false;
  std::optional<int> max_same_failures{};
  std::optional<std::string> checkpoint_directory{};
  EngineChoice engine = EngineChoice::Auto;
  // Other machines.
  HostOptions hosts{};
  std::optional<DoctorOptions> doctor{};
  // The program.
  bool module = false;
  bool no_python = false;
  bool run_path = false;
  bool pass_local_rank = false;
  bool virtual_local_rank = false;
  std::optional<StdinSource> stdin_source{};
  std::vector<std::string> preload{};  // Python modules
  std::optional<std::chrono::milliseconds> preload_timeout{};
  std::string program{};
  std::vector<std::string> program_arguments{};
  // With several programs: all of them, including the first.
  std::vector<ProgramOptions> programs{};
  std::optional<std::string> app{};        // --app
  std::optional<std::string> separator{};  // between programs, instead of ":"
  // Placement.
  std::optional<BindTo> bind_to{};       // None, Core, Socket, Numa or GpuNode
  std::optional<BindTo> numa_binding{};  // Gpu...
  std::optional<MemoryPolicy> bind_memory{};
  std::optional<int> gpus_per_worker{};
  std::optional<OmpThreads> omp_threads{};
  std::optional<std::vector<std::string>> wrap{};  // words
  std::optional<std::vector<int>> wrap_ranks{};
  // Output.
  OutputMode output = OutputMode::Lines;
  bool timestamps = false;
  bool gather_logs = false;
  StreamChoice redirects{};
  StreamChoice tee{};
  std::optional<std::string> log_dir{};
  std::optional<std::string> label{};  // --log-line-prefix-template
  std::optional<std::vector<int>> local_ranks_filter{};
  std::vector<std::string> duplicate_stdout_filters{};
  std::vector<std::string> duplicate_stderr_filters{};
  // Exit.
  std::optional<std::vector<std::string>> signals_to_handle{};
  std::optional<std::chrono::milliseconds> shutdown_timeout{};
  std::optional<LeftoverPolicy> leftovers{};
  std::optional<std::chrono::milliseconds> time_limit{};
  std::optional<SignalBefore> signal_before{};
  bool requeue = false;
  std::vector<std::string> reports{};  // --report: the file name extension selects the format
  std::optional<std::string> events{};
  FaultPlan inject{};
  std::optional<Endpoint> metrics{};  // --metrics-port; with a numeric address
  std::optional<ExitCodeStyle> exit_code{};
  // General.
  std::optional<DryRun> dry_run{};
  std::optional<LogLevel> log_level{};
  bool explain = false;
  // The source of each value: "--nnodes" -> "--nnodes", "PET_NNODES", or the configuration file.
  std::map<std::string, std::string> sources{};
  bool has_node_range() const { return nnodes && !nnodes->is_fixed(); }
  bool operator==(const Options&) const = default;
};

// `drun store`: runs only the store server.
struct StoreCommand {
  std::uint16_t port = 29500;
  bool is_loopback_only = false;
  std::size_t memory_bytes = kStoreMemoryBytes;
  bool operator==(const StoreCommand&) const = default;
};

// `drun status`: shows the jobs that have an agent on this machine.
struct StatusCommand {
  std::optional<std::string> job{};  // a run id, or the pid of an agent or its guardian
  bool is_json = false;
  bool is_live = false;
  bool is_node = false;  // of this node only
  bool operator==(const StatusCommand&) const = default;
};

// `drun stacks`: shows the stacks of all workers of a job.
struct StacksCommand {
  std::optional<std::string> job{};  // as in StatusCommand
  bool is_json = false;
  bool operator==(const StacksCommand&) const = default;
};

// `drun list`: one line per job that has an agent on this machine.
struct ListCommand {
  bool is_json = false;
  bool operator==(const ListCommand&) const = default;
};

// `drun stop`: ends jobs that have an agent on this machine.
struct StopCommand {
  std::vector<std::string> jobs{};                     // as in StatusCommand
  std::optional<std::chrono::milliseconds> timeout{};  // absent: waits without a limit; 0: not
  bool operator==(const StopCommand&) const = default;
};

// `drun logs`: prints lines from the log files of ranks.
struct LogsCommand {
  std::optional<std::string> first{};  // a job as in StatusCommand, or else ranks
  RankRanges ranks{};                  // empty: all
  bool is_following = false;
  std::optional<std::string> pattern{};  // a POSIX extended regular expression
  std::optional<int> tail{};             // the last lines of each file
  bool has_stdout = true;
  bool has_stderr = true;
  bool operator==(const LogsCommand&) const = default;
};

// `drun report`: renders the event files of a job as a page or as text.
struct ReportCommand {
  std::vector<std::string> files{};
  std::string output = "job.html";  // "-": standard output
  bool is_text = false;
  bool operator==(const ReportCommand&) const = default;
};

// Help, version, usage: prints the text and exits with `exit_code`; to stderr if it is not 0.
struct ShowText {
  std::string text;
  int exit_code = 0;
  bool operator==(const ShowText&) const = default;
};

// `drun --from-stdin`: an agent that --hosts on another machine started. It reads everything else
// from standard input (launcher/remote/agent_protocol.h).
struct FromStdinCommand {
  bool operator==(const FromStdinCommand&) const = default;
};

// `drun --complete WORD...`: called by the shells' completion scripts (launcher/cli/completion.h).
struct CompleteCommand {
  std::vector<std::string> words;
  bool operator==(const CompleteCommand&) const = default;
};

using Command =
    std::variant<Options, StoreCommand, StatusCommand, StacksCommand, ReportCommand, ListCommand,
                 StopCommand, LogsCommand, FromStdinCommand, CompleteCommand, ShowText>;

// `argv` includes argv[0]; `variables` looks up PET_<NAME> and LOGLEVEL. Errors: Usage, naming the
// option (or the variable, or the file), the value, the reason and the remedy; without a trailing
// newline. Never throws.
Result<Command> parse_command_line(std::span<const std::string> argv, const Lookup& variables);

// The name in messages: "drun", "torchrun", "drun status".
std::string command_name(std::span<const std::string> argv);

// Removes options about the job's workers, their output and exit, and keeps those about nodes and
// rendezvous.
Options doctor_options(Options options);

// "--option=value: reason; remedy".
Error usage_error(const std::string& what, const std::string& reason);

}  // namespace drun
