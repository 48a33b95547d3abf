// core. The command line's grammar: which words are drun's options and where the program begins.
// What an option means is options.cc's business; this file only knows its names and whether it
// takes a value.
//
// Shape:   options, then the program, then everything else, which is the program's and never looked
//          at. `--` ends the options early.
// Source:  argparse as torchrun uses it (both spellings, unique prefixes, -r3, -t 0:1,1:2, -mr3);
//          kinder in one thing: a prefix that fits only the two spellings of one option is fine.
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace drun {

struct KnownOption {
  std::string name{};  // canonical: "--nproc-per-node"; '_' is as good as '-' in any place
  char letter = 0;     // 'r' for -r; 0: none
  // --flag, --name=v or --name v, --name[=v], --name key v (which is v = "key=v")
  enum class Value { None, Needed, MayFollow, Pair };
  Value value = Value::Needed;
  bool may_have_one_dash = false;  // -np is --np, as mpirun's users write it
  // Prefixes are looked up among torchrun's options first, so that one that torchrun takes does
  // not become ambiguous through an option of ours.
  bool is_torchruns = true;
  bool operator==(const KnownOption&) const = default;
};

struct GivenOption {
  std::string name{};                  // canonical
  std::optional<std::string> value{};  // absent for a flag, or when it need not be there
  bool operator==(const GivenOption&) const = default;
};

struct Arguments {
  std::vector<GivenOption> options{};  // in order of appearance, repeated ones included
  std::optional<std::string> program{};
  std::vector<std::string> program_arguments{};
  bool operator==(const Arguments&) const = default;
};

// `words` is argv without argv[0]. Errors: Usage, naming the option and the remedy: unknown or
// ambiguous option, missing value, a flag given a value. Never throws.
Result<Arguments> split_arguments(std::span<const std::string> words,
                                  std::span<const KnownOption> known);

// The words after the program, as the program shall see them. torchrun drops a `--` that stands
// first there, and scripts are written that way because of it; drun itself leaves every word alone.
std::vector<std::string> own_arguments(std::vector<std::string> words, bool is_torchrun);

// "--a_b" for "--a-b", and the variable that stands for it, "PET_A_B".
std::string underscored(std::string option);
std::string variable_name(const std::string& option);

}  // namespace drun
