#include "launcher/commands/commands.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "launcher/commands/local_jobs.h"

namespace drun {
namespace {

// Absent: stdout is not a terminal, and lines are not cut.
std::optional<std::size_t> terminal_columns() {
  winsize size{};
  if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 ||
      size.ws_col == 0)
    return std::nullopt;
  return size.ws_col;
}

}  // namespace

int show_list(const ListCommand& command) {
  const std::vector<LocalAgent> agents = local_agents();
  std::string text;
  if (command.is_json) {
    for (const std::string& status : job_statuses(agents)) text += status;
  } else {
    text = job_table(job_rows(agents), terminal_columns());
  }
  std::fputs(text.c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace drun
