// core. The command of one worker: its argv and drun's part of its environment, derived from the
// user's command, the round, and the worker's local rank. Follows torchrun's worker environment,
// and string.Template's safe_substitute for arguments.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/spec.h"
#include "rendezvous/job/world.h"

namespace drun::agent {

// Shared with the agent. Empty: not set.
struct WorkerChannels {
  std::string heartbeat_file{};                     // DRUN_HEARTBEAT_FILE
  std::string ras_address{};                        // NCCL_RAS_ADDR
  std::string progress_file{};                      // DRUN_PROGRESS_FILE
  std::string key_file{};                           // DRUN_WORKER_KEY_FILE
  std::vector<EnvironmentEntry> flight_recorder{};  // where PyTorch's is asked for a dump
};

// The variables that drun sets for this worker, in a fixed order; they override inherited ones.
// `error_file` is the value of TORCHELASTIC_ERROR_FILE, which is set even if it is empty. Requires
// 0 <= local_rank < world.local_world_size. With virtual_local_rank and no devices in the worker's
// placement, inherited_devices() of the spec's environment must be absent or have an entry for the
// worker; the plan ensures that.
std::vector<EnvironmentEntry> own_environment(const WorkerSpec& spec, const World& world,
                                              int local_rank, std::string_view error_file,
                                              const WorkerChannels& channels = {});

// The worker's program if there are several; else null.
const ProgramSpec* program_of(const WorkerSpec& spec, int local_rank);

// The user's program, without the interpreter that runs it.
const std::string& program_name(const WorkerSpec& spec, int local_rank);

// The worker's placement; null if it has none.
const WorkerPlacement* placement_of(const WorkerSpec& spec, int local_rank);

// worker_argv, inside the --wrap command if that applies to this rank.
std::vector<std::string> wrapped_argv(const WorkerSpec& spec, const World& world, int local_rank);

// argv[0] is to be searched on PATH if it contains no slash.
std::vector<std::string> worker_argv(const WorkerSpec& spec, int local_rank);

// Replaces ${local_rank} and $local_rank by the number and $$ by $, as torchrun does. An argument
// without local_rank is left unchanged, so that $$ in a shell command keeps its meaning.
std::string with_local_rank(std::string_view argument, int local_rank);

// Replaces ${rank} and ${local_rank}. Other uses of $ are left unchanged, because debuggers use
// them.
struct RankNumbers {
  int rank = 0;
  int local_rank = 0;
};
std::string with_ranks(std::string_view word, RankNumbers numbers);

// The entries of a list such as CUDA_VISIBLE_DEVICES, without surrounding spaces.
std::vector<std::string> visible_devices(std::string_view list);

// The list that assigns devices to virtual local ranks. As in torchrun, a nonempty
// HIP_VISIBLE_DEVICES takes precedence, and is then set for the worker in addition to
// CUDA_VISIBLE_DEVICES.
struct DeviceList {
  std::string variable;
  std::vector<std::string> devices;
};
std::optional<DeviceList> inherited_devices(const std::vector<EnvironmentEntry>& environment);

// The spec for a world of probes: without a wrapper command and placement.
WorkerSpec probe_of(const AgentSpec& spec);

}  // namespace drun::agent
