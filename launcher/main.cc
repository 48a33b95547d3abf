// Parses the command line and runs the command. The program's only catch is here.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/commands/commands.h"
#include "launcher/facts/host.h"
#include "launcher/report/report.h"
#include "rendezvous/base/result.h"

namespace drun {
namespace {

// Opens /dev/null in place of standard descriptors that are closed. Otherwise a pipe or socket of
// drun would get such a number, and workers and messages would use it.
void open_closed_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0) return;  // the lowest number
}

// A write beyond the file size limit (ulimit -f) fails then, with EFBIG, and does not end drun. A
// handler, unlike an ignored signal, is not inherited by workers.
void fail_writes_beyond_size_limit() {
  struct sigaction action {};
  if (sigaction(SIGXFSZ, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = [](int) {};
  sigaction(SIGXFSZ, &action, nullptr);
}

int show(const ShowText& text) {
  std::fputs(text.text.c_str(), text.exit_code == 0 ? stdout : stderr);
  return text.exit_code;
}

int refuse(const std::string& command, const Error& error) {
  std::fputs(error_text(command, error).c_str(), stderr);
  return exit_code(error, ExitCodeStyle::Drun);
}

std::optional<std::string> own_variable(std::string_view name) {
  const char* const value = std::getenv(std::string(name).c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// The facts of this machine take the most time of a start, so only the commands that use them
// collect them. An agent of --hosts does so when it has the directory and the variables of its job.
int run(const std::vector<std::string>& argv) {
  const Result<Command> command = parse_command_line(argv, own_variable);
  if (!command) return refuse(command_name(argv), command.error());
  return std::visit(Overloaded{
                        [](const ShowText& text) { return show(text); },
                        [](const StoreCommand& store) { return serve_store(store); },
                        [](const StatusCommand& status) { return show_status(status); },
                        [](const ListCommand& list) { return show_list(list); },
                        [](const StopCommand& stop) { return stop_jobs(stop); },
                        [](const LogsCommand& logs) { return show_logs(logs); },
                        [](const StacksCommand& stacks) { return show_stacks(stacks); },
                        [](const CompleteCommand& words) { return show_completions(words); },
                        [](const ReportCommand& report) { return show_report(report); },
                        [](const FromStdinCommand&) { return hosts::run_from_stdin(); },
                        [](const Options& options) {
                          const HostFacts host = look_at_host();
                          return options.hosts.names_hosts() ? hosts::run_hosts(options, host)
                                                             : run_job(options, host);
                        },
                    },
                    *command);
}

// A text that was not written in full, as on a full disk, is a failure of the command that printed
// it, unless its reader has seen enough. Output of workers does not pass through this stream.
int end(int exit_code) {
  const int error = std::fflush(stdout) == 0 ? 0 : errno;
  if ((error == 0 && std::ferror(stdout) == 0) || error == EPIPE) return exit_code;
  const std::string reason = error == 0 ? "" : ": " + system_message(error);
  std::fprintf(stderr, "drun: the output is incomplete: cannot write to stdout%s\n",
               reason.c_str());
  return exit_code == 0 ? kSystemError : exit_code;
}

}  // namespace
}  // namespace drun

int main(int argc, char** argv) {
  try {
    drun::open_closed_descriptors();
    drun::fail_writes_beyond_size_limit();
    return drun::end(drun::run(std::vector<std::string>(argv, argv + argc)));
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "drun: internal error: %s\n", exception.what());
    return drun::kSystemError;
  }
}
