#include "agent/process/kernel_reports.h"

#include "tests/support/catch.h"

namespace drun::agent {

TEST_CASE("a cgroup's out-of-memory kills are counted, not its other events") {
  CHECK(parse_oom_kills("low 0\nhigh 0\nmax 21\noom 4\noom_kill 3\noom_group_kill 0\n") == 3u);
  CHECK(parse_oom_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 12\n") == 12u);
}

TEST_CASE("a missing, truncated or malformed count of out-of-memory kills is ignored") {
  const std::string text = GENERATE("", "oom 4\n", "oom_kill", "oom_kill \n", "oom_kill x\n",
                                    "xoom_kill 3\n", "oom_kill 99999999999999999999999\n");
  CHECK_FALSE(parse_oom_kills(text));
}

TEST_CASE("the kernel's out-of-memory message names the killed process") {
  const std::string record = GENERATE(
      "Memory cgroup out of memory: Killed process 4711 (python3) "
      "total-vm:2097152kB, "
      "anon-rss:1048576kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:2100kB oom_score_adj:0",
      "Out of memory: Killed process 4711 (a (b) c) total-vm:1kB, anon-rss:1kB",
      "Killed process 4711 (python) total-vm:16kB, anon-rss:4kB, file-rss:0kB");
  CHECK(parse_oom_victim(record) == 4711);
}

TEST_CASE("other kernel messages name no killed process") {
  const std::string record =
      GENERATE("", "oom_reaper: reaped process 4711 (python3), now anon-rss:0kB",
               "Out of memory: Kill process 4711 (python) score 900 or sacrifice child",
               "systemd[1]: Killed process 4711", "Out of memory: Killed process x");
  CHECK_FALSE(parse_oom_victim(record));
}

TEST_CASE("the memory event files are those of the process's cgroup, and then of its parents") {
  using Files = std::vector<std::string>;
  CHECK(oom_files("0::/user.slice/session-1.scope\n") ==
        Files{"/sys/fs/cgroup/user.slice/session-1.scope/memory.events",
              "/sys/fs/cgroup/user.slice/memory.events", "/sys/fs/cgroup/memory.events"});
  CHECK(oom_files("0::/\n") == Files{"/sys/fs/cgroup/memory.events"});
  CHECK(oom_files("9:name=systemd:/\n4:cpu,memory:/job/7\n0::/x\n") ==
        Files{"/sys/fs/cgroup/x/memory.events", "/sys/fs/cgroup/memory.events",
              "/sys/fs/cgroup/memory/job/7/memory.oom_control",
              "/sys/fs/cgroup/memory/job/memory.oom_control",
              "/sys/fs/cgroup/memory/memory.oom_control"});
  CHECK(oom_files("nonsense\n1:\n2:memory:relative\n") == Files{});
}

}  // namespace drun::agent
