// edge. Options under construction: CLI11's table, with our grammar (arguments.h) in front of it
// and our help (help.h) behind. Only options.cc and options.cc include it, and with it
// CLI11.
//
// Owner:   one command line's; what it fills in outlives it.   Thread: any, one at a time.
// Errors:  parse: Usage, naming the option (or the variable, or the file), the value, the reason,
//          the remedy. Never throws but what a bad declaration does.
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

// What CLI11 does not keep about an option.
struct OptionTraits {
  bool is_torchruns = true;
  bool has_variable = true;
  bool may_have_one_dash = false;
  bool may_lack_value = false;  // then it is empty; CLI11 always gets one
  bool takes_pair = false;      // a name and a value, two words
};

inline constexpr OptionTraits kOwn{.is_torchruns = false, .has_variable = true};
inline constexpr OptionTraits kOwnWithoutVariable{.is_torchruns = false, .has_variable = false};
inline constexpr OptionTraits kMpiruns{
    .is_torchruns = false, .has_variable = false, .may_have_one_dash = true};
inline constexpr OptionTraits kOwnWithOrWithoutValue{
    .is_torchruns = false, .has_variable = false, .may_lack_value = true};
inline constexpr OptionTraits kMpirunsPairs{
    .is_torchruns = false, .has_variable = false, .may_have_one_dash = true, .takes_pair = true};
inline constexpr OptionTraits kWithoutVariable{.is_torchruns = true, .has_variable = false};

class OptionTable {
 public:
  explicit OptionTable(const Lookup& variables);

  // Options that follow belong to it. To CLI11 a group is an app of its own: it compares every new
  // option with all others of its app, which for all of ours took a tenth of drun --help.
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

  // One that may be given several times; all are kept.
  CLI::Option* values(const char* names, std::vector<std::string>& field, const char* type,
                      const char* text, OptionTraits traits = {}) {
    repeated_.insert(long_name(names));
    CLI::Option* option = group_->add_option(twins(names), field, text);
    return keep(option->type_name(type)->allow_extra_args(false), traits);
  }

  CLI::Option* flag(const char* names, bool& field, const char* text, OptionTraits traits = {}) {
    return keep(group_->add_flag(twins(names), field, text), traits);
  }

  // `words` as given on the command line. Afterwards the fields hold what was asked for.
  Result<Arguments> parse(std::span<const std::string> words);

  std::vector<HelpEntry> help() const;
  // Where each value that was given came from: "--tee", "PET_TEE" or the configuration file.
  std::map<std::string, std::string> sources() const;
  // Every option that was given: on the command line, by a variable, or in the configuration file.
  const std::vector<GivenOption>& given() const { return effective_; }
  std::vector<KnownOption> known() const;
  std::vector<OptionSyntax> syntax() const;  // all, those that are not shown included
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
  CLI::App* group_ = &app_;                 // app_'s
  std::string title_;                       // the group's
  std::vector<Kept> kept_;                  // as declared
  std::set<std::string> given_;             // canonical names on the command line
  std::set<std::string> from_variables_;    // canonical names taken from PET_ variables
  std::map<std::string, int> from_config_;  // canonical names taken from the file, with their line
  std::set<std::string> repeated_;          // canonical names
  std::vector<GivenOption> effective_;
  std::string config_file_;
};

}  // namespace drun
