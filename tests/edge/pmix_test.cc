#include "launcher/engines/pmix.h"

#include <cstdlib>

#include "tests/support/catch.h"
#include "tests/support/places.h"

namespace drun::engines {
namespace {

using namespace std::chrono_literals;

const std::string kLibrary = testing::built("standin/libpmix_standin.so");

Result<Met> meet(const char* deed, const std::optional<std::string>& told = std::nullopt,
                 std::chrono::milliseconds limit = 20s) {
  setenv("DRUN_TEST_PMIX", deed, 1);
  return meet_by_pmix(told, limit, kLibrary);
}

}  // namespace

TEST_CASE("over PMIx rank 0 puts its text, and every rank gets it with the number of all") {
  const Result<Met> first = meet("job", "gpu7/xyz");
  REQUIRE(first);
  CHECK(first->told == "gpu7/xyz");
  CHECK(first->processes == 3);
  const Result<Met> other = meet("job");
  REQUIRE(other);
  CHECK(other->told == "gpu0/abc");
  CHECK(meet("sizeless")->processes == 0);
}

TEST_CASE("what PMIx refuses, cannot tell or never answers is said") {
  CHECK(meet("refuses").error() == Error{ErrorCode::Unreachable, "PMIx_Init: UNREACHABLE"});
  CHECK_THAT(meet("number").error().message, ContainsSubstring("no text"));
  CHECK_THAT(meet("crashes").error().message, ContainsSubstring("crashed"));
  CHECK(meet("hangs", std::nullopt, 50ms).error().code == ErrorCode::Timeout);
  const Result<Met> without = meet_by_pmix(std::nullopt, 20s, "libdrun-none.so");
  CHECK(without.error().code == ErrorCode::Unreachable);
  CHECK_THAT(without.error().message, ContainsSubstring("libdrun-none.so"));
}

}  // namespace drun::engines
