#include "agent/process/descendants.h"

#include "tests/support/catch.h"

namespace drun::agent {

TEST_CASE("a stat line is read whatever the process is called") {
  const std::string name = GENERATE("bash", "a b", "x) S 1 1 (y", "((", "))", "tab\there", "");
  ProcessStat stat;
  REQUIRE(parse_stat("4242 (" + name + ") T 17 4200 4200 0 -1 4194560 101", stat));
  CHECK(stat == ProcessStat{.pid = 4242, .state = 'T', .parent = 17, .group = 4200});
}

TEST_CASE("a process of another pid namespace has parent 0") {
  ProcessStat stat;
  CHECK(parse_stat("1 (init) S 0 1 1 0 -1 4194560", stat));
  CHECK(stat.parent == 0);
}

TEST_CASE("what is no stat line is refused and changes nothing") {
  const std::string text =
      GENERATE("", "12", "12 (x", "12 (x)", "12 (x) S", "12 (x) S a 3", "(x) S 1 2", "-3 (x) S 1 2",
               "12 (x) S -1 2", "99999999999 (x) S 1 2");
  ProcessStat stat{.pid = 7};
  CHECK_FALSE(parse_stat(text, stat));
  CHECK(stat == ProcessStat{.pid = 7});
}

}  // namespace drun::agent
