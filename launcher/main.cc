// Parses the command line and runs the command. The program's only catch is here.

#include <cstdio>
#include <exception>
#include <string>
#include <variant>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/remote_agent.h"
#include "launcher/facts/host.h"
#include "launcher/report/report.h"
#include "rendezvous/base/result.h"

namespace drun {
namespace {

int show(const ShowText& text) {
  std::fputs(text.text.c_str(), text.exit_code == 0 ? stdout : stderr);
  return text.exit_code;
}

int refuse(const std::string& invoked_as, const Error& error) {
  std::fputs(error_text(invoked_as.substr(invoked_as.rfind('/') + 1), error).c_str(), stderr);
  return exit_code(error, ExitCodeStyle::Drun);
}

int run(const std::vector<std::string>& argv) {
  const HostFacts host = look_at_host();
  const Result<Command> command =
      parse_command_line(argv, [&host](std::string_view name) { return variable(host, name); });
  if (!command) return refuse(argv.empty() ? "drun" : argv.front(), command.error());
  return std::visit(Overloaded{
                        [](const ShowText& text) { return show(text); },
                        [](const StoreCommand& store) { return serve_store(store); },
                        [&host](const StatusCommand& status) { return show_status(status, host); },
                        [](const ListCommand& list) { return show_list(list); },
                        [](const StopCommand& stop) { return stop_jobs(stop); },
                        [](const LogsCommand& logs) { return show_logs(logs); },
                        [](const StacksCommand& stacks) { return show_stacks(stacks); },
                        [](const CompleteCommand& words) { return show_completions(words); },
                        [&host](const ReportCommand& report) { return show_report(report, host); },
                        [](const FromStdinCommand&) { return hosts::run_from_stdin(); },
                        [&host](const Options& options) {
                          return options.hosts.names_hosts() ? hosts::run_hosts(options, host)
                                                             : run_job(options, host);
                        },
                    },
                    *command);
}

}  // namespace
}  // namespace drun

int main(int argc, char** argv) {
  try {
    return drun::run(std::vector<std::string>(argv, argv + argc));
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "drun: internal error: %s\n", exception.what());
    return drun::kSystemError;
  }
}
