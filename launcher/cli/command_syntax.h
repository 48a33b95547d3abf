// core. The options and operands of drun and its helper commands, from which completions and manual
// pages are generated. options.cc builds it from the tables that also parse the command line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/arguments.h"

namespace drun {

struct OptionSyntax {
  KnownOption known{};
  std::string_view group{};   // heading in --help; empty: hidden alternative spelling
  std::string_view type{};    // "N", "FILE", "auto|none"; empty for a flag
  std::string_view text{};    // a '\n' is kept in --help
  bool has_variable = false;  // PET_NAME
  bool operator==(const OptionSyntax&) const = default;
};

struct CommandSyntax {
  enum class Operand { None, Program, Job, Jobs, Files };  // Job: at most one
  std::string name{};                                      // "store"; empty: drun itself
  std::string head{};  // the text that --help prints before the options
  Operand operand = Operand::None;
  std::vector<OptionSyntax> options{};
};

// The first one is drun itself.
std::vector<CommandSyntax> command_syntaxes();

// The alternatives in `type`: "auto", "cpu" and "gpu" for "N|auto|cpu|gpu".
std::vector<std::string> choices_of(std::string_view type);

}  // namespace drun
