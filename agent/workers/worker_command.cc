#include "agent/workers/worker_command.h"

#include <algorithm>
#include <cassert>

#include "agent/nccl_ras/ras_service.h"
#include "agent/string_template.h"
#include "rendezvous/base/pulse_page.h"
#include "rendezvous/base/text.h"
#include "rendezvous/job/restart_policy.h"
#include "rendezvous/tls/secret.h"

namespace drun::agent {
namespace {

constexpr std::string_view kCudaDevices = "CUDA_VISIBLE_DEVICES";
constexpr std::string_view kHipDevices = "HIP_VISIBLE_DEVICES";
constexpr std::string_view kLocalRank = "local_rank";

// Adds the variables for the one device that a worker with virtual local rank 0 sees.
void add_virtual_device(std::vector<EnvironmentEntry>& own, const WorkerSpec& spec,
                        int local_rank) {
  const std::optional<DeviceList> list = inherited_devices(spec.environment);
  std::string device = std::to_string(local_rank);
  if (list) {
    assert(static_cast<std::size_t>(local_rank) < list->devices.size());
    device = list->devices[static_cast<std::size_t>(local_rank)];
  }
  own.emplace_back(kCudaDevices, device);
  if (list && list->variable == kHipDevices) own.emplace_back(kHipDevices, device);
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

// Adds the program's -x variables that drun does not set itself.
void add_programs_own(std::vector<EnvironmentEntry>& own, const WorkerSpec& spec, int local_rank) {
  const ProgramSpec* program = program_of(spec, local_rank);
  if (program == nullptr) return;
  for (const EnvironmentEntry& entry : program->environment) {
    const bool is_set = std::any_of(own.begin(), own.end(),
                                    [&](const auto& each) { return each.first == entry.first; });
    if (!is_set) own.push_back(entry);
  }
}

}  // namespace

std::vector<std::string> visible_devices(std::string_view list) {
  std::vector<std::string> devices;
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    devices.emplace_back(trimmed(list.substr(0, comma)));
    list.remove_prefix(comma == list.npos ? list.size() : comma + 1);
  }
  return devices;
}

std::optional<DeviceList> inherited_devices(const std::vector<EnvironmentEntry>& environment) {
  std::optional<DeviceList> found;
  for (const auto& [name, value] : environment) {
    if (name == kHipDevices && !value.empty())
      return DeviceList{.variable = name, .devices = visible_devices(value)};
    if (name == kCudaDevices)
      found = DeviceList{.variable = name, .devices = visible_devices(value)};
  }
  return found;
}

std::string with_local_rank(std::string_view argument, int local_rank) {
  if (argument.find(kLocalRank) == argument.npos) return std::string(argument);
  return substitute(argument, TemplateSyntax::Python, [local_rank](std::string_view name) {
    return name == kLocalRank ? std::optional(std::to_string(local_rank)) : std::nullopt;
  });
}

std::string with_ranks(std::string_view word, RankNumbers numbers) {
  return substitute(word, TemplateSyntax::BracesOnly,
                    [numbers](std::string_view name) -> std::optional<std::string> {
                      if (name == kLocalRank) return std::to_string(numbers.local_rank);
                      if (name == "rank") return std::to_string(numbers.rank);
                      return std::nullopt;
                    });
}

std::vector<EnvironmentEntry> own_environment(const WorkerSpec& spec, const World& world,
                                              int local_rank, std::string_view error_file,
                                              const WorkerChannels& channels) {
  assert(local_rank >= 0 && local_rank < world.local_world_size);
  std::vector<EnvironmentEntry> own = to_environment(world, local_rank);
  own.emplace_back("TORCHELASTIC_ERROR_FILE", error_file);
  const auto add = [&own](const char* name, const std::string& value) {
    if (!value.empty()) own.emplace_back(name, value);
  };
  add(kHeartbeatVariable, channels.heartbeat_file);
  add(ras::kAddressVariable, channels.ras_address);
  add(kProgressVariable, channels.progress_file);
  add(kWorkerKeyVariable, channels.key_file);
  own.insert(own.end(), channels.flight_recorder.begin(), channels.flight_recorder.end());
  if (spec.virtual_local_rank) {
    for (auto& [name, value] : own) {
      if (name == "LOCAL_RANK") value = "0";
    }
  }
  const WorkerPlacement* placement = placement_of(spec, local_rank);
  if (placement != nullptr && !placement->devices.empty())
    own.emplace_back(spec.device_variable, joined(placement->devices));
  else if (spec.virtual_local_rank)
    add_virtual_device(own, spec, local_rank);
  if (placement != nullptr && placement->omp_threads)
    own.emplace_back("OMP_NUM_THREADS", std::to_string(*placement->omp_threads));
  add_programs_own(own, spec, local_rank);
  return own;
}

const ProgramSpec* program_of(const WorkerSpec& spec, int local_rank) {
  int before = 0;
  return share_at(spec.programs, local_rank, before);
}

const std::string& program_name(const WorkerSpec& spec, int local_rank) {
  const ProgramSpec* program = program_of(spec, local_rank);
  return program == nullptr ? spec.argv.at(spec.program_arguments_at - 1)
                            : program->argv.at(program->arguments_at - 1);
}

const WorkerPlacement* placement_of(const WorkerSpec& spec, int local_rank) {
  const auto i = static_cast<std::size_t>(local_rank);
  return i < spec.placements.size() ? &spec.placements[i] : nullptr;
}

std::vector<std::string> worker_argv(const WorkerSpec& spec, int local_rank) {
  const ProgramSpec* program = program_of(spec, local_rank);
  const std::vector<std::string>& words = program == nullptr ? spec.argv : program->argv;
  const std::size_t begin = program == nullptr ? spec.program_arguments_at : program->arguments_at;
  std::vector<std::string> argv;
  argv.reserve(words.size() + 1);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool is_argument = i > 0 && spec.substitutes_local_rank;
    argv.push_back(is_argument ? with_local_rank(words[i], local_rank) : words[i]);
  }
  if (spec.passes_local_rank) {
    const std::size_t at = std::min(begin, argv.size());
    const int shown = spec.virtual_local_rank ? 0 : local_rank;
    argv.insert(argv.begin() + static_cast<std::ptrdiff_t>(at),
                "--local-rank=" + std::to_string(shown));
  }
  return argv;
}

std::vector<std::string> wrapped_argv(const WorkerSpec& spec, const World& world, int local_rank) {
  std::vector<std::string> argv = worker_argv(spec, local_rank);
  const int rank = world.base_rank + local_rank;
  const std::vector<int>& ranks = spec.wrap.ranks;
  if (!ranks.empty() && std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) return argv;
  std::vector<std::string> wrap;
  wrap.reserve(spec.wrap.argv.size() + argv.size());
  for (const std::string& word : spec.wrap.argv)
    wrap.push_back(with_ranks(word, {.rank = rank, .local_rank = local_rank}));
  argv.insert(argv.begin(), wrap.begin(), wrap.end());
  return argv;
}

WorkerSpec probe_of(const AgentSpec& spec) {
  WorkerSpec probe;
  probe.argv = spec.preflight_argv;
  probe.substitutes_local_rank = false;
  probe.environment = spec.worker.environment;
  return probe;
}

}  // namespace drun::agent
