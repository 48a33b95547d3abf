// core. The messages between the agent and the preloaded interpreter (interpreter.py), and which
// workers the interpreter can start.
//
// Source:  the head of interpreter.py lists the messages.
// Limits:  a message from the interpreter is bounded by kMostMessageBytes; a longer one is invalid.
// Thread:  any.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "agent/spawn/command.h"
#include "agent/spawn/spawn.h"

namespace drun::agent::preload {

inline constexpr std::size_t kMostMessageBytes = 16 * 1024;

// A worker that is started as `python -u SCRIPT ...` or `python -u -m MODULE ...`.
struct PythonProgram {
  std::string python;
  bool is_module = false;
  std::string name;  // of the script or the module
  bool operator==(const PythonProgram&) const = default;
};

// Absent: another program, or Python with other options.
std::optional<PythonProgram> python_program(const std::vector<std::string>& argv);

// The environment in which the interpreter was started.
struct Start {
  PythonProgram program;
  std::vector<EnvironmentEntry> environment;  // in addition to what all workers of a node inherit
  bool operator==(const Start&) const = default;
};

// Why the interpreter cannot start this worker; absent: it can. Every variable must have the same
// value for both, since Python and the modules may have read it, except those of one rank, which
// drun sets, and those that select devices.
std::optional<std::string> mismatch(const Start& start, const Command& command);

// The request of one worker. `agent` is the pid that becomes the worker's parent.
std::string request(const Command& command, int agent);

// A message of the interpreter.
struct Message {
  enum class Kind { Invalid, Ready, ImportFailed, Unsafe, Forked, Refused };
  Kind kind = Kind::Invalid;
  // Of Ready, the seconds that the imports took; of ImportFailed, the module; of Unsafe and
  // Refused, the reason.
  std::string text{};
  int pid = 0;  // of Forked
  bool operator==(const Message&) const = default;
};

Message parse_message(std::string_view bytes);

// The report of a worker on its channel before it begins the program.
struct MemoryNotPlaced {
  int error_number = 0;
};
using ChannelMessage = std::variant<MemoryNotPlaced, NotBound>;

// Absent: invalid.
std::optional<ChannelMessage> parse_channel_message(std::string_view bytes);

}  // namespace drun::agent::preload
