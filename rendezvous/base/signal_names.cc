#include "rendezvous/base/signal_names.h"

#include <algorithm>
#include <array>
#include <csignal>

namespace drun {
namespace {

constexpr std::array kSignals = std::to_array<SignalName>({
    {SIGHUP, "SIGHUP", "hangup"},
    {SIGINT, "SIGINT", "interrupt"},
    {SIGQUIT, "SIGQUIT", "quit"},
    {SIGILL, "SIGILL", "illegal instruction"},
    {SIGTRAP, "SIGTRAP", "trace/breakpoint trap"},
    {SIGABRT, "SIGABRT", "aborted"},
    {SIGBUS, "SIGBUS", "bus error"},
    {SIGFPE, "SIGFPE", "floating point exception"},
    {SIGKILL, "SIGKILL", "killed"},
    {SIGUSR1, "SIGUSR1", "user defined signal 1"},
    {SIGSEGV, "SIGSEGV", "segmentation fault"},
    {SIGUSR2, "SIGUSR2", "user defined signal 2"},
    {SIGPIPE, "SIGPIPE", "broken pipe"},
    {SIGALRM, "SIGALRM", "alarm clock"},
    {SIGTERM, "SIGTERM", "terminated"},
    {SIGSTKFLT, "SIGSTKFLT", "stack fault"},
    {SIGCHLD, "SIGCHLD", "child exited"},
    {SIGCONT, "SIGCONT", "continued"},
    {SIGSTOP, "SIGSTOP", "stopped (signal)"},
    {SIGTSTP, "SIGTSTP", "stopped"},
    {SIGTTIN, "SIGTTIN", "stopped (tty input)"},
    {SIGTTOU, "SIGTTOU", "stopped (tty output)"},
    {SIGURG, "SIGURG", "urgent I/O condition"},
    {SIGXCPU, "SIGXCPU", "CPU time limit exceeded"},
    {SIGXFSZ, "SIGXFSZ", "file size limit exceeded"},
    {SIGVTALRM, "SIGVTALRM", "virtual timer expired"},
    {SIGPROF, "SIGPROF", "profiling timer expired"},
    {SIGWINCH, "SIGWINCH", "window changed"},
    {SIGPOLL, "SIGPOLL", "I/O possible"},
    {SIGPWR, "SIGPWR", "power failure"},
    {SIGSYS, "SIGSYS", "bad system call"},
});

template <typename Is>
std::optional<SignalName> find(Is is_it) {
  const auto found = std::find_if(kSignals.begin(), kSignals.end(), is_it);
  if (found == kSignals.end()) return std::nullopt;
  return *found;
}

}  // namespace

std::optional<SignalName> find_signal(int number) {
  return find([number](const SignalName& signal) { return signal.number == number; });
}

std::optional<SignalName> find_signal(std::string_view name) {
  if (name.starts_with("SIG")) name.remove_prefix(3);
  return find([name](const SignalName& signal) { return signal.name.substr(3) == name; });
}

}  // namespace drun
