// core. The grammar of the command line: separates drun's options from the program and its
// arguments. Knows only the names of options and whether they take a value; option_table.h
// interprets them.
//
// Options precede the program. All further words belong to the program and are not
// interpreted. `--` ends the options. The rules are argparse's, as used by torchrun (both
// spellings, unique prefixes, -r3, -t 0:1,1:2, -mr3), with one difference: a prefix that matches
// only the two spellings of one option is accepted.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace drun {

// An option, as the grammar, --help, completions and the manual page need it.
struct OptionSyntax {
  std::string_view name{};  // canonical: "--nproc-per-node"; '_' and '-' are equivalent
  char letter = 0;          // 'r' for -r; 0: none
  // --flag, --name=v or --name v, --name[=v], --name key v (read as v = "key=v")
  enum class Value { None, Needed, MayFollow, Pair };
  Value value = Value::Needed;
  bool may_have_one_dash = false;  // accept -np for --np, as mpirun does
  // Prefixes match torchrun's options first, so that additional options of drun do not make a
  // prefix ambiguous that torchrun accepts.
  bool is_torchruns = true;
  bool has_variable = false;    // PET_NAME
  bool may_be_in_file = false;  // of --config
  std::string_view group{};     // heading in --help; empty: hidden alternative spelling
  std::string_view type{};      // "N", "FILE", "auto|none"; empty for a flag
  std::string_view text{};      // a '\n' is kept in --help
  bool operator==(const OptionSyntax&) const = default;
};

struct GivenOption {
  std::string name{};                  // canonical
  std::optional<std::string> value{};  // absent for a flag or an omitted optional value
  bool operator==(const GivenOption&) const = default;
};

struct Arguments {
  std::vector<GivenOption> options{};  // in order of appearance, with repetitions
  std::optional<std::string> program{};
  std::vector<std::string> program_arguments{};
  std::vector<std::string> operands{};  // with Operands::Anywhere, instead of a program
  bool operator==(const Arguments&) const = default;
};

struct CommandSyntax {
  enum class Operand { None, Program, Job, Jobs, Files };  // Job: at most one
  std::string name{};                                      // "store"; empty: drun itself
  std::string head{};  // the text that --help prints before the options
  Operand operand = Operand::None;
  std::vector<OptionSyntax> options{};
};

// --- Parsing

// Program: the first word that is not an option is the program. Anywhere: such words may precede,
// separate and follow the options.
enum class Operands { Program, Anywhere };

// `words` is argv without argv[0]. Errors: Usage, naming the option and the remedy, for an unknown
// or ambiguous option, a missing value, or a flag with a value. Never throws.
Result<Arguments> split_arguments(std::span<const std::string> words,
                                  std::span<const OptionSyntax> known,
                                  Operands operands = Operands::Program);

// The option with this canonical name ("--tee"), or else the options with this prefix: only
// torchrun's if there are any.
std::vector<const OptionSyntax*> options_named(std::string_view name,
                                               std::span<const OptionSyntax> known);

// What to use instead of `option` of another launcher, for the error about a command line that was
// written for it. `option`: in the user's spelling, with one dash or two, without a value. Empty if
// there is no known counterpart.
std::string_view counterpart(std::string_view option);

// The arguments to pass to the program. Like torchrun, drops a leading `--` under the name
// torchrun, because existing scripts rely on it. drun itself passes every word on.
std::vector<std::string> own_arguments(std::vector<std::string> words, bool is_torchrun);

// "--a-b" for "--a_b", the reverse, and the name of its variable, "PET_A_B".
std::string dashed(std::string_view option);
std::string underscored(std::string_view option);
std::string variable_name(std::string_view option);

}  // namespace drun
