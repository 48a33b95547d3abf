#include "launcher/helper_commands.h"

#include <algorithm>
#include <vector>

#include "launcher/help.h"
#include "launcher/memory_size.h"
#include "launcher/option_table.h"
#include "launcher/option_values.h"

namespace drun {
namespace {

Error too_much(const std::string& helper, const std::string& word) {
  return {ErrorCode::Usage, helper + ": \"" + word +
                                "\" is too much; to run a program of the name " + helper +
                                ", write drun -- " + helper};
}

bool asks_for_secret(const std::string& word) {
  return word.starts_with("--secret-file") || word.starts_with("--secret_file");
}

Result<Command> parse_store_command(std::span<const std::string> words, const Lookup& variables) {
  if (std::any_of(words.begin(), words.end(), asks_for_secret))
    return Error{
        ErrorCode::Usage,
        "store: --secret-file: a TCPStore's clients know no secrets, so anyone who reaches "
        "the port can use it; listen on --loopback, or keep strangers off by a firewall"};
  StoreCommand store;
  bool help = false;
  OptionTable table(variables);
  table.group("Options");
  table.value<int>(
      "--port", [&store](int port) { store.port = static_cast<std::uint16_t>(port); }, parse_port,
      "P", "where to listen (29500; 0: any free one, which is printed)", kOwnWithoutVariable);
  table.flag("--loopback", store.is_loopback_only, "listen on 127.0.0.1 and ::1 alone",
             kOwnWithoutVariable);
  table.value("--store-memory", store.memory_bytes, parse_memory_size, "SIZE",
              "what its clients may fill; beyond it who asks is closed (1GiB)", kOwn);
  table.flag("-h,--help", help, "print this", kOwnWithoutVariable);
  const Result<Arguments> arguments = table.parse(words);
  if (!arguments) return with_context(arguments.error(), "store");
  if (help) return Command(ShowText{help_text(store_help_head(), table.help(), ""), 0});
  if (arguments->program) return too_much("store", *arguments->program);
  return Command(store);
}

// Options may stand behind the job, too.
std::vector<std::string> options_first(std::span<const std::string> words) {
  std::vector<std::string> ordered(words.begin(), words.end());
  std::stable_partition(ordered.begin(), ordered.end(),
                        [](const std::string& word) { return word.starts_with('-'); });
  return ordered;
}

Result<Command> parse_status_command(std::span<const std::string> words, const Lookup& variables) {
  StatusCommand status;
  bool help = false;
  OptionTable table(variables);
  table.group("Options");
  table.flag("--json", status.is_json, "one JSON object a job and line", kOwnWithoutVariable);
  table.flag("--node", status.is_node, "this node alone, with its workers' pids",
             kOwnWithoutVariable);
  table.flag("--watch", status.is_live, "again every second, until no job is left",
             kOwnWithoutVariable);
  table.flag("-h,--help", help, "print this", kOwnWithoutVariable);
  const Result<Arguments> arguments = table.parse(options_first(words));
  if (!arguments) return with_context(arguments.error(), "status");
  if (help) return Command(ShowText{help_text(status_help_head(), table.help(), ""), 0});
  if (!arguments->program_arguments.empty()) {
    return too_much("status", arguments->program_arguments.front());
  }
  status.job = arguments->program;
  return Command(status);
}

Result<Command> parse_stacks_command(std::span<const std::string> words, const Lookup& variables) {
  StacksCommand stacks;
  bool help = false;
  OptionTable table(variables);
  table.group("Options");
  table.flag("--json", stacks.is_json, "one JSON object a job and line", kOwnWithoutVariable);
  table.flag("-h,--help", help, "print this", kOwnWithoutVariable);
  const Result<Arguments> arguments = table.parse(options_first(words));
  if (!arguments) return with_context(arguments.error(), "stacks");
  if (help) return Command(ShowText{help_text(stacks_help_head(), table.help(), ""), 0});
  if (!arguments->program_arguments.empty()) {
    return too_much("stacks", arguments->program_arguments.front());
  }
  stacks.job = arguments->program;
  return Command(stacks);
}

}  // namespace

std::optional<Result<Command>> parse_helper_command(std::span<const std::string> words,
                                                    const Lookup& variables) {
  if (words.empty()) return std::nullopt;
  if (words.front() == "store") return parse_store_command(words.subspan(1), variables);
  if (words.front() == "status") return parse_status_command(words.subspan(1), variables);
  if (words.front() == "stacks") return parse_stacks_command(words.subspan(1), variables);
  return std::nullopt;
}

}  // namespace drun
