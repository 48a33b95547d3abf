#include "agent/diagnosis/fatal_signals.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <vector>

#include "agent/diagnosis/error_text.h"
#include "rendezvous/base/text.h"

namespace drun::agent {
namespace {

constexpr std::string_view kCause = "cause: ";
constexpr std::string_view kAdvice = "advice: ";
constexpr std::string_view kNoMemory = "full: /dev/shm";

int signal_of(const Failure& failure) {
  const auto* killed = std::get_if<Killed>(&failure.status);
  return killed == nullptr ? 0 : killed->signal;
}

std::string on_host(const Failure& failure) {
  return failure.host.empty() ? "" : " on " + failure.host;
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 10240 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return std::to_string(bytes) + " " + kUnits[unit];
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts)
    if (!part.empty()) text += (text.empty() ? "" : "; ") + part;
  return text;
}

// Where the core dump is, or why there is none.
std::string core_text(const Failure& failure, const SignalFacts& facts) {
  const std::string_view pattern = facts.core_pattern;
  const bool is_program = pattern.starts_with('|');
  if (!std::get<Killed>(failure.status).core_dumped) {
    if (facts.forbids_core_files && !is_program)
      return "no core dump: the limit is 0 (ulimit -c unlimited)";
    return "no core dump was written";
  }
  const std::string pid = std::to_string(failure.pid);
  if (pattern.find("systemd-coredump") != pattern.npos)
    return "core dump: coredumpctl debug " + pid + on_host(failure);
  if (is_program) {
    const std::string_view program = pattern.substr(1, pattern.find(' ') - 1);
    return "core dump: given to " + std::string(program.substr(program.rfind('/') + 1)) +
           on_host(failure);
  }
  if (pattern.empty()) return "core dump: see kernel.core_pattern" + on_host(failure);
  return "core dump: " + std::string(pattern) +
         (pattern.starts_with('/') ? "" : " in its working directory") + on_host(failure);
}

// With its faulthandler, Python prints its stacks before such a signal ends it.
std::string python_text(const Failure& failure) {
  const std::string_view program =
      std::string_view(failure.program).substr(failure.program.rfind('/') + 1);
  if (!program.ends_with(".py") && !program.starts_with("python")) return "";
  const auto has_stacks = [](std::string_view text) {
    return text.find("Fatal Python error") != text.npos ||
           text.find("Current thread 0x") != text.npos;
  };
  const bool is_shown =
      has_stacks(failure.traceback) ||
      std::any_of(failure.stderr_tail.begin(), failure.stderr_tail.end(), has_stacks);
  return is_shown ? "" : "PYTHONFAULTHANDLER=1 shows the Python stack";
}

std::string crash_advice(const Failure& failure, const SignalFacts& facts) {
  return joined({python_text(failure), core_text(failure, facts),
                 "--wrap and --wrap-ranks run the rank under a debugger"});
}

SignalAccount account_of_kill(const Failure& failure, const SignalFacts& facts) {
  const std::string rank = "rank " + std::to_string(failure.rank);
  SignalAccount account;
  if (facts.counts_oom_kills) {
    account.cause = rank +
                    " got SIGKILL from another program or a limit: its cgroup counted no "
                    "out-of-memory kill";
    account.advice = "look at the logs of the scheduler, the container and systemd-oomd" +
                     on_host(failure) + "; a kill -9 by hand looks the same";
  } else {
    account.cause = rank +
                    " got SIGKILL, and its sender is not known: no count of out-of-memory kills "
                    "can be read" +
                    on_host(failure);
    account.advice =
        "look for \"Out of memory\" in dmesg, and in the logs of the container, the scheduler and "
        "systemd-oomd";
  }
  if (facts.processor_seconds)
    account.advice += "; the limit of processor time is " +
                      std::to_string(*facts.processor_seconds) + " s (ulimit -t)";
  return account;
}

SignalAccount account_of_bus_error(const Failure& failure, const SignalFacts& facts) {
  const auto& memory = facts.shared_memory;
  const std::string rank = "rank " + std::to_string(failure.rank);
  if (memory && memory->free_bytes <= memory->size_bytes / 100)
    return {.cause = rank + " got SIGBUS, and /dev/shm is full" + on_host(failure) + " (" +
                     size_text(memory->size_bytes) + ")",
            .advice =
                "use a larger /dev/shm (--shm-size or --ipc=host of the container), or remove "
                "files there",
            .has_no_memory = true};
  return {.cause = rank + " got SIGBUS: memory that it had mapped cannot be accessed",
          .advice = joined({"check for a full disk, a truncated file, and memory errors in the "
                            "kernel log" +
                                (memory ? "; /dev/shm has " + size_text(memory->free_bytes) +
                                              " of " + size_text(memory->size_bytes) + " free now"
                                        : ""),
                            core_text(failure, facts)})};
}

}  // namespace

bool has_account(const Failure& failure) {
  constexpr std::array kSignals{SIGKILL, SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE};
  return !failure.out_of_memory &&
         std::find(kSignals.begin(), kSignals.end(), signal_of(failure)) != kSignals.end();
}

SignalAccount account_of(const Failure& failure, const SignalFacts& facts) {
  if (!has_account(failure)) return {};
  const std::string rank = "rank " + std::to_string(failure.rank);
  switch (signal_of(failure)) {
    case SIGKILL:
      return account_of_kill(failure, facts);
    case SIGBUS:
      return account_of_bus_error(failure, facts);
    case SIGSEGV:
      return {.cause = rank +
                       " got SIGSEGV: an access to memory that is not mapped or is write-protected",
              .advice = crash_advice(failure, facts)};
    case SIGILL:
      return {.cause = rank + " got SIGILL: an instruction that the CPU rejects",
              .advice = joined({"compare the CPU" + on_host(failure) +
                                    " with the one that the program was built for",
                                crash_advice(failure, facts)})};
    case SIGFPE:
      return {
          .cause =
              rank + " got SIGFPE: an impossible calculation, such as an integer division by zero",
          .advice = crash_advice(failure, facts)};
    default:
      break;
  }
  // abort() usually follows a message.
  const bool is_explained = !read_error_text(failure).error.empty();
  return {
      .cause = is_explained ? "" : rank + " was aborted, and its stderr does not show the reason",
      .advice = joined(
          {is_explained ? "see the last lines of its stderr" : "", crash_advice(failure, facts)})};
}

std::string text_of(const SignalAccount& account) {
  std::string text;
  for (const auto& [name, line] : {std::pair(kCause, &account.cause), {kAdvice, &account.advice}})
    if (!line->empty()) text.append(name).append(*line) += '\n';
  if (account.has_no_memory) text.append(kNoMemory) += '\n';
  return text;
}

SignalAccount read_account(std::string_view text) {
  SignalAccount account;
  for (const std::string_view line : split(text, '\n')) {
    if (line.starts_with(kCause)) account.cause = evidence_text(line.substr(kCause.size()));
    if (line.starts_with(kAdvice)) account.advice = evidence_text(line.substr(kAdvice.size()));
    account.has_no_memory = account.has_no_memory || line == kNoMemory;
  }
  return account;
}

}  // namespace drun::agent
