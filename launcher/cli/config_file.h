// core. Parses the file of --config: a subset of TOML with one option per entry.
//
//   nnodes = "1:4"                  # a string in quotes of either kind,
//   nproc-per-node = 8              # a number, true or false,
//   local-ranks-filter = [0, 2]     # or a list, on any number of lines
//
// Names are long options without leading dashes; options.cc interprets the values. Sections, dotted
// names, dates, tables and multi-line strings are errors, as are files that are not TOML.
//
// Not a library: on malformed files, toml++ of Debian 12 reaches code that it considers
// unreachable, and toml11 reads beyond its input, as a few minutes of fuzzing showed.
// Errors:  Usage, with the line, the problem and the remedy. Never throws.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace drun {

// `preflight = true`: "true"; 0x10: "16"; 1_000.50: "1000.50". A list has any number of values.
struct ConfigEntry {
  std::string name{};
  std::vector<std::string> values{};
  int line = 0;  // starts at 1
  bool is_list = false;
  bool operator==(const ConfigEntry&) const = default;
};

// In the order of the file. Error messages begin with the line number: "3: ".
Result<std::vector<ConfigEntry>> parse_config(std::string_view text);

}  // namespace drun
