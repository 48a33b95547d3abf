#include "drun/process_group.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace drun {

TEST_CASE("without Gloo its backend is rejected with a remedy, and the default one works") {
  const test::StoreProcess store;
  const bool is_gloo = GENERATE(false, true);
  const auto ends = test::run_ranks({.size = 2, .port = store.port()}, [&](int, const test::Say&) {
    InitOptions options;
    if (is_gloo) options.backend = "gloo";
    init_process_group(options).barrier();
  });
  for (const test::RankEnd& end : ends) {
    CHECK(end.exit_code == (is_gloo ? 1 : 0));
    if (is_gloo) CHECK_THAT(end.said, ContainsSubstring("install libgloo-dev"));
  }
}

}  // namespace drun
