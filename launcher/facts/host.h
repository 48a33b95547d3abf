// edge. What this machine and this process are: names, cores, GPUs, environment, files. The only
// place in the launcher that asks the system; decides nothing.
//
// Owner:   values; copy freely.   Thread: main's, before any other exists.
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
#include "rendezvous/net/secret.h"

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

struct HostFacts {
  std::string hostname{};   // as the kernel knows it: no name service is asked, none can hang
  int usable_cpus = 1;      // this process may use: affinity and cgroup quota
  std::vector<int> cpus{};  // by number: those of its affinity
  int gpus = 0;             // visible: device files, CUDA_VISIBLE_DEVICES and its kin
  std::vector<Gpu> installed_gpus{};                  // what that variable chooses from
  std::string gpu_variable = "CUDA_VISIBLE_DEVICES";  // that says here which GPUs a worker sees
  std::vector<EnvironmentEntry> environment{};        // this process's own
  std::vector<EnvironmentEntry> exports{};            // -x: for the workers, over `environment`
  std::string working_directory{};                    // absolute; empty when it is gone
  std::string own_folder{};                           // where this drun is
  std::string random_id{};                            // 32 hexadecimal digits, new for each process
  std::chrono::seconds utc_offset{0};                 // of local time, for display
  bool has_terminal = false;                          // stderr is a terminal
  int columns = 0;                                    // of that terminal; 0: not known
  std::vector<std::string> addresses{};               // of its interfaces, numeric
  std::vector<std::pair<std::string, std::string>> interfaces{};  // name, numeric address: of all
  AddressLookup addresses_of{};  // of a name, numeric; asks the name service, may take long
  // Of a node's name, as Slurm knows them, numeric or names: asks scontrol, may take seconds.
  AddressLookup slurm_addresses{};
  SourceLookup source_address{};  // this host's, from where that numeric one would be talked to
  TopologyProbe topology{};    // CPUs and memory nodes; asked only when something is to be placed
  FileProbe probe{};           // looks at one path, relative ones from the working directory
  engines::Meeting meeting{};  // where an engine speaks PMI-1 or PMIx; may take long
  SecretReader secret_file{};  // secret_file.h
  SecretMaker new_secret{};    // 64 hexadecimal digits; empty: the kernel gives no random bytes
  // A free TCP port of the loopback interface. No other process is given it as long as this
  // function, or a copy of it, exists; a listener with SO_REUSEADDR may bind it.
  PortMaker free_port{};
  std::string machine_id{};  // of its kernel and network, until the next boot; empty: not known
  FileText file_text{};      // all of a regular file; absent: not readable, or over 4 MiB
};

// Once: DRUN_SECRET's value is in `environment` afterwards, and no longer in the process's own.
HostFacts look_at_host();

// The value in `facts.environment`; a variable that is set twice counts as its first, as getenv.
std::optional<std::string> variable(const HostFacts& facts, std::string_view name);
// The same as a worker will see it: -x wins. What only concerns workers is read by this one.
std::optional<std::string> workers_variable(const HostFacts& facts, std::string_view name);

// The whole text or nothing: written beside `path`, then renamed. Errors: System, naming the path.
Result<void> write_file(const std::string& path, std::string_view text);

}  // namespace drun
