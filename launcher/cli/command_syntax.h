// core. What drun and its helper commands accept, as plain values: completions and manual pages are
// made from it. options.cc builds it from the tables that read the command line.
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/arguments.h"

namespace drun {

struct OptionSyntax {
  KnownOption known{};
  std::string group{};  // its heading in --help; empty: another spelling of an option, not shown
  std::string type{};   // "N", "FILE", "auto|none"; empty for a flag
  std::string text{};
  bool has_variable = false;  // PET_NAME
  bool operator==(const OptionSyntax&) const = default;
};

struct CommandSyntax {
  enum class Operand { None, Program, Job, Files };
  std::string name{};  // "store"; empty: drun itself
  std::string head{};  // what --help prints before the options
  Operand operand = Operand::None;
  std::vector<OptionSyntax> options{};
};

// drun itself first.
std::vector<CommandSyntax> command_syntaxes();

// The words that `type` lists: "auto", "cpu" and "gpu" of "N|auto|cpu|gpu".
std::vector<std::string> choices_of(const std::string& type);

}  // namespace drun
