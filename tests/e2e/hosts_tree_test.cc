// Tests --ssh-tree: hosts that are reached through other hosts.
#include <csignal>
#include <filesystem>

#include "tests/support/catch.h"
#include "tests/support/job_traces.h"
#include "tests/support/plain_ssh.h"
#include "tests/support/ssh_hosts.h"

namespace drun::testing {
TEST_CASE("over a tree lines, files, input and the report are the same as without") {
  const PlainSsh ssh("echo $1 >>logins");
  Launch launch = ssh.launch("h[1-7]", {"--ssh-tree=3", "--stdin=rank0", "--log-dir=logs"},
                             "echo $RANK of $WORLD_SIZE read $(wc -c); echo err $RANK >&2; "
                             "[ $RANK != 6 ] || exit 7; exec sleep 600");
  launch.stdin_text = std::string(500000, 'x');
  const Ended ended = run(launch, 60s);
  INFO(ended.out << ended.err);
  CHECK(ended.code == 7);
  CHECK(count(ended.err, ": rank 6 on node 6 (h7) exited with code 7") == 1);
  CHECK_THAT(ended.out, ContainsSubstring("[h7:6]: 6 of 7 read 0\n"));
  CHECK(count(read_file(ssh.directory().file("logins")), "\n") == 7);
  int files = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(ssh.directory().file("logs")))
    files += entry.path().filename() == "stdout.log" ? 1 : 0;
  CHECK(files > 0);

  launch = ssh.launch("h[1-7]", {"--ssh-tree=3", "--stdin=rank0"}, "echo $RANK read $(wc -c)");
  launch.stdin_text = std::string(500000, 'x');
  const Ended all = run(launch, 60s);
  INFO(all.out << all.err);
  CHECK(all.code == 0);
  CHECK_THAT(all.out, ContainsSubstring("[h1:0]: 0 read 500000\n"));
  for (int rank = 1; rank < 7; ++rank)
    CHECK_THAT(all.out, ContainsSubstring("]: " + std::to_string(rank) + " read 0\n"));
}

TEST_CASE("many lines over a tree arrive whole and in order on the console and in files") {
  const PlainSsh ssh;
  const Ended ended = run(
      ssh.launch("h[1-4]", {"--ssh-tree=2", "--log-dir=logs"}, "seq -f \"$RANK line %.0f\" 20000"),
      60s);
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK(count(ended.out, "\n") == 80000);
  const std::filesystem::directory_iterator entries(ssh.directory().file("logs"));
  const std::string place = entries->path().string() + "/attempt_0/";
  for (const std::string rank : {"0", "1", "2", "3"}) {
    std::string expected;
    for (int i = 1; i <= 20000; ++i) expected += rank + " line " + std::to_string(i) + "\n";
    const bool is_same = read_file(place + rank + "/stdout.log") == expected;
    CHECK(is_same);
  }
}

TEST_CASE("errors of hosts behind other hosts are reported for each host") {
  const PlainSsh ssh(
      "[ $1 != h2 ] || { echo 'h2: no route' >&2; exit 255; }; "
      "[ $1 != h4 ] || { echo 'h4: refused' >&2; exit 255; }");
  const Ended ended = run(ssh.launch("h[1-6]", {"--ssh-tree=2"}, "echo started"), 60s);
  INFO(ended.err);
  CHECK(ended.code == 120);
  CHECK_THAT(ended.err, ContainsSubstring("cannot start on 4 of 6 hosts; nothing was started\n") &&
                            ContainsSubstring("  h2: h2: no route\n") &&
                            ContainsSubstring("  h4: h4: refused\n") &&
                            ContainsSubstring("  h5: behind h4, which is not there\n") &&
                            ContainsSubstring("  h6: behind h4, which is not there\n"));
  CHECK(ended.out.empty());
}

TEST_CASE("a signal to the launcher of a tree ends all processes") {
  const PlainSsh ssh;
  const std::string marker = "DRUN_HOSTS_TEST=" + ssh.directory().path();
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    Running job(ssh.launch("h[1-5]", {"--ssh-tree=2", "-x", marker}, "echo up; exec sleep 600"));
    REQUIRE(eventually([&] { return count(job.out(), "up\n") == 5; }, 30s));
    job.signal(signal);
    const Ended ended = job.wait(30s);
    INFO("signal " << signal << "\n" << ended.err);
    CHECK_FALSE(ended.timed_out);
    CHECK(ended.code == 128 + signal);
    CHECK(eventually([&] { return processes_with(marker).empty(); }, 15s));
  }
}

TEST_CASE("a lost branch is reported with the hosts behind it, and an elastic job continues") {
  const PlainSsh ssh("[ $1 != h4 ] || echo $$ >pid");
  const std::string go = ssh.directory().file("go");
  Running job(
      ssh.launch("h[1-6]", {"--ssh-tree=2", "--nnodes=2:6", "--max-restarts=3"},
                 "echo $RANK of $WORLD_SIZE; until [ -e " + go + " ]; do sleep 0.05; done"));
  REQUIRE(eventually([&] { return count(job.out(), " of 6\n") == 6; }, 30s));
  const std::string pid = read_file(ssh.directory().file("pid"));
  REQUIRE_FALSE(pid.empty());
  kill(std::stoi(pid), SIGKILL);  // the login of h4, which is a relay
  CHECK(eventually([&] { return count(job.out(), " of 3\n") == 3; }, 30s));
  write_file(go, "");
  const Ended ended = job.wait(30s);
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.err, ContainsSubstring(
                            "lost the ssh connection of h4, and with it what is behind: h5, h6"));
}

TEST_CASE("over real ssh hosts are reached through another host", "[namespaces]") {
  const SshHosts hosts;
  if (!is_there(hosts)) return;
  const std::string report = hosts.directory().file("report.json");
  const Ended ended = hosts.run({"--hosts=node[1-3]:2", "--ssh-tree=1", "--report=" + report},
                                {"sh", "-c", "echo $RANK on $(hostname) ${SSH_CONNECTION%% *}"});
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  for (int rank = 0; rank < 6; ++rank) {
    const std::string node = "node" + std::to_string(rank / 2 + 1);
    const std::string from = rank < 2 ? "10.78.0.254" : "10.78.0.1";
    CHECK_THAT(ended.out,
               ContainsSubstring("[" + node + ":" + std::to_string(rank) +
                                 "]: " + std::to_string(rank) + " on " + node + " " + from + "\n"));
  }
  CHECK(nlohmann::json::parse(read_file(report), nullptr, false)["exit_code"] == 0);
  CHECK(eventually([&] { return hosts.are_empty(); }));
}

TEST_CASE("a cut cable inside a tree ends its branch, and only an elastic job continues",
          "[namespaces]") {
  SshHosts hosts;
  if (!is_there(hosts)) return;
  const std::string marker = "DRUN_HOSTS_TEST=" + hosts.directory().path();
  const std::string go = hosts.directory().file("go");
  const bool is_elastic = GENERATE(false, true);
  // node2 is behind node1; node3 is a separate branch.
  Words options = {"--hosts=node1,node2,node3",
                   "--ssh-tree=2",
                   "--heartbeat-timeout=2",
                   "--min-uptime=1",
                   "-x",
                   marker};
  if (is_elastic) options = options + Words{"--nnodes=1:3", "--max-restarts=5"};
  Running job(hosts.launch(
      options,
      {"sh", "-c", "echo $RANK of $WORLD_SIZE; until [ -e " + go + " ]; do sleep 0.05; done"}));
  REQUIRE(eventually([&] { return count(job.out(), " of 3\n") == 3; }, 30s));
  hosts.cut_cable(0);
  if (is_elastic) {
    // node2 still runs, but its output cannot arrive.
    CHECK(eventually([&] { return job.out().find("[node3:1]: 1 of 2\n") != job.out().npos; }, 30s));
    write_file(go, "");
  }
  const Ended ended = job.wait(100s);
  INFO(ended.out << ended.err);
  CHECK(ended.code == (is_elastic ? 0 : 122));
  CHECK(eventually([&] { return processes_with(marker).empty(); }, 100s));
}

}  // namespace drun::testing
