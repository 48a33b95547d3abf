#include "launcher/cli/parse_programs.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "launcher/base/text.h"
#include "launcher/cli/option_values.h"

namespace drun {
namespace {

using Words = std::vector<std::string>;

constexpr std::size_t kMostRoleBytes = 200;
constexpr std::array<std::string_view, 7> kProgramsOwn{
    "--np",     "--nproc-per-node", "--export", "--role", "--gpus-per-worker",
    "--module", "--no-python"};

Error program_error(std::string message) { return Error{ErrorCode::Usage, std::move(message)}; }

bool is_set(const Arguments& arguments, std::string_view name) {
  return std::any_of(arguments.options.begin(), arguments.options.end(),
                     [name](const GivenOption& given) { return given.name == name; });
}

// "./jobs/train.py" -> "train".
std::string own_role(const ProgramOptions& program) {
  if (program.module) return program.program;
  std::string name = program.program.substr(program.program.rfind('/') + 1);
  if (name.ends_with(".py") && name.size() > 3) name.resize(name.size() - 3);
  return name;
}

// "program 2 (./worker)".
std::string name_of(std::size_t index, const ProgramOptions& program) {
  return "program " + std::to_string(index + 1) +
         (program.program.empty() ? "" : " (" + program.program + ")");
}

template <typename T>
Result<void> read(std::optional<T>& field, const GivenOption& given,
                  Result<T> (*parse)(std::string_view)) {
  Result<T> parsed = parse(given.value.value_or(""));
  if (!parsed)
    return program_error(given.name + "=" + given.value.value_or("") + ": " +
                         parsed.error().message);
  field = *std::move(parsed);
  return {};
}

Result<void> take_option(ProgramOptions& program, const GivenOption& given) {
  if (given.name == "--np") return read(program.np, given, parse_positive);
  if (given.name == "--nproc-per-node") return read(program.nproc_per_node, given, parse_workers);
  if (given.name == "--gpus-per-worker")
    return read(program.gpus_per_worker, given, parse_positive);
  if (given.name == "--export") program.exports.push_back(given.value.value_or(""));
  if (given.name == "--role") program.role = given.value.value_or("");
  if (given.name == "--module") program.module = true;
  if (given.name == "--no-python") program.no_python = true;
  return {};
}

// Parses the options and program after a `:` or in a line of a file.
Result<ProgramOptions> parse_program(std::span<const std::string> words,
                                     std::span<const OptionSyntax> known) {
  Result<Arguments> arguments = split_arguments(words, known);
  if (!arguments) return arguments.error();
  ProgramOptions program;
  for (const GivenOption& given : arguments->options) {
    if (std::find(kProgramsOwn.begin(), kProgramsOwn.end(), given.name) == kProgramsOwn.end())
      return program_error(
          given.name +
          ": this option applies to the whole job; write it before the first program (per "
          "program: -np, -x, --role, --gpus-per-worker, -m and --no-python)");
    if (Result<void> taken = take_option(program, given); !taken) return taken.error();
  }
  program.program = std::move(arguments->program).value_or("");
  program.arguments = std::move(arguments->program_arguments);
  return program;
}

Result<void> check_program(std::size_t index, const ProgramOptions& program,
                           const std::string& hint) {
  const std::string name = name_of(index, program);
  if (program.program.empty())
    return program_error(name + ": it is missing; write -np N program" + hint);
  if (program.np && program.nproc_per_node)
    return program_error(name + ": -np and --nproc-per-node conflict; remove one");
  if (!program.np && !program.nproc_per_node)
    return program_error(name + ": its number of workers is missing; write -np N before it" + hint);
  if (program.module && program.no_python)
    return program_error(name +
                         ": --module requires Python and cannot be combined with --no-python");
  if (program.role.size() > kMostRoleBytes)
    return program_error(name + ": --role: at most 200 characters are allowed");
  return {};
}

// All programs must use the same option (-np or --nproc-per-node). The sum becomes the job's value,
// as with a single program.
Result<void> add_up(Options& options) {
  std::int64_t sum = 0;
  bool is_counted_here = false;
  const bool is_np = options.programs.front().np.has_value();
  for (std::size_t i = 0; i < options.programs.size(); ++i) {
    const ProgramOptions& program = options.programs[i];
    if (program.np.has_value() != is_np)
      return program_error(
          name_of(i, program) + ": it has " + (is_np ? "--nproc-per-node" : "-np") +
          ", and program 1 " + (is_np ? "-np" : "--nproc-per-node") +
          "; use the same option for all programs: -np (per job) or --nproc-per-node (per node)");
    const int* const count = is_np ? &*program.np : std::get_if<int>(&*program.nproc_per_node);
    is_counted_here = is_counted_here || count == nullptr;
    sum += count == nullptr ? 0 : *count;
  }
  if (sum > kMostWorkers)
    return program_error("all programs together have " + std::to_string(sum) +
                         " workers; at most " + std::to_string(kMostWorkers) + " can be");
  options.hosts.np.reset();
  options.nproc_per_node.reset();
  if (is_np)
    options.hosts.np = static_cast<int>(sum);
  else if (is_counted_here)
    options.nproc_per_node = WorkerCount(Device::Auto);  // counted for each program
  else
    options.nproc_per_node = WorkerCount(static_cast<int>(sum));
  options.sources[is_np ? "--np" : "--nproc-per-node"] = is_np ? "--np" : "--nproc-per-node";
  return {};
}

// Values from other sources than the command line, or before --app, apply to all programs.
void fill_in(Options& options) {
  for (ProgramOptions& program : options.programs) {
    if (program.role.empty()) program.role = options.role.value_or(own_role(program));
    if (!program.gpus_per_worker) program.gpus_per_worker = options.gpus_per_worker;
  }
  const ProgramOptions& first = options.programs.front();
  options.program = first.program;
  options.program_arguments = first.arguments;
}

Result<void> settle(Options& options, const std::string& hint) {
  if (options.programs.size() > kMostPrograms)
    return program_error("there are " + std::to_string(options.programs.size()) +
                         " programs; at most " + std::to_string(kMostPrograms) + " can be");
  fill_in(options);
  for (std::size_t i = 0; i < options.programs.size(); ++i) {
    if (Result<void> is_good = check_program(i, options.programs[i], hint); !is_good)
      return is_good;
  }
  return add_up(options);
}

// Moves the options before the first program from the job to that program.
ProgramOptions first_program(Options& options, const Arguments& arguments, Words words) {
  const std::string program = words.empty() ? "" : words.front();
  if (!words.empty()) words.erase(words.begin());
  ProgramOptions first{.exports = std::exchange(options.hosts.exports, {}),
                       .module = std::exchange(options.module, false),
                       .no_python = std::exchange(options.no_python, false),
                       .program = program,
                       .arguments = std::move(words)};
  if (is_set(arguments, "--np")) first.np = options.hosts.np;
  if (is_set(arguments, "--nproc-per-node")) first.nproc_per_node = options.nproc_per_node;
  if (is_set(arguments, "--role"))
    first.role = std::exchange(options.role, std::nullopt).value_or("");
  if (is_set(arguments, "--gpus-per-worker"))
    first.gpus_per_worker = std::exchange(options.gpus_per_worker, std::nullopt);
  return first;
}

// The program and its arguments.
Words all_words(const Arguments& arguments) {
  Words words = arguments.program_arguments;
  if (arguments.program) words.insert(words.begin(), *arguments.program);
  return words;
}

std::vector<Words> divided(const Words& words, const std::string& separator) {
  std::vector<Words> parts(1);
  for (const std::string& word : words) {
    if (word == separator)
      parts.emplace_back();
    else
      parts.back().push_back(word);
  }
  return parts;
}

}  // namespace

bool divides(const Options& options, const Arguments& arguments) {
  const Words words = all_words(arguments);
  const std::string separator = options.separator.value_or(":");
  if (options.separator) return true;
  if (options.app || std::find(words.begin(), words.end(), separator) == words.end()) return false;
  return options.invoked_as != "torchrun" &&
         (is_set(arguments, "--np") || is_set(arguments, "--nproc-per-node"));
}

Result<void> take_programs(Options& options, const Arguments& arguments,
                           std::span<const OptionSyntax> known) {
  const std::string separator = options.separator.value_or(":");
  const std::string hint = options.separator
                               ? ""
                               : "; if \":\" is an argument of " + arguments.program.value_or("") +
                                     ", choose another separator: --separator=WORD";
  const std::vector<Words> parts = divided(all_words(arguments), separator);
  options.programs = {first_program(options, arguments, parts.front())};
  for (std::size_t i = 1; i < parts.size(); ++i) {
    Result<ProgramOptions> program = parse_program(parts[i], known);
    if (!program) return with_context(program.error(), "program " + std::to_string(i + 1));
    options.programs.push_back(*std::move(program));
  }
  return settle(options, hint);
}

Result<void> take_app_file(Options& options, const Arguments& arguments, std::string_view text,
                           std::span<const OptionSyntax> known) {
  const std::string file = "--app=" + options.app.value_or("");
  if (arguments.program)
    return program_error(file + ": the file lists the programs, but " + *arguments.program +
                         " is another one; remove one of them");
  for (const char* name : {"--np", "--nproc-per-node", "--module", "--no-python", "--separator"}) {
    if (is_set(arguments, name))
      return program_error(std::string(name) + ": every line of " + *options.app +
                           " has its own value; remove the option here");
  }
  const Result<std::vector<Words>> lines = parse_app_file(text);
  if (!lines) return with_context(lines.error(), file);
  options.programs.clear();
  for (const Words& words : *lines) {
    Result<ProgramOptions> program = parse_program(words, known);
    if (!program)
      return with_context(program.error(),
                          file + ": program " + std::to_string(options.programs.size() + 1));
    program->exports.insert(program->exports.begin(), options.hosts.exports.begin(),
                            options.hosts.exports.end());
    options.programs.push_back(*std::move(program));
  }
  options.hosts.exports.clear();
  if (options.programs.empty())
    return program_error(file + ": the file has no program; example line: -np 4 ./worker");
  if (Result<void> settled = settle(options, ""); !settled)
    return with_context(settled.error(), file);
  return {};
}

Result<std::vector<std::vector<std::string>>> parse_app_file(std::string_view text) {
  std::vector<Words> lines;
  int number = 0;
  for (std::string_view line : lines_of(text)) {
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin == line.npos || line[begin] == '#') continue;
    Result<Words> words = parse_command(line);
    if (!words) return with_context(words.error(), "line " + std::to_string(number));
    if (line.find('\0') != line.npos)
      return program_error("line " + std::to_string(number) +
                           ": the line contains a zero byte, so this is not a text file");
    if (lines.size() == kMostPrograms)
      return program_error("the file has more than " + std::to_string(kMostPrograms) + " programs");
    lines.push_back(*std::move(words));
  }
  return lines;
}

}  // namespace drun
