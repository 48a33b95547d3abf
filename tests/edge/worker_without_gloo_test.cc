#include "drun/process_group.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace drun {

TEST_CASE("without Gloo several ranks are rejected with a remedy, and one rank works") {
  const test::StoreProcess store;
  const int size = GENERATE(1, 2);
  const auto ends = test::run_ranks({.size = size, .port = store.port()},
                                    [](int, const test::Say&) { init_process_group().barrier(); });
  for (const test::RankEnd& end : ends) {
    CHECK(end.exit_code == (size == 1 ? 0 : 1));
    if (size > 1) CHECK_THAT(end.said, ContainsSubstring("install libgloo-dev"));
  }
}

}  // namespace drun
