#include "agent/process/descendants.h"

#include <sys/wait.h>
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

TEST_CASE("a stat line has the times of a process, including children that it has reaped") {
  ProcessStat stat;
  REQUIRE(parse_stat("7 (a b) c) R 1 7 7 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 1 0 8123 9", stat));
  CHECK(stat.cpu_ticks == 127);
  CHECK(stat.started_ticks == 8123);
  REQUIRE(parse_stat("7 (a) R 1 7 7 0 -1 4194560 1 2 3 4 100 x", stat));
  CHECK(stat.cpu_ticks == 100);
  CHECK(stat.started_ticks == 0);
}

TEST_CASE("a status text has the pid, the state and the parent of a process with any name") {
  const std::string name = GENERATE("bash", "a b", "Pid:", "\\nPid:\\t9", "");
  ProcessStat stat;
  REQUIRE(parse_status("Name:\t" + name +
                           "\nUmask:\t0022\nState:\tT (stopped)\nTgid:\t42\nNgid:\t0\nPid:\t42\n"
                           "PPid:\t17\nTracerPid:\t3\n",
                       stat));
  CHECK(stat == ProcessStat{.pid = 42, .state = 'T', .parent = 17});
}

TEST_CASE("an incomplete status text is rejected and leaves the output unchanged") {
  const std::string text =
      GENERATE("", "Name:\tx\nState:\tS\nPid:\t42\n", "Name:\tx\nState:\tS\nPPid:\t1\n",
               "Name:\tx\nPid:\t42\nPPid:\t1\n", "Name:\tx\nState:\tS\nPid:\tx\nPPid:\t1\n");
  ProcessStat stat{.pid = 7};
  CHECK_FALSE(parse_status(text, stat));
  CHECK(stat == ProcessStat{.pid = 7});
}

TEST_CASE("a process began at a time between two looks at the clock") {
  const std::uint64_t before = ticks_since_boot();
  const pid_t child = fork();
  if (child == 0) _exit(0);
  REQUIRE(child > 0);
  const Descendants found;
  REQUIRE(found.all().size() == 1);
  CHECK(found.all().front().started_ticks >= before);
  CHECK(found.all().front().started_ticks <= ticks_since_boot());
  waitpid(child, nullptr, 0);
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
