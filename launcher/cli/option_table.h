// edge. Declares and parses options. arguments.h has the grammar, CLI11 stores the values, and
// help.h prints the help text. Only option_table.cc includes CLI11. Below are the tables of drun
// (launcher_options.cc) and of its helper commands (helper_commands.cc).
//
// A table serves one command line; the fields that it sets must outlive it. Errors of parse: Usage,
// naming the option (or the variable, or the file), the value, the reason, the remedy. Throws only
// for an invalid declaration.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/cli/arguments.h"
#include "launcher/cli/completion.h"
#include "launcher/cli/options.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/world.h"

namespace drun {

struct ConfigEntry;

struct OptionTraits {
  bool is_torchruns = true;
  bool has_variable = true;
  bool may_have_one_dash = false;
  bool may_lack_value = false;  // it is then empty; CLI11 always gets a value
  bool takes_pair = false;      // a name and a value, two words
  bool may_be_in_file = true;   // of --config
  bool is_hidden = false;       // an alternative spelling, not in --help
};

inline constexpr OptionTraits kDrunOption{.is_torchruns = false, .has_variable = true};
inline constexpr OptionTraits kOwnWithoutVariable{.is_torchruns = false, .has_variable = false};
inline constexpr OptionTraits kOwnOnCommandLine{
    .is_torchruns = false, .has_variable = false, .may_be_in_file = false};
inline constexpr OptionTraits kHiddenOption{
    .is_torchruns = false, .has_variable = false, .is_hidden = true};
inline constexpr OptionTraits kMpirunOption{
    .is_torchruns = false, .has_variable = false, .may_have_one_dash = true};
inline constexpr OptionTraits kMpirunAlias{
    .is_torchruns = false, .has_variable = false, .may_have_one_dash = true, .is_hidden = true};
inline constexpr OptionTraits kMpirunsPairs{
    .is_torchruns = false, .has_variable = false, .may_have_one_dash = true, .takes_pair = true};
inline constexpr OptionTraits kTorchrunWithoutVariable{.is_torchruns = true, .has_variable = false};
inline constexpr OptionTraits kTorchrunOnCommandLine{
    .is_torchruns = true, .has_variable = false, .may_be_in_file = false};

// `names` is "--long" or "-l,--long". The table keeps no copy of the texts of an option.
class OptionTable {
 public:
  explicit OptionTable(const Lookup& variables) : variables_(variables) {}

  // Following options belong to this group.
  void group(const char* title) { title_ = title; }

  template <typename Field, typename T>
  void value(const char* names, Field& field, Result<T> (*read)(std::string_view), const char* type,
             const char* text, OptionTraits traits = {}) {
    value<T>(
        names, [&field](T parsed) { field = std::move(parsed); }, read, type, text, traits);
    // The elements of a list in the file are the words as they are.
    if constexpr (std::is_same_v<T, Words>)
      options_.back().set_words = [&field](const Words& words) { field = words; };
  }

  template <typename T, typename Set>
  void value(const char* names, Set set, Result<std::type_identity_t<T>> (*read)(std::string_view),
             const char* type, const char* text, OptionTraits traits = {}) {
    const auto read_and_set = [set, read](std::string_view given) -> Result<void> {
      Result<T> parsed = read(given);
      if (!parsed) return parsed.error();
      set(*std::move(parsed));
      return {};
    };
    add(names, read_and_set, type, text, traits);
  }

  // An option that may be repeated; all values are kept.
  void values(const char* names, std::vector<std::string>& field, const char* type,
              const char* text, OptionTraits traits = {}) {
    add(names, &field, type, text, traits);
  }

  void flag(const char* names, bool& field, const char* text, OptionTraits traits = {}) {
    add(names, &field, "", text, traits);
  }

  // Parses `words` and stores the values in the fields.
  Result<Arguments> parse(std::span<const std::string> words,
                          Operands operands = Operands::Program);

  // The source of each given value: "--tee", "PET_TEE" or the configuration file.
  std::map<std::string, std::string> sources() const;
  std::vector<OptionSyntax> syntax() const;  // all, including hidden ones

 private:
  using Words = std::vector<std::string>;
  using Setter = std::function<Result<void>(std::string_view value)>;
  using Target = std::variant<bool*, std::vector<std::string>*, Setter>;

  struct Option {
    OptionSyntax syntax;
    Target target;
    std::function<void(const Words& words)> set_words{};  // of an option whose value is words

    std::string_view name() const { return syntax.name; }
    bool is_flag() const { return target.index() == 0; }
    bool may_be_repeated() const { return target.index() == 1; }
  };

  struct Source {
    enum class Kind { CommandLine, Variable, File };
    Kind kind = Kind::CommandLine;
    int line = 0;  // of the file
  };

  void add(const char* names, Target target, const char* type, const char* text,
           OptionTraits traits);
  const Option& find(std::string_view name) const;
  void take_flag(const Option& option, Source source, bool is_on);
  void take_value(const Option& option, Source source, const std::optional<std::string>& value);
  Result<void> take_variables();
  Result<void> take_config();
  Result<void> take(const ConfigEntry& entry);
  Result<void> parse_with_library();
  std::string source_text(std::string_view name, Source source) const;
  // "--tee=4", "PET_TEE=4", "FILE:3: tee = 4".
  std::string shown(std::string_view name, const std::string& value) const;
  // "FILE:3: ".
  std::string place_in_config(int line) const;

  const Lookup& variables_;
  const char* title_ = "";                      // of the group
  std::vector<Option> options_;                 // in order of declaration
  std::map<std::string_view, Source> sources_;  // of the given options
  std::vector<std::string> words_;              // the given options for CLI11
  std::string config_file_;
};

// --- drun itself: its options, with their groups and texts in the order of --help-all

// Options that print something instead of starting a job.
struct Printed {
  bool help = false;
  bool help_all = false;
  bool version = false;
  std::optional<Shell> completion{};
};

void declare_launcher(OptionTable& table, Options& options, Printed& printed);

// The options that only `drun doctor` has.
void declare_doctor(OptionTable& table, DoctorOptions& doctor);

// --- The helper commands (`drun store`, `drun status` ...): their options, and the syntax of all
// commands, from which completions and the manual page are generated

// nullopt if the first word is not a helper command. `words` is argv without argv[0].
std::optional<Result<Command>> parse_helper_command(std::span<const std::string> words,
                                                    const Lookup& variables);

// The first one is drun itself, the last one `drun doctor`.
std::vector<CommandSyntax> command_syntaxes();

}  // namespace drun
