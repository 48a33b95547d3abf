#include "launcher/report/report.h"

#include <cerrno>
#include <csignal>

#include "tests/support/catch.h"

namespace drun {
namespace {

Outcome ended_by(Ending ending) {
  Outcome outcome;
  outcome.ending = std::move(ending);
  return outcome;
}

Outcome failed_with(ExitStatus status) {
  Failure root;
  root.status = status;
  Failure other;
  other.status = Exited{99};
  return ended_by(WorkersFailed{{root, other}});
}

}  // namespace

TEST_CASE("only success has exit code 0") {
  for (const ExitCodeStyle style : {ExitCodeStyle::Drun, ExitCodeStyle::Torchrun}) {
    CHECK(exit_code(ended_by(Succeeded{}), style) == 0);
    CHECK(exit_code(ended_by(WorkersFailed{}), style) != 0);
    CHECK(exit_code(failed_with(Exited{0}), style) != 0);
  }
}

TEST_CASE("the exit code of the root cause becomes drun's exit code") {
  for (int code = 1; code < 256; ++code) {
    CHECK(exit_code(failed_with(Exited{code}), ExitCodeStyle::Drun) == code);
    CHECK(exit_code(failed_with(Exited{code}), ExitCodeStyle::Torchrun) == 1);
  }
}

TEST_CASE("signal n of the root cause or sent to drun becomes exit code 128 + n") {
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    CHECK(exit_code(failed_with(Killed{signal, true}), ExitCodeStyle::Drun) == 128 + signal);
    CHECK(exit_code(failed_with(Killed{signal, true}), ExitCodeStyle::Torchrun) == 1);
    CHECK(exit_code(ended_by(Interrupted{signal, 0, "gpu0"}), ExitCodeStyle::Drun) == 128 + signal);
    CHECK(exit_code(ended_by(Interrupted{signal, 0, "gpu0"}), ExitCodeStyle::Torchrun) == 1);
  }
}

TEST_CASE("a program that cannot be executed has exit code 127 or 126") {
  CHECK(exit_code(failed_with(NotStarted{ENOENT}), ExitCodeStyle::Drun) == 127);
  CHECK(exit_code(failed_with(NotStarted{EACCES}), ExitCodeStyle::Drun) == 126);
  CHECK(exit_code(failed_with(NotStarted{ENOEXEC}), ExitCodeStyle::Torchrun) == 1);
}

TEST_CASE("drun's own errors have fixed exit codes") {
  const auto [code, ours, torchruns] = GENERATE(table<ErrorCode, int, int>({
      {ErrorCode::Usage, 2, 2},
      {ErrorCode::Unreachable, 120, 1},
      {ErrorCode::Timeout, 120, 1},
      {ErrorCode::Closed, 121, 1},
      {ErrorCode::Refused, 121, 1},
      {ErrorCode::Spawn, 126, 1},
      {ErrorCode::WorkerFailed, 1, 1},
      {ErrorCode::System, 125, 1},
  }));
  const Error error{code, "x"};
  CHECK(exit_code(error, ExitCodeStyle::Drun) == ours);
  CHECK(exit_code(error, ExitCodeStyle::Torchrun) == torchruns);
  CHECK(exit_code(ended_by(NotRun{error}), ExitCodeStyle::Drun) == ours);
  CHECK(exit_code(ended_by(NotRun{error}), ExitCodeStyle::Torchrun) == torchruns);
  CHECK(exit_code(ended_by(NodeLost{}), ExitCodeStyle::Drun) == 122);
  CHECK(exit_code(ended_by(NodeLost{}), ExitCodeStyle::Torchrun) == 1);
  CHECK(exit_code(ended_by(Preempted{}), ExitCodeStyle::Drun) == 124);
  CHECK(exit_code(ended_by(Preempted{}), ExitCodeStyle::Torchrun) == 1);
}

TEST_CASE("a hung worker has its own exit code") {
  CHECK(exit_code(failed_with(Hung{"silent"}), ExitCodeStyle::Drun) == 123);
  CHECK(exit_code(failed_with(Hung{"silent"}), ExitCodeStyle::Torchrun) == 1);
}

}  // namespace drun
