#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace drun {
namespace {

using test::RankEnd;

std::string said_by_all(const std::vector<RankEnd>& ends) {
  std::string said;
  for (const RankEnd& end : ends) {
    INFO(end.said);
    CHECK(end.exit_code == 0);
    said += end.said;
  }
  return said;
}

std::vector<RankEnd> run_example(const std::string& name, int size) {
  const test::StoreProcess store;
  return test::run_programs({.size = size, .port = store.port()},
                            std::string(DRUN_BIN_DIR) + "/examples/" + name);
}

}  // namespace

TEST_CASE("the p2p example reaches every rank and gets every answer") {
  const std::string said = said_by_all(run_example("p2p", 4));
  CHECK_THAT(said, ContainsSubstring("rank 3 of 4 got 30 from rank 0\n"));
  CHECK_THAT(said, ContainsSubstring("rank 0 of 4 got 11 21 31 back\n"));
}

TEST_CASE("the all_reduce example finds all sums exact") {
  CHECK_THAT(said_by_all(run_example("all_reduce", 3)),
             ContainsSubstring("3 ranks: 1000003 numbers summed, all exact\n"));
}

TEST_CASE("the train example learns, with the same result on every rank as in one process") {
  const int size = GENERATE(1, 3);
  const std::string said = said_by_all(run_example("train", size));
  CHECK_THAT(said, ContainsSubstring(std::to_string(size) +
                                     " ranks, 100 steps, 1200 samples: accuracy 99.9 %"));
  CHECK_THAT(said, ContainsSubstring("all ranks have identical weights"));
}

}  // namespace drun
