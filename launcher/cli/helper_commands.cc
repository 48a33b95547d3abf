#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "launcher/cli/help.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/option_values.h"

namespace drun {
namespace {

using Operand = CommandSyntax::Operand;
using Words = std::vector<std::string>;

constexpr std::size_t kAnyNumber = static_cast<std::size_t>(-1);

// A helper command: its options, and what becomes of the words that are not options.
template <typename Parsed>
struct Helper {
  std::string_view name;
  Operand operand;
  std::size_t most_words;
  void (*declare)(OptionTable& table, Parsed& parsed);
  Result<Command> (*finish)(Parsed&& parsed, Words&& words);
};

void declare_json(OptionTable& table, bool& is_json) {
  table.flag("--json", is_json, "print one JSON object per job, one per line", kOwnWithoutVariable);
}

std::optional<std::string> first_of(Words&& words) {
  return words.empty() ? std::nullopt : std::optional(std::move(words.front()));
}

Result<std::string> refuse_secret(std::string_view) {
  return Error{ErrorCode::Usage,
               "clients of a TCPStore cannot authenticate, so that any host that reaches the port "
               "can use the store; set --loopback or use a firewall"};
}

void declare_store(OptionTable& table, StoreCommand& store) {
  table.value<int>(
      "--port", [&store](int port) { store.port = static_cast<std::uint16_t>(port); }, parse_port,
      "P", "port to listen on; 0: any free port, which is printed [default: 29500]",
      kOwnWithoutVariable);
  table.flag("--loopback", store.is_loopback_only, "listen on 127.0.0.1 and ::1 only",
             kOwnWithoutVariable);
  table.value("--store-memory", store.memory_bytes, parse_memory_size, "SIZE",
              "limit for the contents; a client that exceeds it is disconnected [default: 1GiB]",
              kDrunOption);
  table.value<std::string>(
      "--secret-file", [](const std::string&) {}, refuse_secret, "FILE", "", kHiddenOption);
}

void declare_status(OptionTable& table, StatusCommand& status) {
  declare_json(table, status.is_json);
  table.flag("--node", status.is_node, "show only this node, with the pids of its workers",
             kOwnWithoutVariable);
  table.flag("--watch", status.is_live, "refresh every second until no job is left",
             kOwnWithoutVariable);
}

void declare_stop(OptionTable& table, StopCommand& stop) {
  table.value("--timeout", stop.timeout, parse_seconds, "S",
              "fail if a job still runs after S seconds; 0: do not wait [default: wait until the "
              "jobs have ended]",
              kOwnWithoutVariable);
}

Result<Command> finish_stop(StopCommand&& stop, Words&& words) {
  if (words.empty())
    return Error{ErrorCode::Usage,
                 "no job; give the run id or the pid of each job, which drun list shows"};
  stop.jobs = std::move(words);
  return Command(std::move(stop));
}

struct LogsOptions {
  LogsCommand command{};
  bool is_stdout_only = false;
  bool is_stderr_only = false;
};

void declare_logs(OptionTable& table, LogsOptions& logs) {
  table.flag("-f,--follow", logs.command.is_following,
             "print further lines as they are written, also after restarts, until the job ends",
             kOwnWithoutVariable);
  table.value("-g,--grep", logs.command.pattern, parse_pattern, "PATTERN",
              "print only lines that match this extended regular expression (as grep -E)",
              kOwnWithoutVariable);
  table.value("-n,--tail", logs.command.tail, parse_count, "N",
              "print only the last N lines of each file; with --grep, the last N that match "
              "[default: all]",
              kOwnWithoutVariable);
  table.flag("--stdout", logs.is_stdout_only, "print only standard output", kOwnWithoutVariable);
  table.flag("--stderr", logs.is_stderr_only, "print only standard error", kOwnWithoutVariable);
}

// The first word is a job, or else ranks.
Result<Command> finish_logs(LogsOptions&& logs, Words&& words) {
  LogsCommand& command = logs.command;
  if (logs.is_stdout_only != logs.is_stderr_only) {
    command.has_stdout = logs.is_stdout_only;
    command.has_stderr = logs.is_stderr_only;
  }
  for (std::size_t i = 1; i < words.size(); ++i) {
    const Result<RankRanges> ranks = parse_rank_ranges(words[i]);
    if (!ranks) return ranks.error();
    command.ranks.insert(command.ranks.end(), ranks->begin(), ranks->end());
  }
  normalize(command.ranks);
  command.first = first_of(std::move(words));
  return Command(std::move(command));
}

void declare_report(OptionTable& table, ReportCommand& report) {
  table.value("-o,--output", report.output, parse_text, "FILE",
              "write the page to FILE; -: to standard output [default: job.html]",
              kOwnWithoutVariable);
  table.flag("--text", report.is_text, "print the report as text instead of writing a page",
             kOwnWithoutVariable);
}

Result<Command> finish_report(ReportCommand&& report, Words&& words) {
  if (words.empty())
    return Error{ErrorCode::Usage,
                 "no event files; run the job with --events=FILE, then drun report FILE"};
  report.files = std::move(words);
  return Command(std::move(report));
}

template <typename Parsed>
Result<Command> finish_plain(Parsed&& parsed, Words&&) {
  return Command(std::move(parsed));
}

template <typename Parsed>
Result<Command> finish_with_job(Parsed&& parsed, Words&& words) {
  parsed.job = first_of(std::move(words));
  return Command(std::move(parsed));
}

constexpr std::tuple kHelpers{
    Helper<StoreCommand>{"store", Operand::None, 0, declare_store, finish_plain<StoreCommand>},
    Helper<StatusCommand>{"status", Operand::Job, 1, declare_status,
                          finish_with_job<StatusCommand>},
    Helper<ListCommand>{
        "list", Operand::None, 0,
        [](OptionTable& table, ListCommand& list) { declare_json(table, list.is_json); },
        finish_plain<ListCommand>},
    Helper<StopCommand>{"stop", Operand::Jobs, kAnyNumber, declare_stop, finish_stop},
    Helper<LogsOptions>{"logs", Operand::Job, kAnyNumber, declare_logs, finish_logs},
    Helper<StacksCommand>{
        "stacks", Operand::Job, 1,
        [](OptionTable& table, StacksCommand& stacks) { declare_json(table, stacks.is_json); },
        finish_with_job<StacksCommand>},
    Helper<ReportCommand>{"report", Operand::Files, kAnyNumber, declare_report, finish_report}};

template <typename Parsed>
void declare(OptionTable& table, const Helper<Parsed>& helper, Parsed& parsed, bool& help) {
  table.group("Options");
  helper.declare(table, parsed);
  table.flag("-h,--help", help, "print this help", kOwnWithoutVariable);
}

template <typename Parsed>
Result<Command> parse_helper(const Helper<Parsed>& helper, std::span<const std::string> words,
                             const Lookup& variables) {
  const std::string name(helper.name);
  Parsed parsed;
  bool help = false;
  OptionTable table(variables);
  declare(table, helper, parsed, help);
  Result<Arguments> arguments = table.parse(words, Operands::Anywhere);
  if (!arguments) return arguments.error();
  if (help) return Command(ShowText{help_text(helper_help_head(name), table.syntax(), ""), 0});
  Words& operands = arguments->operands;
  if (operands.size() > helper.most_words)
    return Error{ErrorCode::Usage, "unexpected argument \"" + operands[helper.most_words] +
                                       "\"; to run a program named " + name + ", write drun -- " +
                                       name};
  return helper.finish(std::move(parsed), std::move(operands));
}

template <typename Parsed>
CommandSyntax syntax_of(const Helper<Parsed>& helper) {
  const Lookup no_variables = [](std::string_view) { return std::nullopt; };
  Parsed parsed;
  bool help = false;
  OptionTable table(no_variables);
  declare(table, helper, parsed, help);
  return {std::string(helper.name), std::string(helper_help_head(helper.name)), helper.operand,
          table.syntax()};
}

// drun help [TOPIC]: prints the help of a command, or the options of a group.
Result<Command> parse_help_command(std::span<const std::string> words, const Lookup& variables) {
  if (words.empty()) return Command(ShowText{help_topics(), 0});
  const std::string& topic = words.front();
  if (topic == "doctor") {
    const Words argv = {"drun", "doctor", "--help"};
    return parse_command_line(argv, variables);
  }
  if (topic == "help" || topic == "--help" || topic == "-h")
    return Command(ShowText{std::string(helper_help_head("help")), 0});
  const Words asks = {topic, "--help"};
  if (auto command = parse_helper_command(asks, variables)) return *std::move(command);
  Options options;
  Printed printed;
  OptionTable table(variables);
  declare_launcher(table, options, printed);
  if (std::optional<std::string> text = topic_help(topic, table.syntax()))
    return Command(ShowText{*std::move(text), 0});
  return Error{ErrorCode::Usage,
               "unknown topic \"" + topic + "\"; the topics are listed by drun help"};
}

}  // namespace

std::optional<Result<Command>> parse_helper_command(std::span<const std::string> words,
                                                    const Lookup& variables) {
  if (words.empty()) return std::nullopt;
  if (words.front() == "help") return parse_help_command(words.subspan(1), variables);
  std::optional<Result<Command>> command;
  const auto try_helper = [&](const auto& helper) {
    if (helper.name == words.front()) command = parse_helper(helper, words.subspan(1), variables);
  };
  std::apply([&try_helper](const auto&... helpers) { (try_helper(helpers), ...); }, kHelpers);
  return command;
}

std::string command_name(std::span<const std::string> argv) {
  if (argv.empty()) return "drun";
  const std::string name = argv[0].substr(argv[0].rfind('/') + 1);
  const bool is_helper =
      argv.size() > 1 && name != "torchrun" && !helper_help_head(argv[1]).empty();
  return is_helper ? name + " " + argv[1] : name;
}

std::vector<CommandSyntax> command_syntaxes() {
  const Lookup no_variables = [](std::string_view) { return std::nullopt; };
  Options options;
  Printed printed;
  OptionTable launcher(no_variables);
  declare_launcher(launcher, options, printed);
  DoctorOptions doctor_options;
  OptionTable doctor(no_variables);
  declare_doctor(doctor, doctor_options);
  declare_launcher(doctor, options, printed);
  std::vector<CommandSyntax> commands = {
      {"", launcher_help_head("drun"), Operand::Program, launcher.syntax()}};
  std::apply([&commands](const auto&... helpers) { (commands.push_back(syntax_of(helpers)), ...); },
             kHelpers);
  commands.push_back({"doctor", doctor_help({}), Operand::Program, doctor.syntax()});
  return commands;
}

}  // namespace drun
