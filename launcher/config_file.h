// edge. The file that --config names: TOML, one option a line.
//
//   nnodes = "1:4"
//   nproc-per-node = 8
//   local-ranks-filter = [0, 2]
//   preflight = true
//
// Names are those of the long options, without dashes in front. What an option makes of its values
// is not decided here.
// Errors:  Usage, with the line, what is wrong there and the remedy. Never throws.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/result.h"

namespace drun {

// `preflight = true`: "true". Several values: an array's, which may be empty.
struct ConfigEntry {
  std::string name{};
  std::vector<std::string> values{};
  int line = 0;  // from 1
  bool operator==(const ConfigEntry&) const = default;
};

// In order of their lines.
Result<std::vector<ConfigEntry>> parse_config(std::string_view text);

// As parse_config, of at most 1 MiB from a file or a pipe; errors name the path too.
Result<std::vector<ConfigEntry>> read_config(const std::string& path);

}  // namespace drun
