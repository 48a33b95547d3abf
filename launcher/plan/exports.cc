#include "launcher/plan/exports.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "launcher/cli/option_values.h"

namespace drun::hosts {
namespace {

void export_from_here(std::vector<EnvironmentEntry>& entries, const std::string& name,
                      const Lookup& here, PlanNotes& notes) {
  if (const std::optional<std::string> value = here(name)) {
    put(entries, {name, *value});
  } else {
    notes.warnings.push_back("-x " + name + " is not passed on: it is not set on this machine");
  }
}

}  // namespace

void put(std::vector<EnvironmentEntry>& environment, EnvironmentEntry entry) {
  std::erase_if(environment, [&](const auto& each) { return each.first == entry.first; });
  environment.push_back(std::move(entry));
}

Result<std::vector<EnvironmentEntry>> exported(const std::vector<std::string>& exports,
                                               const Lookup& here, PlanNotes& notes) {
  std::vector<EnvironmentEntry> entries;
  for (const std::string& text : exports) {
    const std::size_t equals = text.find('=');
    if (equals == 0 || text.empty() || text.find('\0') != text.npos)
      return usage_error("-x " + text, "expected VAR or VAR=VALUE");
    if (equals != text.npos) {
      put(entries, {text.substr(0, equals), text.substr(equals + 1)});
      continue;
    }
    const Result<std::vector<std::string>> names = parse_words(text);
    if (!names || names->empty()) return usage_error("-x " + text, "expected VAR or VAR=VALUE");
    for (const std::string& name : *names) export_from_here(entries, name, here, notes);
  }
  return entries;
}

}  // namespace drun::hosts
