#include "launcher/report/report.h"

#include "rendezvous/base/result.h"

namespace drun {
namespace {

int own_code(const Error& error) {
  switch (error.code) {
    case ErrorCode::Usage:
      return kUsage;
    case ErrorCode::Unreachable:
    case ErrorCode::Timeout:
      return kRendezvousTimeout;
    case ErrorCode::Closed:
    case ErrorCode::Refused:
      return kRendezvousRefused;
    case ErrorCode::Spawn:
      return kNotExecutable;
    case ErrorCode::WorkerFailed:
      return 1;
    case ErrorCode::System:
      return kSystemError;
  }
  return kSystemError;
}

int own_code(const Outcome& outcome) {
  return std::visit(
      Overloaded{
          [](const Succeeded&) { return 0; },
          [](const WorkersFailed& failed) {
            const int code =
                failed.failures.empty() ? kSystemError : exit_code(failed.failures[0].status);
            return code == 0 ? kSystemError : code;  // 0 only if success was confirmed
          },
          [](const Interrupted& interrupted) { return 128 + interrupted.signal; },
          [](const NodeLost&) { return kNodeLost; },
          [](const NotRun& not_run) { return own_code(not_run.error); },
          [](const Preempted&) { return kPreempted; },
      },
      outcome.ending);
}

int styled(int code, ExitCodeStyle style) {
  return style == ExitCodeStyle::Torchrun && code != 0 && code != kUsage ? 1 : code;
}

}  // namespace

int exit_code(const Error& error, ExitCodeStyle style) { return styled(own_code(error), style); }

int exit_code(const Outcome& outcome, ExitCodeStyle style) {
  const bool is_worker = std::holds_alternative<WorkersFailed>(outcome.ending);
  const int code = own_code(outcome);
  return is_worker && style == ExitCodeStyle::Torchrun ? 1 : styled(code, style);
}

}  // namespace drun
