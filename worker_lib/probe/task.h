// core. What the launcher tells the probe on its command line.
// Errors:  Usage.   Thread: any.
#pragma once

#include <span>
#include <string>

#include "rendezvous/result.h"

namespace drun::probe {

struct Task {
  std::string version{};  // --drun-version=
  int cores = 0;          // --cores=
  int gpus = 0;           // --gpus=
  std::string problem{};  // --problem=: why the job's program cannot be started here
  bool is_json = false;   // --json
  bool is_quiet = false;  // --quiet: node 0 speaks for all
  // --preflight: no table; a node that is at fault ends with 1.
  bool is_preflight = false;
  bool operator==(const Task&) const = default;
};

// `words` without the program's name.
Result<Task> parse_task(std::span<const std::string> words);

}  // namespace drun::probe
