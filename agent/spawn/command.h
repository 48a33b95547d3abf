// core. The description of a process to start, and its form for execve(2).
//
// Owner:   a Command borrows its descriptors, `inherited` and `placement`: they are read while it
//          is started, and not kept. An ExecImage points into its Command and cannot be copied.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/spec.h"
#include "rendezvous/job/world.h"

namespace drun::agent {

struct Command {
  std::vector<std::string> argv{};  // argv[0] without a slash is looked up on the worker's own PATH
  // "NAME=value" lines that all workers of a node share (see to_lines). `environment` overrides
  // them.
  std::span<const std::string> inherited{};
  std::vector<EnvironmentEntry> environment{};  // names are unique
  // Become descriptors 0, 1 and 2. May be close-on-exec, and may be 0, 1 or 2 in any order.
  int stdin_fd = 0;
  int stdout_fd = 1;
  int stderr_fd = 2;
  // The soft limit on descriptors; absent: drun's own.
  std::optional<std::uint64_t> descriptor_limit{};
  std::optional<int> network_fd{};             // network namespace to start in; absent: drun's own
  const WorkerPlacement* placement = nullptr;  // CPUs and memory nodes; null: drun's own
};

// {"A", "1"} -> "A=1".
std::vector<std::string> to_lines(const std::vector<EnvironmentEntry>& entries);

// The value of `name` in the worker's environment; absent: not set.
std::optional<std::string_view> find_variable(const Command& command, std::string_view name);

// The value that the user gives the workers: in the -x of the first program that has any, or
// inherited. Null: not set.
const std::string* users_value(const WorkerSpec& spec, std::string_view name);

// argv and environment as null-terminated arrays. Stores a pointer per inherited line and a copy of
// each own one.
class ExecImage {
 public:
  // `path`: for execve. It and `command` must outlive the image.
  ExecImage(const Command& command, const std::string& path);
  ExecImage(const ExecImage&) = delete;
  ExecImage& operator=(const ExecImage&) = delete;

  char* const* argv() const { return argv_.data(); }
  // {"/bin/sh", path, argv[1], ...}: for a script without #!, as in execvp. [1] may be replaced by
  // the path at which the script was found.
  char** shell_argv() { return shell_argv_.data(); }
  char* const* environment() const { return environment_.data(); }

 private:
  std::vector<std::string> own_lines_;
  std::vector<char*> argv_;
  std::vector<char*> shell_argv_;
  std::vector<char*> environment_;
};

}  // namespace drun::agent
