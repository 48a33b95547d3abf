#include "launcher/commands/commands.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include "agent/status/events.h"
#include "launcher/facts/files.h"
#include "launcher/report/report.h"
#include "launcher/report/timeline.h"
#include "launcher/report/timeline_views.h"
#include "rendezvous/base/unique_fd.h"

namespace drun {
namespace {

constexpr std::size_t kMostFileBytes = std::size_t{1} << 30;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

Error cannot_read(const std::string& path, int error_number) {
  return {ErrorCode::System, "cannot read " + path + ": " + system_message(error_number) +
                                 "; give files that --events has written"};
}

// Passes on whole lines only. Skips lines above the size limit.
Result<void> take_file(const std::string& path, timeline::Builder& builder) {
  const UniqueFd file(path == "-" ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                                  : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!file) return cannot_read(path, errno);
  std::string pending;
  std::string piece(kPieceBytes, '\0');
  std::size_t taken = 0;
  while (taken < kMostFileBytes) {
    const ssize_t got = ::read(file.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return cannot_read(path, errno);
    if (got == 0) break;
    taken += static_cast<std::size_t>(got);
    pending.append(piece, 0, static_cast<std::size_t>(got));
    const std::size_t end = pending.rfind('\n');
    if (end == pending.npos) {
      if (pending.size() > 2 * timeline::kMostLineBytes)
        pending.resize(timeline::kMostLineBytes + 1);
      continue;
    }
    builder.take(std::string_view(pending).substr(0, end + 1));
    pending.erase(0, end + 1);
  }
  builder.take(pending);  // incomplete if drun was killed
  return {};
}

timeline::Builder::Now now_on(const std::string& hostname) {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return {.since_epoch_s = std::chrono::duration<double>(since).count(),
          .is_running = [hostname](std::string_view agent_host, int pid) {
            return agent_host == hostname && pid > 0 && (kill(pid, 0) == 0 || errno == EPERM);
          }};
}

int complain(const Error& error) {
  std::fprintf(stderr, "drun report: %s\n", error.message.c_str());
  return 1;
}

}  // namespace

int show_report(const ReportCommand& command) {
  const HostFacts host = look_at_host();
  timeline::Builder builder;
  for (const std::string& path : command.files)
    if (const Result<void> taken = take_file(path, builder); !taken) return complain(taken.error());
  const std::optional<timeline::Job> job = builder.build(now_on(host.hostname));
  if (!job) {
    return complain(
        Error{ErrorCode::Usage, "there are no events in " + command.files.front() +
                                    (command.files.size() > 1 ? " and the other files" : "") +
                                    "; give files that --events has written"});
  }
  if (command.is_text) {
    const bool is_terminal = isatty(STDOUT_FILENO) == 1;
    constexpr int kUsualColumns = 100;
    const TextStyle style{.columns = host.columns > 0 ? host.columns : kUsualColumns,
                          .has_color = is_terminal && !variable(host, "NO_COLOR")};
    std::fputs(report_text(*job, style).c_str(), stdout);
    return 0;
  }
  const std::string page = report_html(*job);
  if (command.output == "-") {
    std::fwrite(page.data(), 1, page.size(), stdout);
    return 0;
  }
  if (const Result<void> written = write_file(command.output, page); !written)
    return complain(written.error());
  std::fprintf(stderr, "drun report: wrote %s\n", command.output.c_str());
  return 0;
}

bool write_report(const std::string& file, const std::string& text, const std::string& invoked_as) {
  const Result<void> written = write_file(file, text);
  if (!written) std::fputs(error_text(invoked_as, written.error()).c_str(), stderr);
  return written.has_value();
}

std::string html_report_of(const std::string& events, const Outcome& outcome) {
  timeline::Builder builder;
  builder.take(events);
  if (events.empty()) {
    const auto now =
        std::chrono::floor<std::chrono::microseconds>(std::chrono::system_clock::now());
    builder.take(event_line(agent::JobEnded{outcome},
                            {.run_id = outcome.run_id, .host = "", .pid = 0}, now));
  }
  const std::optional<timeline::Job> job = builder.build();
  return job ? report_html(*job) : std::string();
}

}  // namespace drun
