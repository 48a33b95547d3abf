#include "rendezvous/job/outcome.h"

#include <cerrno>
#include <csignal>

#include "rendezvous/base/result.h"
#include "rendezvous/base/signal_names.h"

namespace drun {
namespace {

constexpr int kHungCode = 123;  // docs/reference/exit-codes.md lists the codes

}  // namespace

bool is_success(const ExitStatus& status) { return status == ExitStatus(Exited{0}); }

int exit_code(const ExitStatus& status) {
  return std::visit(Overloaded{
                        [](const Exited& exited) { return exited.code; },
                        [](const Killed& killed) { return 128 + killed.signal; },
                        [](const NotStarted& not_started) {
                          return not_started.error_number == ENOENT ? 127 : 126;
                        },
                        [](const Hung&) { return kHungCode; },
                    },
                    status);
}

std::string signal_name(int signal) {
  if (const auto known = find_signal(signal)) return std::string(known->name);
  if (signal >= SIGRTMIN && signal <= SIGRTMAX)
    return "SIGRTMIN+" + std::to_string(signal - SIGRTMIN);
  return "signal " + std::to_string(signal);
}

std::string to_string(const ExitStatus& status) {
  return std::visit(
      Overloaded{
          [](const Exited& exited) { return "exit code " + std::to_string(exited.code); },
          [](const Killed& killed) {
            const auto known = find_signal(killed.signal);
            return "signal " + std::to_string(killed.signal) + " (" + signal_name(killed.signal) +
                   (known ? ", " + std::string(known->description) : "") + ")" +
                   (killed.core_dumped ? ", core dumped" : "");
          },
          [](const NotStarted& not_started) {
            const int number = not_started.error_number;
            // EIO stands for an error without an errno; the failure's message has the reason.
            return "not started" + (number == EIO ? "" : ": " + system_message(number));
          },
          [](const Hung& hung) { return "hung: " + hung.how; },
      },
      status);
}

Failure brief(Failure failure) {
  failure.message.clear();
  failure.traceback.clear();
  failure.stderr_tail.clear();
  return failure;
}

}  // namespace drun
