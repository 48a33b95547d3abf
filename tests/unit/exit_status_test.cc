#include "agent/spawn/spawn.h"

#include <csignal>

#include "tests/support/catch.h"

namespace drun {

TEST_CASE("every exit code is the one that a shell would show") {
  for (int code = 0; code < 256; ++code) {
    const ExitStatus status = agent::decode({.how = CLD_EXITED, .status = code});
    CHECK(exit_code(status) == code);
    CHECK(is_success(status) == (code == 0));
  }
}

TEST_CASE("signal n has exit code 128 + n, has a name and is not a success") {
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    const ExitStatus status = agent::decode({.how = CLD_KILLED, .status = signal});
    CHECK(exit_code(status) == 128 + signal);
    CHECK_FALSE(is_success(status));
    CHECK_THAT(to_string(status), ContainsSubstring(signal_name(signal)));
  }
  CHECK(to_string(agent::decode({.how = CLD_DUMPED, .status = SIGSEGV})) ==
        "signal 11 (SIGSEGV, segmentation fault), core dumped");
  CHECK(signal_name(SIGTERM) == "SIGTERM");
}

TEST_CASE("a program that could not be executed has exit code 127 if it is missing, else 126") {
  CHECK(exit_code(NotStarted{ENOENT}) == 127);
  CHECK(exit_code(NotStarted{EACCES}) == 126);
  CHECK(to_string(ExitStatus(NotStarted{ENOENT})) == "not started: no such file or directory");
  CHECK(to_string(ExitStatus(NotStarted{EIO})) == "not started");  // its message has the reason
}

}  // namespace drun
