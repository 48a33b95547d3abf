#include "launcher/cli/option_table.h"

#include "launcher/cli/config_file.h"
#include "launcher/cli/option_values.h"
#include "launcher/facts/small_files.h"

namespace drun {
namespace {

using Value = KnownOption::Value;

std::string joined(const std::vector<std::string>& values) {
  std::string all;
  for (const std::string& value : values) all += (all.empty() ? "" : ",") + value;
  return all;
}

}  // namespace

OptionTable::OptionTable(const Lookup& variables) : variables_(variables) { app_.set_help_flag(); }

std::string OptionTable::twins(const std::string& names) {
  const std::string name = long_name(names);
  const std::string twin = underscored(name);
  return twin == name ? names : names + "," + twin;
}

std::string OptionTable::source(const std::string& name) const {
  if (from_variables_.contains(name)) return variable_name(name);
  return from_config_.contains(name) ? config_file_ : name;
}

std::string OptionTable::shown(const std::string& name, const std::string& value) const {
  const auto line = from_config_.find(name);
  if (line == from_config_.end()) return source(name) + "=" + value;
  return place_in_config(line->second) + name.substr(2) + " = " + value;
}

std::string OptionTable::place_in_config(int line) const {
  return config_file_ + ":" + std::to_string(line) + ": ";
}

std::vector<KnownOption> OptionTable::known() const {
  std::vector<KnownOption> known;
  for (const auto& [option, traits] : kept_) {
    const bool is_flag = option->get_items_expected_max() == 0;
    const auto& letters = option->get_snames();
    known.push_back({.name = "--" + option->get_lnames().front(),
                     .letter = letters.empty() ? '\0' : letters.front().front(),
                     .value = is_flag                 ? Value::None
                              : traits.may_lack_value ? Value::MayFollow
                              : traits.takes_pair     ? Value::Pair
                                                      : Value::Needed,
                     .may_have_one_dash = traits.may_have_one_dash,
                     .is_torchruns = traits.is_torchruns});
  }
  return known;
}

std::vector<OptionSyntax> OptionTable::syntax() const {
  std::vector<OptionSyntax> options;
  const std::vector<KnownOption> names = known();
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    const CLI::Option& option = *kept_[i].option;
    const bool is_flag = option.get_items_expected_max() == 0;
    options.push_back({.known = names[i],
                       .group = option.get_group(),
                       .type = is_flag ? "" : option.get_type_name(),
                       .text = option.get_description(),
                       .has_variable = kept_[i].traits.has_variable});
  }
  return options;
}

Result<void> OptionTable::take_variables(std::vector<std::string>& words) {
  for (const auto& [option, traits] : kept_) {
    const std::string name = "--" + option->get_lnames().front();
    if (!traits.has_variable || given_.contains(name)) continue;
    const std::optional<std::string> value = variables_(variable_name(name));
    if (!value || value->empty()) continue;
    from_variables_.insert(name);
    if (option->get_items_expected_max() > 0) {
      words.insert(words.end(), {name, *value});
      effective_.push_back({name, *value});
      continue;
    }
    const Result<bool> is_on = parse_switch(*value);
    if (!is_on) return with_context(is_on.error(), shown(name, *value));
    words.push_back(name + (*is_on ? "=true" : "=false"));
    if (*is_on) effective_.push_back({name, std::nullopt});
  }
  return {};
}

Result<void> OptionTable::take_config(std::vector<std::string>& words) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 20;
  const std::optional<std::string> text = all_text_of(config_file_, kMostBytes);
  if (!text) {
    return Error{ErrorCode::Usage,
                 "--config=" + config_file_ +
                     ": cannot read the file, or it is over 1 MiB; give the path of a TOML file"};
  }
  const Result<std::vector<ConfigEntry>> entries = parse_config(*text);
  if (!entries) return Error{ErrorCode::Usage, config_file_ + ":" + entries.error().message};
  for (const ConfigEntry& entry : *entries)
    if (Result<void> taken = take(entry, words); !taken) return taken;
  return {};
}

Result<void> OptionTable::take(const ConfigEntry& entry, std::vector<std::string>& words) {
  const auto failed = [&](const std::string& reason) {
    return Error{ErrorCode::Usage, place_in_config(entry.line) + reason};
  };
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&entry](const Kept& kept) {
    return kept.option->get_configurable() && kept.option->check_lname(entry.name);
  });
  if (found == kept_.end()) {
    return failed("\"" + entry.name +
                  "\" is not an option; write NAME = VALUE lines; --help-all lists the names");
  }
  const CLI::Option* option = found->option;
  const std::string name = "--" + option->get_lnames().front();
  if (given_.contains(name) || from_variables_.contains(name)) return {};
  if (!from_config_.emplace(name, entry.line).second) return failed(entry.name + ": set twice");
  if (entry.values.empty())
    return failed(entry.name + " = []: no value; add one or remove the line");
  if (option->get_items_expected_max() == 0) {
    const std::string& value = entry.values.front();
    if (entry.values.size() > 1 || (value != "true" && value != "false"))
      return failed(entry.name + " = " + value + ": expected true or false");
    words.push_back(name + "=" + value);
    if (value == "true") effective_.push_back({name, std::nullopt});
    return {};
  }
  std::vector<std::string> values = entry.values;
  if (!repeated_.contains(name)) values = {joined(values)};
  for (std::string& value : values) {
    words.insert(words.end(), {name, value});
    effective_.push_back({name, std::move(value)});
  }
  return {};
}

Result<Arguments> OptionTable::parse(std::span<const std::string> words) {
  Result<Arguments> arguments = split_arguments(words, known());
  if (!arguments) return arguments;
  std::map<std::string, std::optional<std::string>> last;  // the last value counts, as in argparse
  std::vector<std::string> canonical;
  const auto add = [&](const std::string& name, const std::optional<std::string>& value) {
    given_.insert(name);
    canonical.push_back(name);
    effective_.push_back({name, value});
    const CLI::Option* option = app_.get_option(name);
    if (option->get_items_expected_max() > 0) canonical.push_back(value.value_or(""));
  };
  for (const GivenOption& given : arguments->options) {
    if (repeated_.contains(given.name))
      add(given.name, given.value);
    else
      last[given.name] = given.value;
  }
  for (const auto& [name, value] : last) add(name, value);
  if (Result<void> taken = take_variables(canonical); !taken) return taken.error();
  if (const auto config = last.find("--config"); config != last.end()) {
    config_file_ = config->second.value_or("");
    if (Result<void> taken = take_config(canonical); !taken) return taken.error();
  }
  if (Result<void> parsed = parse_with_library(std::move(canonical)); !parsed)
    return parsed.error();
  return arguments;
}

Result<void> OptionTable::parse_with_library(std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());  // CLI11 expects the reverse order
  try {
    app_.parse(std::move(words));
    return {};
  } catch (const std::exception& error) {
    return Error{ErrorCode::Usage, error.what()};
  }
}

std::map<std::string, std::string> OptionTable::sources() const {
  std::map<std::string, std::string> sources;
  for (const auto& [option, traits] : kept_) {
    const std::string name = "--" + option->get_lnames().front();
    if (option->count() > 0) sources[name] = source(name);
  }
  return sources;
}

std::vector<HelpEntry> OptionTable::help() const {
  std::vector<HelpEntry> entries;
  for (const auto& [option, traits] : kept_) {
    if (option->get_group().empty()) continue;  // hidden alternative spelling
    const auto& letters = option->get_snames();
    std::string names = letters.empty() ? "    " : "-" + letters.front() + ", ";
    names += "--" + option->get_lnames().front();
    if (option->get_items_expected_max() > 0) {
      names += (traits.may_lack_value ? "[=" : " ") + option->get_type_name() +
               (traits.may_lack_value ? "]" : "");
    }
    entries.push_back({option->get_group(), names, option->get_description()});
  }
  return entries;
}

}  // namespace drun
