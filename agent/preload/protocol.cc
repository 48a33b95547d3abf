#include "agent/preload/protocol.h"

#include <algorithm>
#include <array>

#include "rendezvous/base/text.h"

namespace drun::agent::preload {
namespace {

// Those of one rank, or known only once the nodes have joined. (own_environment)
bool differs_by_rank(std::string_view name) {
  static constexpr auto kNames = std::to_array<std::string_view>(
      {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
       "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NCCL_RAS_ADDR",
       "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_WORKER_SERVER_SOCKET",
       "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"});
  return name.starts_with("TORCHELASTIC_") || name.starts_with("DRUN_") ||
         std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

std::string joined(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

std::optional<int> number_of(std::string_view text) {
  const auto number = whole_number<int>(text);
  return number && *number >= 1 ? number : std::nullopt;
}

}  // namespace

std::optional<PythonProgram> python_program(const std::vector<std::string>& argv) {
  if (argv.size() < 3 || argv[1] != "-u") return std::nullopt;
  const std::string_view python = argv[0];
  const std::string_view base = python.substr(python.rfind('/') + 1);
  if (!base.starts_with("python")) return std::nullopt;
  PythonProgram program{.python = argv[0], .is_module = argv[2] == "-m", .name = argv[2]};
  if (program.is_module && argv.size() < 4) return std::nullopt;
  if (program.is_module) program.name = argv[3];
  if (program.name.empty() || program.name.starts_with('-')) return std::nullopt;
  return program;
}

std::optional<std::string> mismatch(const Start& start, const Command& command) {
  const std::optional<PythonProgram> program = python_program(command.argv);
  if (!program) return "it is not started as python -u SCRIPT or python -u -m MODULE";
  if (program->python != start.program.python)
    return "its Python is " + program->python + ", and the preloaded one is " +
           start.program.python;
  if (*program != start.program)
    return "its program is " + program->name + ", and the preloaded interpreter was started for " +
           start.program.name;
  if (command.network_fd) return "it runs in a separate network namespace";
  const Command interpreter{.inherited = command.inherited, .environment = start.environment};
  const auto differs = [&](std::string_view name) -> std::optional<std::string> {
    if (differs_by_rank(name)) return std::nullopt;
    const auto mine = find_variable(command, name);
    const auto other = find_variable(interpreter, name);
    if (mine == other) return std::nullopt;
    return std::string(name) + " is " + (mine ? "\"" + std::string(*mine) + "\"" : "not set") +
           " for it and " + (other ? "\"" + std::string(*other) + "\"" : "not set") +
           " for the preloaded interpreter";
  };
  for (const auto& [name, value] : command.environment)
    if (auto difference = differs(name)) return difference;
  for (const auto& [name, value] : start.environment)
    if (auto difference = differs(name)) return difference;
  return std::nullopt;
}

std::string request(const Command& command, int agent) {
  std::string text;
  const auto add = [&text](std::string_view field) {
    text += field;
    text += '\0';
  };
  const WorkerPlacement none;
  const WorkerPlacement& place = command.placement == nullptr ? none : *command.placement;
  add(std::to_string(agent));
  add(joined(place.cpus));
  add(to_string(place.memory_nodes.empty() ? MemoryPolicy::None : place.memory));
  add(joined(place.memory_nodes));
  add(std::to_string(command.argv.size()));
  for (const std::string& word : command.argv) add(word);
  const ExecImage image(command, command.argv[0]);
  for (char* const* line = image.environment(); *line != nullptr; ++line) add(*line);
  return text;
}

Message parse_message(std::string_view bytes) {
  if (bytes.size() > kMostMessageBytes) return {};
  const std::size_t first_end = bytes.find('\0');
  if (first_end == bytes.npos || bytes.back() != '\0') return {};
  const std::string_view kind = bytes.substr(0, first_end);
  bytes.remove_prefix(first_end + 1);
  const std::size_t end = bytes.find('\0');
  if (end == bytes.npos || end + 1 != bytes.size()) return {};
  const std::string value(bytes.substr(0, end));
  using Kind = Message::Kind;
  if (kind == "ready") return {Kind::Ready, value};
  if (kind == "failed") return {Kind::ImportFailed, value};
  if (kind == "unsafe") return {Kind::Unsafe, value};
  if (kind == "refused") return {Kind::Refused, value};
  if (const auto pid = number_of(value); kind == "forked" && pid)
    return {.kind = Kind::Forked, .pid = *pid};
  return {};
}

std::optional<ChannelMessage> parse_channel_message(std::string_view bytes) {
  const std::size_t blank = bytes.find(' ');
  if (blank == bytes.npos) return std::nullopt;
  const std::string_view what = bytes.substr(0, blank);
  const std::optional<int> number = number_of(bytes.substr(blank + 1));
  if (!number) return std::nullopt;
  if (what == "memory") return MemoryNotPlaced{*number};
  if (what == "cpus") return NotBound{.error_number = *number, .is_memory = false};
  if (what == "strict") return NotBound{.error_number = *number, .is_memory = true};
  return std::nullopt;
}

}  // namespace drun::agent::preload
