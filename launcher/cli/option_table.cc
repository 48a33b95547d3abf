#include "launcher/cli/option_table.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "launcher/base/text.h"
#include "launcher/cli/config_file.h"
#include "launcher/cli/option_values.h"
#include "launcher/facts/files.h"

namespace drun {

void OptionTable::add(const char* names, Target target, const char* type, const char* text,
                      OptionTraits traits) {
  using Value = OptionSyntax::Value;
  const std::string_view all = names;
  const bool is_flag = std::holds_alternative<bool*>(target);
  constexpr std::size_t kUsual = 128;
  if (options_.empty()) options_.reserve(kUsual);
  options_.push_back({.syntax = {.name = all.substr(all.find("--")),
                                 .letter = all.starts_with("--") ? '\0' : all[1],
                                 .value = is_flag                 ? Value::None
                                          : traits.may_lack_value ? Value::MayFollow
                                          : traits.takes_pair     ? Value::Pair
                                                                  : Value::Needed,
                                 .may_have_one_dash = traits.may_have_one_dash,
                                 .is_torchruns = traits.is_torchruns,
                                 .has_variable = traits.has_variable,
                                 .may_be_in_file = traits.may_be_in_file,
                                 .group = traits.is_hidden ? "" : title_,
                                 .type = type,
                                 .text = text},
                      .target = std::move(target)});
}

std::vector<OptionSyntax> OptionTable::syntax() const {
  std::vector<OptionSyntax> syntax;
  syntax.reserve(options_.size());
  for (const Option& option : options_) syntax.push_back(option.syntax);
  return syntax;
}

std::string OptionTable::source_text(std::string_view name, Source source) const {
  return source.kind == Source::Kind::Variable ? variable_name(name)
         : source.kind == Source::Kind::File   ? config_file_
                                               : std::string(name);
}

std::map<std::string, std::string> OptionTable::sources() const {
  std::map<std::string, std::string> texts;
  for (const auto& [name, source] : sources_) texts.emplace(name, source_text(name, source));
  return texts;
}

std::string OptionTable::shown(std::string_view name, const std::string& value) const {
  const Source source = sources_.at(name);
  if (source.kind != Source::Kind::File) return source_text(name, source) + "=" + value;
  return place_in_config(source.line) + std::string(name.substr(2)) + " = " + value;
}

std::string OptionTable::place_in_config(int line) const {
  return config_file_ + ":" + std::to_string(line) + ": ";
}

const OptionTable::Option& OptionTable::find(std::string_view name) const {
  return *std::find_if(options_.begin(), options_.end(),
                       [name](const Option& option) { return option.name() == name; });
}

void OptionTable::take_flag(const Option& option, Source source, bool is_on) {
  sources_.emplace(option.name(), source);
  words_.push_back(std::string(option.name()) + (is_on ? "=true" : "=false"));
}

void OptionTable::take_value(const Option& option, Source source,
                             const std::optional<std::string>& value) {
  sources_.emplace(option.name(), source);
  words_.insert(words_.end(), {std::string(option.name()), value.value_or("")});
}

Result<void> OptionTable::take_variables() {
  constexpr Source kVariable{.kind = Source::Kind::Variable};
  for (const Option& option : options_) {
    if (!option.syntax.has_variable || sources_.contains(option.name())) continue;
    const std::optional<std::string> value = variables_(variable_name(option.name()));
    if (!value || value->empty()) continue;
    if (!option.is_flag()) {
      take_value(option, kVariable, value);
      continue;
    }
    const Result<bool> is_on = parse_switch(*value);
    if (!is_on) return with_context(is_on.error(), variable_name(option.name()) + "=" + *value);
    take_flag(option, kVariable, *is_on);
  }
  return {};
}

Result<void> OptionTable::take_config() {
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
    if (Result<void> taken = take(entry); !taken) return taken;
  return {};
}

Result<void> OptionTable::take(const ConfigEntry& entry) {
  const auto failed = [&](const std::string& reason) {
    return Error{ErrorCode::Usage, place_in_config(entry.line) + reason};
  };
  const std::string name = dashed("--" + entry.name);
  const auto option = std::find_if(options_.begin(), options_.end(), [&name](const Option& each) {
    return each.syntax.may_be_in_file && each.name() == name;
  });
  if (option == options_.end()) {
    return failed("\"" + entry.name +
                  "\" is not an option; write NAME = VALUE lines; --help-all lists the names");
  }
  if (const auto earlier = sources_.find(name); earlier != sources_.end()) {
    if (earlier->second.kind != Source::Kind::File) return {};
    return failed(entry.name + ": set twice");
  }
  if (entry.values.empty())
    return failed(entry.name + " = []: no value; add one or remove the line");
  const Source source{.kind = Source::Kind::File, .line = entry.line};
  if (option->is_flag()) {
    const std::string& value = entry.values.front();
    if (entry.values.size() > 1 || (value != "true" && value != "false"))
      return failed(entry.name + " = " + value + ": expected true or false");
    take_flag(*option, source, value == "true");
  } else if (option->may_be_repeated()) {
    for (const std::string& value : entry.values) take_value(*option, source, value);
  } else if (entry.is_list && option->set_words) {
    sources_.emplace(option->name(), source);
    option->set_words(entry.values);
  } else {
    take_value(*option, source, joined(entry.values, ","));
  }
  return {};
}

Result<Arguments> OptionTable::parse(std::span<const std::string> words, Operands operands) {
  Result<Arguments> arguments = split_arguments(words, syntax(), operands);
  if (!arguments) return arguments;
  std::map<std::string_view, std::optional<std::string>> last;  // counts, as in argparse
  for (const GivenOption& given : arguments->options) {
    const Option& option = find(given.name);
    if (option.may_be_repeated())
      take_value(option, {}, given.value);
    else
      last[option.name()] = given.value;
  }
  for (const auto& [name, value] : last) {
    const Option& option = find(name);
    if (option.is_flag())
      take_flag(option, {}, true);
    else
      take_value(option, {}, value);
  }
  if (Result<void> taken = take_variables(); !taken) return taken.error();
  if (const auto config = last.find("--config"); config != last.end()) {
    config_file_ = config->second.value_or("");
    if (Result<void> taken = take_config(); !taken) return taken.error();
  }
  if (Result<void> parsed = parse_with_library(); !parsed) return parsed.error();
  return arguments;
}

// Declares only the given options to CLI11: each takes over 10,000 instructions, and all of them
// together would take most of the time from the start of drun to the start of a worker.
Result<void> OptionTable::parse_with_library() {
  CLI::App app;
  app.set_help_flag();
  for (const Option& option : options_) {
    if (!sources_.contains(option.name())) continue;
    const std::string name(option.name());
    const auto set_value = [&](const Setter& set) {
      app.add_option_function<std::string>(name, [this, name, &set](const std::string& value) {
        const Result<void> is_set = set(value);
        if (!is_set) throw CLI::ValidationError(shown(name, value), is_set.error().message);
      });
    };
    std::visit(Overloaded{
                   [&](bool* field) { app.add_flag(name, *field); },
                   [&](std::vector<std::string>* field) {
                     app.add_option(name, *field)->allow_extra_args(false);
                   },
                   set_value,
               },
               option.target);
  }
  std::reverse(words_.begin(), words_.end());  // CLI11 expects the reverse order
  try {
    app.parse(std::move(words_));
    return {};
  } catch (const std::exception& error) {
    return Error{ErrorCode::Usage, error.what()};
  }
}

}  // namespace drun
