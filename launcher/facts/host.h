// edge. Facts about this machine and process: names, CPUs, GPUs, environment, files. The only place
// in the launcher that queries the system.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/engines/engine_facts.h"
#include "launcher/facts/topology.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/world.h"
#include "rendezvous/tls/secret.h"

namespace drun {

enum class FileKind { Missing, Directory, NotExecutable, Executable };
using TopologyProbe = std::function<Result<Topology>()>;
using FileProbe = std::function<FileKind(const std::string& path)>;
using engines::AddressLookup;
using SecretReader = std::function<Result<Secret>(const std::string& path)>;
using SecretMaker = std::function<std::string()>;
using PortMaker = std::function<std::optional<int>()>;
using SourceLookup = std::function<std::optional<std::string>(const std::string& address)>;
using FileText = std::function<std::optional<std::string>(const std::string& path)>;

// A node of a job with --hosts. The launcher makes the plans of all nodes, and checks them before
// anything starts.
struct LaunchedNode {
  bool is_placed_later = false;       // the agent gets the endpoints when all agents have reported
  std::optional<std::size_t> seat{};  // then: the index of this host's endpoint
};

struct HostFacts {
  std::string hostname{};             // from the kernel; no name lookup, which could hang
  int usable_cpus = 1;                // that this process may use: affinity and cgroup quota
  std::vector<int> cpus{};            // numbers of the CPUs in its affinity mask
  int gpus = 0;                       // visible ones: device files, CUDA_VISIBLE_DEVICES or similar
  std::vector<Gpu> installed_gpus{};  // those that the variable selects from
  std::string gpu_variable = "CUDA_VISIBLE_DEVICES";  // selects the visible GPUs of a worker
  std::vector<EnvironmentEntry> environment{};        // of this process
  std::vector<EnvironmentEntry> exports{};  // -x: for the workers, overrides `environment`
  std::optional<LaunchedNode> launched{};   // absent: this process plans its node itself
  std::string working_directory{};          // absolute; empty if it was removed
  std::string own_folder{};                 // of this drun
  std::string drun_version{};               // likewise
  std::string random_id{};                  // 32 hexadecimal digits, new in each process
  std::chrono::seconds utc_offset{0};       // of local time, for display
  bool has_terminal = false;                // whether stderr is a terminal
  int columns = 0;                          // of that terminal; 0: unknown
  std::vector<std::string> addresses{};     // of the interfaces, numeric
  std::vector<std::pair<std::string, std::string>> interfaces{};  // name, numeric address
  AddressLookup addresses_of{};  // resolves a name to numeric addresses; may take long
  // Slurm's addresses of a node name, numeric or names. Runs scontrol, which may take seconds.
  AddressLookup slurm_addresses{};
  SourceLookup source_address{};  // the local address for traffic to a numeric address
  TopologyProbe topology{};       // CPUs and memory nodes; called only if workers are placed
  FileProbe probe{};              // inspects one path; relative to the working directory
  engines::Meeting meeting{};     // if an engine offers PMI-1 or PMIx; may take long
  SecretReader secret_file{};     // read_secret_file() (files.h)
  SecretMaker new_secret{};       // 64 hexadecimal digits; empty: no random bytes available
  // A free TCP port of the loopback interface. The port stays reserved while this function or a
  // copy of it exists; a listener with SO_REUSEADDR may bind it.
  PortMaker free_port{};
  std::string machine_id{};  // identifies kernel, boot and network namespace; empty: unknown
  FileText file_text{};      // contents of a regular file; absent: unreadable or over 4 MiB
};

// Call once, before other threads exist: moves the value of DRUN_SECRET from the process
// environment into `environment`.
HostFacts look_at_host();

// The value of the first entry with this name.
std::optional<std::string> value_of(const std::vector<EnvironmentEntry>& entries,
                                    std::string_view name);
// Looks in `facts.environment`. If a variable is set twice, the first one counts, as in getenv.
std::optional<std::string> variable(const HostFacts& facts, std::string_view name);
// The value that a worker will see: -x takes precedence. Use it for variables that affect only
// workers.
std::optional<std::string> workers_variable(const HostFacts& facts, std::string_view name);

// --- CPUs that this process may use, by its affinity and the CPU quotas of its cgroups
//
// A limit that cannot be read is ignored. See sched_getaffinity(2), cgroups(7).

// Sets the affinity of this thread and of the processes and threads that it creates later.
Result<void> set_affinity(const std::vector<int>& cpus);

// The part of `cpus` that the quotas allow, at least 1. Reads /proc/self/cgroup and /sys/fs/cgroup
// below `root` (for tests).
int cpus_within_quota(int cpus, const std::string& root);

}  // namespace drun
