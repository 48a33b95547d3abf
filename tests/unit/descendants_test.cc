#include "agent/process/descendants.h"

#include <unistd.h>

#include <csignal>
#include <string>

#include "tests/support/catch.h"

namespace drun::agent {

TEST_CASE("a stat line is parsed for any process name") {
  const std::string name = GENERATE("bash", "a b", "x) S 1 1 (y", "((", "))", "tab\there", "");
  ProcessStat stat;
  REQUIRE(parse_stat("4242 (" + name + ") T 17 4200 4200 0 -1 4194560 101", stat));
  CHECK(stat == ProcessStat{.pid = 4242, .state = 'T', .parent = 17, .group = 4200});
}

TEST_CASE("a process whose parent is in another pid namespace has parent 0") {
  ProcessStat stat;
  CHECK(parse_stat("1 (init) S 0 1 1 0 -1 4194560", stat));
  CHECK(stat.parent == 0);
}

TEST_CASE("an invalid stat line is rejected and leaves the output unchanged") {
  const std::string text =
      GENERATE("", "12", "12 (x", "12 (x)", "12 (x) S", "12 (x) S a 3", "(x) S 1 2", "-3 (x) S 1 2",
               "12 (x) S -1 2", "99999999999 (x) S 1 2");
  ProcessStat stat{.pid = 7};
  CHECK_FALSE(parse_stat(text, stat));
  CHECK(stat == ProcessStat{.pid = 7});
}

TEST_CASE("the signals that a process handles are parsed from its status file") {
  const std::string status =
      "Name:\tx\nSigIgn:\t0000000000001000\nSigCgt:\t0000000180004202\nCapInh:\t0\n";
  for (const int signal : {2, 10, 15, 32, 33}) CHECK(parse_handles(status, signal));
  for (const int signal : {-1, 0, 1, 9, 13, 31, 64, 65, 1000})
    CHECK_FALSE(parse_handles(status, signal));
  for (const char* other : {"", "SigCgt:\t0000000000000202", "\nSigCgt:\t", "\nSigCgt:\tx"})
    CHECK_FALSE(parse_handles(other, 2));
}

TEST_CASE("the signals that a live process handles are detected") {
  REQUIRE(std::signal(SIGUSR2, [](int) {}) != SIG_ERR);
  CHECK(handles_signal(getpid(), SIGUSR2));
  REQUIRE(std::signal(SIGUSR2, SIG_DFL) != SIG_ERR);
  CHECK_FALSE(handles_signal(getpid(), SIGUSR2));
  CHECK_FALSE(handles_signal(0, SIGUSR2));
}

}  // namespace drun::agent
