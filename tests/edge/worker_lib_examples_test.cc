#include "tests/support/catch.h"
#include "tests/support/machine.h"
#include "tests/support/places.h"
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
                            testing::built("examples/" + std::string(name)));
}

}  // namespace

TEST_CASE("the p2p example reaches every rank and gets every answer") {
  const std::string said = said_by_all(run_example("p2p", 4));
  CHECK_THAT(said, ContainsSubstring("rank 3 of 4 got 30 from rank 0\n"));
  CHECK_THAT(said, ContainsSubstring("rank 0 of 4 got 11 21 31 back\n"));
}

TEST_CASE("the all_reduce example finds that all sums are exact") {
  CHECK_THAT(said_by_all(run_example("all_reduce", 3)),
             ContainsSubstring("3 ranks: 1000003 numbers summed, all exact\n"));
}

TEST_CASE("the collectives example finds that every result is right") {
  const int size = GENERATE(1, 4);
  CHECK_THAT(said_by_all(run_example("collectives", size)),
             ContainsSubstring(std::to_string(size) +
                               " ranks, 22 operations, every result as it should be\n"));
}

TEST_CASE("the groups example reaches the ranks of each group and no others") {
  const std::string said = said_by_all(run_example("groups", 4));
  CHECK_THAT(said, ContainsSubstring("even ranks add up to 2\n"));
  CHECK_THAT(said, ContainsSubstring("team 0 has ranks 3 0\n"));
  CHECK_THAT(said, ContainsSubstring("team 1 has ranks 1\n"));
  CHECK_THAT(said, ContainsSubstring("rank 1 at dp=0 tp=1: row sum 1, column sum 4\n"));
  CHECK_THAT(said, ContainsSubstring("rank 2 at dp=1 tp=0: row sum 5, column sum 2\n"));
}

TEST_CASE("the own_backend example registers a backend and uses it") {
  const std::string said = said_by_all(run_example("own_backend", 3));
  CHECK_THAT(said, ContainsSubstring("3 ranks over \"notes\": sum 6, from the last rank 2\n"));
  CHECK_THAT(said, ContainsSubstring("reduce is refused: notes does not do reduce"));
}

TEST_CASE("the spawn example starts its ranks itself") {
  if (test::kHasThreadSanitizer) {
    WARN("skipped: spawn refuses to fork beside the thread that the thread sanitizer starts");
    return;
  }
  CHECK_THAT(said_by_all(run_example("spawn", 1)),
             ContainsSubstring("4 ranks threw 4000000 points: pi is about 3.14\n"));
}

TEST_CASE("the train example learns, with the same result on every rank as in one process") {
  const int size = GENERATE(1, 3);
  const std::string said = said_by_all(run_example("train", size));
  CHECK_THAT(said, ContainsSubstring(std::to_string(size) +
                                     " ranks, 100 steps, 1200 samples: accuracy 99.9 %"));
  CHECK_THAT(said, ContainsSubstring("all ranks have identical weights"));
}

}  // namespace drun
