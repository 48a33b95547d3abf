// core. The command of one worker: its argv and drun's part of its environment, made from the
// user's command, the round, and the worker's local rank.
//
// Owner:   values; copy freely.   Thread: any.
// Source:  torchrun's worker environment; string.Template's safe_substitute for arguments.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/spec.h"
#include "rendezvous/job/world.h"

namespace drun::agent {

// What a worker shares with its agent. Empty: not set.
struct WorkerChannels {
  std::string heartbeat_file{};  // DRUN_HEARTBEAT_FILE
  std::string ras_address{};     // NCCL_RAS_ADDR
  std::string progress_file{};   // DRUN_PROGRESS_FILE
};

// What drun sets for this worker, in a fixed order; it wins over what is inherited. `error_file`
// becomes TORCHELASTIC_ERROR_FILE (empty: set and empty). Requires 0 <= local_rank <
// world.local_world_size, and with virtual_local_rank but no devices in its placement,
// inherited_devices() of the spec's environment that are absent or have an entry for it (the plan
// checks that).
std::vector<EnvironmentEntry> own_environment(const WorkerSpec& spec, const World& world,
                                              int local_rank, std::string_view error_file,
                                              const WorkerChannels& channels = {});

// Which of several programs the worker is; null: there is only one.
const ProgramSpec* program_of(const WorkerSpec& spec, int local_rank);

// What the user named, not the interpreter in front of it.
const std::string& program_name(const WorkerSpec& spec, int local_rank);

// The worker's place; null: it has none of its own.
const WorkerPlacement* placement_of(const WorkerSpec& spec, int local_rank);

// worker_argv, with the command around it that --wrap asked for, if this rank is to have it.
std::vector<std::string> wrapped_argv(const WorkerSpec& spec, const World& world, int local_rank);

// argv[0] is still to be looked up on PATH when it holds no slash.
std::vector<std::string> worker_argv(const WorkerSpec& spec, int local_rank);

// ${local_rank} and $local_rank become the number and $$ becomes $, as under torchrun; but an
// argument that does not speak of local_rank stays as it is, so that $$ in a shell's command still
// means what it says.
std::string with_local_rank(std::string_view argument, int local_rank);

// ${rank} and ${local_rank} become those numbers; every other $ stays: debuggers have their own.
struct RankNumbers {
  int rank = 0;
  int local_rank = 0;
};
std::string with_ranks(std::string_view word, RankNumbers numbers);

// The entries of a list such as CUDA_VISIBLE_DEVICES, without spaces around them.
std::vector<std::string> visible_devices(std::string_view list);

// The list that says which device each virtual local rank gets. As in torchrun, a
// HIP_VISIBLE_DEVICES that is not empty takes precedence, and is then set for the worker beside
// CUDA_VISIBLE_DEVICES.
struct DeviceList {
  std::string variable;
  std::vector<std::string> devices;
};
std::optional<DeviceList> inherited_devices(const std::vector<EnvironmentEntry>& environment);

// What is started in a world of probes: nothing around it, nothing placed.
WorkerSpec probe_of(const AgentSpec& spec);

}  // namespace drun::agent
