#include "agent/diagnosis/fatal_signals.h"

#include <csignal>

#include "agent/diagnosis/diagnosis.h"
#include "agent/diagnosis/error_text.h"
#include "tests/support/catch.h"

namespace drun::agent {
namespace {

Failure killed(int signal, bool core_dumped = false) {
  Failure failure;
  failure.rank = 3;
  failure.host = "gpu1";
  failure.pid = 77;
  failure.program = "./train";
  failure.status = Killed{signal, core_dumped};
  return failure;
}

Diagnosis diagnosis_with(Failure failure, const SignalFacts& facts) {
  failure.traceback = with_signal_account(failure.traceback, text_of(account_of(failure, facts)));
  return diagnose({.ending = WorkersFailed{{failure}}, .world_size = 4});
}

}  // namespace

TEST_CASE("a SIGKILL names the count of out-of-memory kills, or that there is none") {
  const Diagnosis counted = diagnosis_with(killed(SIGKILL), {.counts_oom_kills = true});
  CHECK(counted.adds_to_headline);
  CHECK(counted.summary ==
        "rank 3 got SIGKILL from another program or a limit: its cgroup counted no out-of-memory "
        "kill");
  CHECK(counted.advice ==
        "look at the logs of the scheduler, the container and systemd-oomd on "
        "gpu1; a kill -9 by hand looks the same");
  const Diagnosis unknown = diagnosis_with(killed(SIGKILL), {.processor_seconds = 3600});
  CHECK(unknown.summary ==
        "rank 3 got SIGKILL, and its sender is not known: no count of "
        "out-of-memory kills can be read on gpu1");
  CHECK_THAT(unknown.advice, ContainsSubstring("dmesg") &&
                                 ContainsSubstring("processor time is 3600 s (ulimit -t)"));
}

TEST_CASE("an out-of-memory kill and other ends have no account") {
  Failure failure = killed(SIGKILL);
  failure.out_of_memory = true;
  CHECK_FALSE(has_account(failure));
  CHECK(account_of(failure, {}) == SignalAccount());
  CHECK_FALSE(has_account(killed(SIGTERM)));
  failure.status = Exited{1};
  CHECK(account_of(failure, {}) == SignalAccount());
}

TEST_CASE("the advice after a crash says where the core dump is, or why there is none") {
  const auto advice = [](bool core_dumped, const SignalFacts& facts) {
    return diagnosis_with(killed(SIGSEGV, core_dumped), facts).advice;
  };
  CHECK_THAT(advice(false, {.core_pattern = "core", .forbids_core_files = true}),
             StartsWith("no core dump: the limit is 0 (ulimit -c unlimited); --wrap "));
  CHECK_THAT(advice(false, {.core_pattern = "|/x/apport", .forbids_core_files = true}),
             StartsWith("no core dump was written; "));
  CHECK_THAT(advice(true, {.core_pattern = "|/usr/lib/systemd/systemd-coredump"}),
             StartsWith("core dump: coredumpctl debug 77 on gpu1; "));
  CHECK_THAT(advice(true, {.core_pattern = "|/usr/share/apport/apport"}),
             StartsWith("core dump: given to apport on gpu1; "));
  CHECK_THAT(advice(true, {.core_pattern = "/cores/core.%p"}),
             StartsWith("core dump: /cores/core.%p on gpu1; "));
  CHECK_THAT(advice(true, {.core_pattern = "core"}),
             StartsWith("core dump: core in its working directory on gpu1; "));
  CHECK_THAT(advice(true, {}), StartsWith("core dump: see kernel.core_pattern on gpu1; "));
}

TEST_CASE("a Python program without a stack is advised to print one") {
  const std::string advice = "PYTHONFAULTHANDLER=1 shows the Python stack";
  Failure failure = killed(SIGSEGV);
  failure.program = "/x/train.py";
  CHECK_THAT(account_of(failure, {}).advice, StartsWith(advice));
  failure.program = "/usr/bin/python3.11";
  CHECK_THAT(account_of(failure, {}).advice, StartsWith(advice));
  failure.stderr_tail = {"Fatal Python error: Segmentation fault", ""};
  CHECK_THAT(account_of(failure, {}).advice, !ContainsSubstring(advice));
  CHECK_THAT(account_of(killed(SIGSEGV), {}).advice, !ContainsSubstring(advice));
}

TEST_CASE("a SIGBUS with a full /dev/shm is a lack of memory") {
  const Diagnosis full = diagnosis_with(
      killed(SIGBUS), {.shared_memory = SignalFacts::Memory{.size_bytes = 64 << 20}});
  CHECK(full.fault == FaultClass::HostMemory);
  CHECK(full.summary == "rank 3 got SIGBUS, and /dev/shm is full on gpu1 (64 MiB)");
  CHECK_THAT(full.advice, ContainsSubstring("--shm-size"));
  const Diagnosis other = diagnosis_with(
      killed(SIGBUS),
      {.shared_memory = SignalFacts::Memory{.size_bytes = 64 << 20, .free_bytes = 63 << 20}});
  CHECK(other.fault == FaultClass::Hardware);
  CHECK_THAT(other.advice, ContainsSubstring("/dev/shm has 63 MiB of 64 MiB free now"));
}

TEST_CASE("an abort has a cause only if stderr shows none") {
  CHECK(diagnosis_with(killed(SIGABRT), {}).summary ==
        "rank 3 was aborted, and its stderr does not show the reason");
  Failure explained = killed(SIGABRT);
  explained.stderr_tail = {"terminate called after throwing an instance of 'E'", "  what():  x"};
  const Diagnosis found = diagnosis_with(explained, {});
  CHECK_FALSE(found.adds_to_headline);
  CHECK_THAT(found.advice, StartsWith("see the last lines of its stderr; no core dump"));
}

TEST_CASE("an injected SIGKILL is not blamed on others") {
  Failure failure = killed(SIGKILL);
  failure.injected = "kill:rank=3@1s";
  const Diagnosis found = diagnosis_with(failure, {.counts_oom_kills = true});
  CHECK(found.summary == "rank 3: signal 9 (SIGKILL, killed)");
  CHECK_FALSE(found.adds_to_headline);
}

TEST_CASE("accounts are short, survive their text, and are no part of the shown traceback") {
  for (const int signal : {SIGKILL, SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE}) {
    Failure failure = killed(signal);
    failure.program = "train.py";
    for (const std::uint64_t free : {std::uint64_t{0}, std::uint64_t{1} << 40}) {
      const SignalFacts facts{.counts_oom_kills = free > 0,
                              .processor_seconds = 86400,
                              .core_pattern = "core",
                              .forbids_core_files = true,
                              .shared_memory = SignalFacts::Memory{
                                  .size_bytes = std::uint64_t{1} << 40, .free_bytes = free}};
      const SignalAccount account = account_of(failure, facts);
      CAPTURE(account.cause, account.advice);
      CHECK(account.cause.size() <= kDiagnosisLineBytes);
      CHECK(account.advice.size() <= kDiagnosisLineBytes);
      CHECK(read_account(text_of(account)) == account);
      const std::string traceback =
          with_kernel_log(with_signal_account("Traceback\n", text_of(account)), {"NVRM: Xid 79"});
      CHECK(parts_of(traceback).account == text_of(account));
      CHECK_THAT(shown_traceback(traceback), StartsWith("Traceback\n---") &&
                                                 ContainsSubstring("NVRM: Xid 79") &&
                                                 !ContainsSubstring("advice: "));
      CHECK(shown_traceback(with_signal_account("", text_of(account))).empty());
    }
  }
  CHECK(read_account("cause \nother: x\n") == SignalAccount());
  CHECK(shown_traceback("as it is") == "as it is");
}

}  // namespace drun::agent
