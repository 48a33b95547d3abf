// core. What to execute: one worker as one plain struct, and the form execve wants it in.
//
// Owner:   Command borrows its descriptors, `inherited` and `placement`: they are read while it is
//          being started and not kept. ExecImage points into the Command it was made from and is
//          not copied.
// Thread:  any.
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
  // "NAME=value" lines that all workers of a node share (see to_lines); a name in `environment`
  // wins over the same name here.
  std::span<const std::string> inherited{};
  std::vector<EnvironmentEntry> environment{};  // each name once
  // What becomes the worker's 0, 1 and 2. May be close-on-exec; may be one another's numbers.
  int stdin_fd = 0;
  int stdout_fd = 1;
  int stderr_fd = 2;
  // The worker's soft limit of descriptors; absent: drun's own.
  std::optional<std::uint64_t> descriptor_limit{};
  std::optional<int> network_fd{};  // a network namespace to be started in; absent: drun's own
  const WorkerPlacement* placement = nullptr;  // its CPUs and memory nodes; null: as drun's own
};

// {"A", "1"} -> "A=1".
std::vector<std::string> to_lines(const std::vector<EnvironmentEntry>& entries);

// The value of `name` as the worker would see it; absent: not set.
std::optional<std::string_view> find_variable(const Command& command, std::string_view name);

// argv and environment as null-terminated arrays. Costs a pointer for each inherited line, a copy
// for each own one.
class ExecImage {
 public:
  // `path` is what execve gets; it and `command` must outlive the image.
  ExecImage(const Command& command, const std::string& path);
  ExecImage(const ExecImage&) = delete;
  ExecImage& operator=(const ExecImage&) = delete;

  char* const* argv() const { return argv_.data(); }
  // {"/bin/sh", path, argv[1], ...}: for a text without #!, as execvp does it. [1] may be replaced
  // by the path at which the text was found.
  char** shell_argv() { return shell_argv_.data(); }
  char* const* environment() const { return environment_.data(); }

 private:
  std::vector<std::string> own_lines_;
  std::vector<char*> argv_;
  std::vector<char*> shell_argv_;
  std::vector<char*> environment_;
};

}  // namespace drun::agent
