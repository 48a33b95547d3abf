#include "launcher/engines/pmi.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/places.h"

namespace drun::engines {
namespace {

using namespace std::chrono_literals;

const std::string kLibrary = testing::built("standin/libpmix_standin.so");

Result<MeetingResult> meet(const char* action,
                           const std::optional<std::string>& told = std::nullopt,
                           std::chrono::milliseconds limit = 20s) {
  setenv("DRUN_TEST_PMIX", action, 1);
  return meet_by_pmix(told, limit, kLibrary);
}

bool skips() {
  if (has_pmix()) return false;
  WARN("skipped: drun was built without libpmix-dev");
  return true;
}

}  // namespace

TEST_CASE("over PMIx rank 0 publishes its text, and every rank gets it with the process count") {
  if (skips()) return;
  const Result<MeetingResult> first = meet("job", "gpu7/xyz");
  REQUIRE(first);
  CHECK(first->text == "gpu7/xyz");
  CHECK(first->processes == 3);
  const Result<MeetingResult> other = meet("job");
  REQUIRE(other);
  CHECK(other->text == "gpu0/abc");
  CHECK(meet("sizeless")->processes == 0);
}

TEST_CASE("a PMIx that refuses, has no text or never answers is an error with the reason") {
  if (skips()) return;
  CHECK(meet("refuses").error() == Error{ErrorCode::Unreachable, "PMIx_Init: UNREACHABLE"});
  CHECK_THAT(meet("number").error().message, ContainsSubstring("no text"));
  CHECK_THAT(meet("crashes").error().message, ContainsSubstring("crashed"));
  CHECK(meet("hangs", std::nullopt, 50ms).error().code == ErrorCode::Timeout);
  const Result<MeetingResult> without = meet_by_pmix(std::nullopt, 20s, "libdrun-none.so");
  CHECK(without.error().code == ErrorCode::Unreachable);
  CHECK_THAT(without.error().message, ContainsSubstring("libdrun-none.so"));
}

TEST_CASE("the process that uses PMIx ends with the one that started it") {
  if (skips()) return;
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t asker = fork();
  if (asker == 0) {
    close(ends[0]);
    setenv("DRUN_TEST_PMIX_FD", std::to_string(ends[1]).c_str(), 1);
    meet("hangs", std::nullopt, 100s).has_value();
    _exit(0);
  }
  REQUIRE(asker > 0);
  close(ends[1]);
  const auto read_within = [&ends](std::chrono::milliseconds limit) {
    pollfd one{.fd = ends[0], .events = POLLIN, .revents = 0};
    char byte = 0;
    if (poll(&one, 1, static_cast<int>(limit.count())) <= 0) return ssize_t{-1};
    return read(ends[0], &byte, 1);
  };
  CHECK(read_within(20s) == 1);  // it waits for other ranks
  REQUIRE(kill(asker, SIGKILL) == 0);
  REQUIRE(waitpid(asker, nullptr, 0) == asker);
  CHECK(read_within(20s) == 0);  // both processes have closed their ends
  close(ends[0]);
}

}  // namespace drun::engines
