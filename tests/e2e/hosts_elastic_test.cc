// Tests --nnodes=MIN:MAX with real sshds: hosts that are unreachable, and hosts that are lost.
#include <csignal>

#include "tests/support/catch.h"
#include "tests/support/plain_ssh.h"
#include "tests/support/ssh_hosts.h"

namespace drun::testing {
namespace {

// Prints the rank and world size; exits once the file `go` exists.
Words told(const SshHosts& hosts) {
  return {"sh", "-c",
          "echo $RANK of $WORLD_SIZE; until [ -e " + hosts.directory().file("go") +
              " ]; do sleep 0.05; done; echo $RANK done"};
}

bool prints(Running& job, const std::string& text, std::chrono::milliseconds at_most = 40s) {
  return eventually([&] { return job.out().find(text) != std::string::npos; }, at_most);
}

}  // namespace

TEST_CASE("a host that cannot be reached is reported and left out of an elastic job",
          "[namespaces]") {
  SshHosts hosts;
  if (!is_there(hosts)) return;
  const int missing = GENERATE(0, 2);
  hosts.stop_sshd(missing);
  write_file(hosts.directory().file("go"), "");
  const std::string name = "node" + std::to_string(missing + 1);
  const Ended ended = hosts.run({"--hosts=node[1-3]", "--nnodes=2:3"}, told(hosts));
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.err, ContainsSubstring(name + " is left out: ssh: connect to host " + name +
                                          " port 22: Connection refused"));
  CHECK_THAT(ended.out, ContainsSubstring("0 of 2\n") && ContainsSubstring("1 done\n"));

  const Ended all = hosts.run({"--hosts=node[1-3]", "--nnodes=3:3"}, told(hosts));
  CHECK(all.code == 120);
  const Ended most = hosts.run({"--hosts=node[1-3]", "--nnodes=3"}, told(hosts));
  CHECK(most.code == 120);
  CHECK(eventually([&] { return hosts.are_empty(); }));
}

TEST_CASE("an elastic job continues when the cable of any of its hosts is cut", "[namespaces]") {
  const int cut = GENERATE(0, 1);
  SshHosts hosts;
  if (!is_there(hosts)) return;
  const std::string marker = "DRUN_HOSTS_TEST=" + hosts.directory().path();
  Running job(hosts.launch({"--hosts=node[1-3]", "--nnodes=2:3", "--max-restarts=3",
                            "--heartbeat-timeout=2", "--min-uptime=1", "-x", marker},
                           told(hosts)));
  REQUIRE(prints(job, "2 of 3\n"));
  hosts.cut_cable(cut);
  INFO(job.out() << job.err());
  REQUIRE(prints(job, "1 of 2\n"));
  write_file(hosts.directory().file("go"), "");
  const Ended ended = job.wait(90s);
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(eventually([&] { return processes_with(marker).empty(); }, 90s));
}

TEST_CASE("a spare host takes the place of a lost one", "[namespaces]") {
  SshHosts hosts;
  if (!is_there(hosts)) return;
  Running job(hosts.launch({"--hosts=node[1-3]", "--nnodes=2:2", "--max-restarts=3"}, told(hosts)));
  const Ended refused = job.wait(30s);
  CHECK(refused.code == 2);  // a fixed number of nodes requires exactly that many hosts

  Running elastic(hosts.launch({"--hosts=node[1-3]", "--nnodes=1:2", "--max-restarts=3",
                                "--heartbeat-timeout=2", "--min-uptime=1"},
                               told(hosts)));
  REQUIRE(prints(elastic, "1 of 2\n"));
  const bool has_third = elastic.out().find("[node3:") != std::string::npos;
  const int lost = elastic.out().find("[node2:") != std::string::npos ? 1 : 2;
  REQUIRE(has_third == (lost == 2));
  const std::string spare = lost == 1 ? "[node3:" : "[node2:";
  hosts.cut_cable(lost);
  CHECK(prints(elastic, spare));
  write_file(hosts.directory().file("go"), "");
  const Ended ended = elastic.wait(90s);
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
}

TEST_CASE("Ctrl-C ends an elastic job on all hosts") {
  const PlainSsh ssh;
  const std::string marker = "DRUN_HOSTS_TEST=" + ssh.directory().path();
  Running job(ssh.launch("a,b,c", {"--nnodes=1:3", "-x", marker}, "echo up; exec sleep 600"));
  REQUIRE(eventually([&] { return processes_with(marker).size() >= 3; }, 30s));
  REQUIRE(prints(job, "up\n"));
  job.signal(SIGINT);
  const Ended ended = job.wait(30s);
  INFO(ended.err);
  CHECK_FALSE(ended.timed_out);
  CHECK(ended.code == 130);
  CHECK(eventually([&] { return processes_with(marker).empty(); }));
}

}  // namespace drun::testing
