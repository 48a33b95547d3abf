// core. The file that --config names: of TOML what options need, one of them a line.
//
//   nnodes = "1:4"                  # a string, in quotes of either kind
//   nproc-per-node = 8              # or a number, true, false
//   local-ranks-filter = [0, 2]     # or several of them, on any number of lines
//
// Names are those of the long options, without dashes in front. What an option makes of its values
// is not decided here. Of TOML there are no sections, dotted names, dates, tables, strings of
// several lines: all of it is an error, as is what is no TOML.
// Own:     of the TOML libraries of Debian 12 toml++ runs into code that it takes for unreachable,
//          toml11 reads beyond its input, when a file is broken: minutes of fuzzing showed it.
// Errors:  Usage, with the line, what is wrong there and the remedy. Never throws.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace drun {

// `preflight = true`: "true"; 0x10: "16"; 1_000.50: "1000.50". Several values: a list's, which may
// be empty.
struct ConfigEntry {
  std::string name{};
  std::vector<std::string> values{};
  int line = 0;  // from 1
  bool operator==(const ConfigEntry&) const = default;
};

// In order of their lines. Errors begin with the line: "3: ".
Result<std::vector<ConfigEntry>> parse_config(std::string_view text);

}  // namespace drun
