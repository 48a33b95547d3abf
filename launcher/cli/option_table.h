// edge. Declares and parses options. CLI11 handles their values, arguments.h the grammar, and
// help.h the help text. Only options.cc and option_table.cc include this header, and with it CLI11.
//
// A table serves one command line; the fields that it sets must outlive it. Errors of parse: Usage,
// naming the option (or the variable, or the file), the value, the reason, the remedy. Throws only
// for an invalid declaration.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "launcher/cli/arguments.h"
#include "launcher/cli/command_syntax.h"
#include "launcher/cli/help.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/world.h"

namespace drun {

struct ConfigEntry;

// Properties of an option that CLI11 does not store.
struct OptionTraits {
  bool is_torchruns = true;
  bool has_variable = true;
  bool may_have_one_dash = false;
  bool may_lack_value = false;  // it is then empty; CLI11 always gets a value
  bool takes_pair = false;      // a name and a value, two words
};

inline constexpr OptionTraits kDrunOption{.is_torchruns = false, .has_variable = true};
inline constexpr OptionTraits kOwnWithoutVariable{.is_torchruns = false, .has_variable = false};
inline constexpr OptionTraits kMpirunOption{
    .is_torchruns = false, .has_variable = false, .may_have_one_dash = true};
inline constexpr OptionTraits kOwnWithOrWithoutValue{
    .is_torchruns = false, .has_variable = false, .may_lack_value = true};
inline constexpr OptionTraits kMpirunsPairs{
    .is_torchruns = false, .has_variable = false, .may_have_one_dash = true, .takes_pair = true};
inline constexpr OptionTraits kTorchrunWithoutVariable{.is_torchruns = true, .has_variable = false};

class OptionTable {
 public:
  explicit OptionTable(const Lookup& variables);

  // Following options belong to this group. A CLI11 group is an app, and CLI11 compares each new
  // option with all others of its app; with a single group that took a tenth of the time of drun
  // --help.
  void group(const std::string& title) {
    title_ = title;
    group_ = app_.add_option_group(title);
  }

  template <typename Field, typename T>
  CLI::Option* value(const char* names, Field& field, Result<T> (*read)(std::string_view),
                     const char* type, const char* text, OptionTraits traits = {}) {
    return value(
        names, [&field](T parsed) { field = std::move(parsed); }, read, type, text, traits);
  }

  template <typename T>
  CLI::Option* value(const char* names, std::type_identity_t<std::function<void(T)>> set,
                     Result<T> (*read)(std::string_view), const char* type, const char* text,
                     OptionTraits traits = {}) {
    const std::string name = long_name(names);
    const auto take = [this, name, set, read](const std::string& given) {
      Result<T> parsed = read(given);
      if (!parsed) throw CLI::ValidationError(shown(name, given), parsed.error().message);
      set(*std::move(parsed));
    };
    CLI::Option* option = group_->add_option_function<std::string>(twins(names), take, text);
    return keep(option->type_name(type), traits);
  }

  // An option that may be repeated; all values are kept.
  CLI::Option* values(const char* names, std::vector<std::string>& field, const char* type,
                      const char* text, OptionTraits traits = {}) {
    repeated_.insert(long_name(names));
    CLI::Option* option = group_->add_option(twins(names), field, text);
    return keep(option->type_name(type)->allow_extra_args(false), traits);
  }

  CLI::Option* flag(const char* names, bool& field, const char* text, OptionTraits traits = {}) {
    return keep(group_->add_flag(twins(names), field, text), traits);
  }

  // Parses `words` and stores the values in the fields.
  Result<Arguments> parse(std::span<const std::string> words);

  std::vector<HelpEntry> help() const;
  // The source of each given value: "--tee", "PET_TEE" or the configuration file.
  std::map<std::string, std::string> sources() const;
  // The given options, from the command line, variables and the configuration file.
  const std::vector<GivenOption>& given() const { return effective_; }
  std::vector<KnownOption> known() const;
  std::vector<OptionSyntax> syntax() const;  // all, including hidden ones
  CLI::Option* keep(CLI::Option* option, OptionTraits traits) {
    option->group(title_);
    kept_.push_back({option, traits});
    return option;
  }

 private:
  struct Kept {
    const CLI::Option* option;
    OptionTraits traits;
  };

  // "-t,--tee" -> "--tee".
  static std::string long_name(const std::string& names) { return names.substr(names.find("--")); }
  // "-x,--a-b" -> "-x,--a-b,--a_b".
  static std::string twins(const std::string& names);
  std::string source(const std::string& name) const;
  std::string shown(const std::string& name, const std::string& value) const;
  // "FILE:3: ".
  std::string place_in_config(int line) const;
  Result<void> take_variables(std::vector<std::string>& words);
  Result<void> take_config(std::vector<std::string>& words);
  Result<void> take(const ConfigEntry& entry, std::vector<std::string>& words);
  Result<void> parse_with_library(std::vector<std::string> words);

  const Lookup& variables_;
  CLI::App app_;
  CLI::App* group_ = &app_;                 // owned by app_
  std::string title_;                       // of the group
  std::vector<Kept> kept_;                  // in order of declaration
  std::set<std::string> given_;             // canonical names on the command line
  std::set<std::string> from_variables_;    // canonical names set by PET_ variables
  std::map<std::string, int> from_config_;  // canonical names set by the file, and their lines
  std::set<std::string> repeated_;          // canonical names
  std::vector<GivenOption> effective_;
  std::string config_file_;
};

}  // namespace drun
