#include "launcher/cli/command_options.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "launcher/cli/help.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/option_values.h"

namespace drun {
namespace {

Error too_much(const std::string& helper, const std::string& word) {
  return {ErrorCode::Usage, helper + ": unexpected argument \"" + word +
                                "\"; to run a program named " + helper + ", write drun -- " +
                                helper};
}

bool asks_for_secret(const std::string& word) {
  return word.starts_with("--secret-file") || word.starts_with("--secret_file");
}

void declare_store(OptionTable& table, StoreCommand& store, bool& help) {
  table.group("Options");
  table.value<int>(
      "--port", [&store](int port) { store.port = static_cast<std::uint16_t>(port); }, parse_port,
      "P", "port to listen on; 0: any free port, which is printed [default: 29500]",
      kOwnWithoutVariable);
  table.flag("--loopback", store.is_loopback_only, "listen on 127.0.0.1 and ::1 only",
             kOwnWithoutVariable);
  table.value("--store-memory", store.memory_bytes, parse_memory_size, "SIZE",
              "limit for the contents; a client that exceeds it is disconnected [default: 1GiB]",
              kDrunOption);
  table.flag("-h,--help", help, "print this help", kOwnWithoutVariable);
}

Result<Command> parse_store_command(std::span<const std::string> words, const Lookup& variables) {
  if (std::any_of(words.begin(), words.end(), asks_for_secret))
    return Error{
        ErrorCode::Usage,
        "store: --secret-file: clients of a TCPStore cannot authenticate, so that any host that "
        "reaches the port can use the store; set --loopback or use a firewall"};
  StoreCommand store;
  bool help = false;
  OptionTable table(variables);
  declare_store(table, store, help);
  const Result<Arguments> arguments = table.parse(words);
  if (!arguments) return with_context(arguments.error(), "store");
  if (help) return Command(ShowText{help_text(store_help_head(), table.syntax(), ""), 0});
  if (arguments->program) return too_much("store", *arguments->program);
  return Command(store);
}

struct Operands {
  std::vector<std::string> options{};  // with their values
  std::vector<std::string> words{};    // the others
};

// Options may precede or follow the other words. "--" ends them, and "-" is not one.
Operands separated(std::span<const std::string> words, const std::vector<KnownOption>& known) {
  const auto takes_next = [&known](const std::string& word) {
    return std::any_of(known.begin(), known.end(), [&word](const KnownOption& option) {
      const bool is_letter = word.size() == 2 && word[1] == option.letter;
      const bool is_prefix = word.size() > 2 && option.name.starts_with(word);
      return option.value == KnownOption::Value::Needed && (is_letter || is_prefix);
    });
  };
  Operands found;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      found.words.insert(found.words.end(), words.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                         words.end());
      break;
    }
    const bool is_option = word.size() > 1 && word.starts_with('-');
    (is_option ? found.options : found.words).push_back(word);
    if (is_option && takes_next(word) && i + 1 < words.size()) found.options.push_back(words[++i]);
  }
  return found;
}

// Moves options to the front; the user may give them after the job.
std::vector<std::string> options_first(std::span<const std::string> words) {
  std::vector<std::string> ordered(words.begin(), words.end());
  std::stable_partition(ordered.begin(), ordered.end(),
                        [](const std::string& word) { return word.starts_with('-'); });
  return ordered;
}

void declare_status(OptionTable& table, StatusCommand& status, bool& help) {
  table.group("Options");
  table.flag("--json", status.is_json, "print one JSON object per job, one per line",
             kOwnWithoutVariable);
  table.flag("--node", status.is_node, "show only this node, with the pids of its workers",
             kOwnWithoutVariable);
  table.flag("--watch", status.is_live, "refresh every second until no job is left",
             kOwnWithoutVariable);
  table.flag("-h,--help", help, "print this help", kOwnWithoutVariable);
}

Result<Command> parse_status_command(std::span<const std::string> words, const Lookup& variables) {
  StatusCommand status;
  bool help = false;
  OptionTable table(variables);
  declare_status(table, status, help);
  const Result<Arguments> arguments = table.parse(options_first(words));
  if (!arguments) return with_context(arguments.error(), "status");
  if (help) return Command(ShowText{help_text(status_help_head(), table.syntax(), ""), 0});
  if (!arguments->program_arguments.empty()) {
    return too_much("status", arguments->program_arguments.front());
  }
  status.job = arguments->program;
  return Command(status);
}

void declare_list(OptionTable& table, ListCommand& list, bool& help) {
  table.group("Options");
  table.flag("--json", list.is_json, "print one JSON object per job, one per line",
             kOwnWithoutVariable);
  table.flag("-h,--help", help, "print this help", kOwnWithoutVariable);
}

Result<Command> parse_list_command(std::span<const std::string> words, const Lookup& variables) {
  ListCommand list;
  bool help = false;
  OptionTable table(variables);
  declare_list(table, list, help);
  const Result<Arguments> arguments = table.parse(words);
  if (!arguments) return with_context(arguments.error(), "list");
  if (help) return Command(ShowText{help_text(list_help_head(), table.syntax(), ""), 0});
  if (arguments->program) return too_much("list", *arguments->program);
  return Command(list);
}

void declare_stop(OptionTable& table, StopCommand& stop, bool& help) {
  table.group("Options");
  table.value("--timeout", stop.timeout, parse_seconds, "S",
              "fail if a job still runs after S seconds; 0: do not wait [default: wait until the "
              "jobs have ended]",
              kOwnWithoutVariable);
  table.flag("-h,--help", help, "print this help", kOwnWithoutVariable);
}

Result<Command> parse_stop_command(std::span<const std::string> words, const Lookup& variables) {
  StopCommand stop;
  bool help = false;
  OptionTable table(variables);
  declare_stop(table, stop, help);
  Operands found = separated(words, table.known());
  const Result<Arguments> arguments = table.parse(found.options);
  if (!arguments) return with_context(arguments.error(), "stop");
  if (help) return Command(ShowText{help_text(stop_help_head(), table.syntax(), ""), 0});
  if (found.words.empty())
    return Error{ErrorCode::Usage,
                 "stop: no job; give the run id or the pid of each job, which drun list shows"};
  stop.jobs = std::move(found.words);
  return Command(stop);
}

struct LogsStreams {
  bool is_stdout_only = false;
  bool is_stderr_only = false;
};

void declare_logs(OptionTable& table, LogsCommand& logs, LogsStreams& streams, bool& help) {
  table.group("Options");
  table.flag("-f,--follow", logs.is_following,
             "print further lines as they are written, also after restarts, until the job ends",
             kOwnWithoutVariable);
  table.value("-g,--grep", logs.pattern, parse_pattern, "PATTERN",
              "print only lines that match this extended regular expression (as grep -E)",
              kOwnWithoutVariable);
  table.value("-n,--tail", logs.tail, parse_count, "N",
              "print only the last N lines of each file; with --grep, the last N that match "
              "[default: all]",
              kOwnWithoutVariable);
  table.flag("--stdout", streams.is_stdout_only, "print only standard output", kOwnWithoutVariable);
  table.flag("--stderr", streams.is_stderr_only, "print only standard error", kOwnWithoutVariable);
  table.flag("-h,--help", help, "print this help", kOwnWithoutVariable);
}

Result<Command> parse_logs_command(std::span<const std::string> words, const Lookup& variables) {
  LogsCommand logs;
  LogsStreams streams;
  bool help = false;
  OptionTable table(variables);
  declare_logs(table, logs, streams, help);
  Operands found = separated(words, table.known());
  const Result<Arguments> arguments = table.parse(found.options);
  if (!arguments) return with_context(arguments.error(), "logs");
  if (help) return Command(ShowText{help_text(logs_help_head(), table.syntax(), ""), 0});
  if (streams.is_stdout_only != streams.is_stderr_only) {
    logs.has_stdout = streams.is_stdout_only;
    logs.has_stderr = streams.is_stderr_only;
  }
  for (std::size_t i = 0; i < found.words.size(); ++i) {
    if (i == 0) {
      logs.first = found.words[i];
      continue;
    }
    const Result<RankRanges> ranks = parse_rank_ranges(found.words[i]);
    if (!ranks) return with_context(ranks.error(), "logs");
    logs.ranks.insert(logs.ranks.end(), ranks->begin(), ranks->end());
  }
  normalize(logs.ranks);
  return Command(logs);
}

void declare_stacks(OptionTable& table, StacksCommand& stacks, bool& help) {
  table.group("Options");
  table.flag("--json", stacks.is_json, "print one JSON object per job, one per line",
             kOwnWithoutVariable);
  table.flag("-h,--help", help, "print this help", kOwnWithoutVariable);
}

Result<Command> parse_stacks_command(std::span<const std::string> words, const Lookup& variables) {
  StacksCommand stacks;
  bool help = false;
  OptionTable table(variables);
  declare_stacks(table, stacks, help);
  const Result<Arguments> arguments = table.parse(options_first(words));
  if (!arguments) return with_context(arguments.error(), "stacks");
  if (help) return Command(ShowText{help_text(stacks_help_head(), table.syntax(), ""), 0});
  if (!arguments->program_arguments.empty()) {
    return too_much("stacks", arguments->program_arguments.front());
  }
  stacks.job = arguments->program;
  return Command(stacks);
}

// drun help [TOPIC]: prints the help of a command, or the options of a group.
Result<Command> parse_help_command(std::span<const std::string> words, const Lookup& variables) {
  if (words.empty()) return Command(ShowText{help_topics(), 0});
  const std::string& topic = words.front();
  const std::vector<std::string> asks = {topic, "--help"};
  if (topic == "doctor") {
    const std::vector<std::string> argv = {"drun", "doctor", "--help"};
    return parse_command_line(argv, variables);
  }
  if (topic != "help") {
    if (auto command = parse_helper_command(asks, variables)) return *std::move(command);
  }
  Options options;
  Printed printed;
  OptionTable table(variables);
  declare_launcher(table, options, printed);
  if (std::optional<std::string> text = topic_help(topic, table.syntax()))
    return Command(ShowText{*std::move(text), 0});
  return Error{ErrorCode::Usage,
               "help: unknown topic \"" + topic + "\"; the topics are listed by drun help"};
}

void declare_report(OptionTable& table, ReportCommand& report, bool& help) {
  table.group("Options");
  table.value("-o,--output", report.output, parse_text, "FILE",
              "write the page to FILE; -: to standard output [default: job.html]",
              kOwnWithoutVariable);
  table.flag("--text", report.is_text, "print the report as text instead of writing a page",
             kOwnWithoutVariable);
  table.flag("-h,--help", help, "print this help", kOwnWithoutVariable);
}

// Files may precede or follow the options.
Result<Command> parse_report_command(std::span<const std::string> words, const Lookup& variables) {
  ReportCommand report;
  bool help = false;
  OptionTable table(variables);
  declare_report(table, report, help);
  Operands found = separated(words, table.known());
  report.files = std::move(found.words);
  const Result<Arguments> arguments = table.parse(found.options);
  if (!arguments) return with_context(arguments.error(), "report");
  if (help) return Command(ShowText{help_text(report_help_head(), table.syntax(), ""), 0});
  if (report.files.empty())
    return Error{ErrorCode::Usage,
                 "report: no event files; run the job with --events=FILE, then drun report FILE"};
  return Command(report);
}

}  // namespace

std::optional<Result<Command>> parse_helper_command(std::span<const std::string> words,
                                                    const Lookup& variables) {
  if (words.empty()) return std::nullopt;
  if (words.front() == "store") return parse_store_command(words.subspan(1), variables);
  if (words.front() == "status") return parse_status_command(words.subspan(1), variables);
  if (words.front() == "list") return parse_list_command(words.subspan(1), variables);
  if (words.front() == "stop") return parse_stop_command(words.subspan(1), variables);
  if (words.front() == "logs") return parse_logs_command(words.subspan(1), variables);
  if (words.front() == "stacks") return parse_stacks_command(words.subspan(1), variables);
  if (words.front() == "report") return parse_report_command(words.subspan(1), variables);
  if (words.front() == "help") return parse_help_command(words.subspan(1), variables);
  return std::nullopt;
}

std::vector<CommandSyntax> command_syntaxes() {
  using Operand = CommandSyntax::Operand;
  const Lookup no_variables = [](std::string_view) { return std::nullopt; };
  Options options;
  Printed printed;
  OptionTable launcher(no_variables);
  declare_launcher(launcher, options, printed);
  DoctorOptions doctor_command;
  OptionTable doctor(no_variables);
  declare_doctor(doctor, doctor_command);
  declare_launcher(doctor, options, printed);
  bool help = false;
  StoreCommand store_command;
  OptionTable store(no_variables);
  declare_store(store, store_command, help);
  StatusCommand status_command;
  OptionTable status(no_variables);
  declare_status(status, status_command, help);
  ListCommand list_command;
  OptionTable list(no_variables);
  declare_list(list, list_command, help);
  LogsCommand logs_command;
  LogsStreams logs_streams;
  OptionTable logs(no_variables);
  declare_logs(logs, logs_command, logs_streams, help);
  StopCommand stop_command;
  OptionTable stop(no_variables);
  declare_stop(stop, stop_command, help);
  StacksCommand stacks_command;
  OptionTable stacks(no_variables);
  declare_stacks(stacks, stacks_command, help);
  ReportCommand report_command;
  OptionTable report(no_variables);
  declare_report(report, report_command, help);
  return {
      {"", launcher_help_head("drun"), Operand::Program, launcher.syntax()},
      {"store", store_help_head(), Operand::None, store.syntax()},
      {"status", status_help_head(), Operand::Job, status.syntax()},
      {"list", list_help_head(), Operand::None, list.syntax()},
      {"stop", stop_help_head(), Operand::Jobs, stop.syntax()},
      {"logs", logs_help_head(), Operand::Job, logs.syntax()},
      {"stacks", stacks_help_head(), Operand::Job, stacks.syntax()},
      {"report", report_help_head(), Operand::Files, report.syntax()},
      {"doctor", doctor_help({}), Operand::Program, doctor.syntax()},
  };
}

}  // namespace drun
