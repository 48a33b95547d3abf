#include "launcher/plan/program_words.h"

#include <algorithm>
#include <utility>

#include "launcher/plan/exports.h"

namespace drun {
namespace {

constexpr std::string_view kExport = "--export=";

std::string text_of(const WorkerCount& count) {
  if (const int* number = std::get_if<int>(&count)) return std::to_string(*number);
  switch (std::get<Device>(count)) {
    case Device::Auto:
      return "auto";
    case Device::Cpu:
      return "cpu";
    case Device::Gpu:
      return "gpu";
    case Device::Xpu:
      break;
  }
  return "xpu";
}

// A separator that is not a word of any program.
std::string separator_for(const std::vector<ProgramOptions>& programs) {
  const auto is_used = [&programs](const std::string& word) {
    return std::any_of(programs.begin(), programs.end(), [&word](const ProgramOptions& each) {
      const auto& words = each.arguments;
      return each.program == word || std::find(words.begin(), words.end(), word) != words.end();
    });
  };
  std::string word = ":";
  for (int number = 1; is_used(word); ++number) word = ":" + std::to_string(number);
  return word;
}

}  // namespace

Result<std::vector<ProgramOptions>> with_values(std::vector<ProgramOptions> programs,
                                                const HostFacts& host, PlanNotes& notes) {
  const Lookup here = [&host](std::string_view name) { return variable(host, name); };
  for (ProgramOptions& program : programs) {
    const auto entries = hosts::exported(std::exchange(program.exports, {}), here, notes);
    if (!entries) return with_context(entries.error(), program.program);
    for (const auto& [name, value] : *entries) program.exports.push_back(name + "=" + value);
  }
  return programs;
}

std::vector<std::string> program_words(const std::vector<ProgramOptions>& programs) {
  const std::string separator = separator_for(programs);
  std::vector<std::string> words{"--separator=" + separator};
  for (const ProgramOptions& program : programs) {
    if (&program != &programs.front()) words.push_back(separator);
    words.push_back("--nproc-per-node=" + text_of(*program.nproc_per_node));
    words.push_back("--role=" + program.role);
    if (program.gpus_per_worker)
      words.push_back("--gpus-per-worker=" + std::to_string(*program.gpus_per_worker));
    if (program.module) words.emplace_back("--module");
    if (program.no_python) words.emplace_back("--no-python");
    for (const std::string& each : program.exports) words.push_back(std::string(kExport) + each);
    words.emplace_back("--");
    words.push_back(program.program);
    words.insert(words.end(), program.arguments.begin(), program.arguments.end());
  }
  return words;
}

std::string shown_word(const std::string& word, const std::vector<ProgramOptions>& programs) {
  if (!word.starts_with(kExport)) return word;
  for (const ProgramOptions& program : programs) {
    for (const std::string& each : program.exports) {
      if (word.substr(kExport.size()) == each)
        return std::string(kExport) + each.substr(0, each.find('=')) + "=...";
    }
  }
  return word;
}

}  // namespace drun
