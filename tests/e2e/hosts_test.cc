// Runs drun over real sshds on three simulated machines.
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/job_traces.h"
#include "tests/support/places.h"
#include "tests/support/ssh_hosts.h"

namespace drun::testing {
namespace {

Words shell(const std::string& script) { return {"sh", "-c", script}; }

}  // namespace

TEST_CASE("one command runs a job on three hosts over ssh", "[namespaces]") {
  const SshHosts hosts;
  if (!is_there(hosts)) return;
  const std::string who =
      "echo \"$RANK/$WORLD_SIZE on $(hostname) in $PWD: $TEXT; $MASTER_ADDR:$MASTER_PORT\"";
  const std::string place = hosts.directory().path();

  const Ended ended =
      hosts.run({"--hosts=node[1-3]:2", "-x", "TEXT=it's \"a b\" $HOME"}, shell(who));
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(ended.err.empty());
  for (int rank = 0; rank < 6; ++rank) {
    const std::string node = "node" + std::to_string(rank / 2 + 1);
    const std::string number = std::to_string(rank);
    CHECK_THAT(ended.out,
               ContainsSubstring("[" + node + ":" + number + "]: " + number + "/6 on " + node +
                                 " in " + place + ": it's \"a b\" $HOME; 10.78.0.1:"));
  }

  // mpirun's host file syntax. Hosts are filled in order, so the third gets no worker.
  write_file(hosts.directory().file("hosts.txt"), "# ours\nnode2 slots=2\nnode1 slots=1\nnode3\n");
  Launch launch =
      hosts.launch({"--hostfile", "hosts.txt", "-np", "3", "-x", "TEXT", "--fanout=1"}, shell(who));
  launch.environment["TEXT"] = "from here";
  const Ended filled = run(launch, 60s);
  INFO(filled.out << filled.err);
  CHECK(filled.code == 0);
  for (const std::string rank : {"0/3 on node2", "1/3 on node2", "2/3 on node1"})
    CHECK_THAT(filled.out, ContainsSubstring(rank));
  CHECK(count(filled.out, "from here; 10.78.0.2:") == 3);

  const Ended devices = hosts.run({"-H", "node1:4,node2:4", "--include", "node2:1,3"},
                                  shell("echo \"$(hostname) $LOCAL_RANK $CUDA_VISIBLE_DEVICES.\""));
  INFO(devices.err);
  CHECK(devices.code == 0);
  CHECK(count(devices.out, "node2 0 1,3.") == 1);
  CHECK(count(devices.out, "node2 1 1,3.") == 1);
  CHECK(count(devices.out, "\n") == 2);
  CHECK(eventually([&] { return hosts.are_empty(); }));
}

TEST_CASE("a worker's failure on one host sets the exit code and the only report of the job",
          "[namespaces]") {
  const SshHosts hosts;
  if (!is_there(hosts)) return;
  const std::string report = hosts.directory().file("report.json");
  const Ended ended =
      hosts.run({"--hosts=node1,node2,node3", "--report=" + report},
                shell("[ $RANK != 1 ] || { echo why >&2; exit 41; }; exec sleep 600"));
  INFO(ended.out << ended.err);
  CHECK(ended.code == 41);
  CHECK(count(ended.err, ": rank 1 on node 1 (node2) exited with code 41") == 1);
  CHECK_THAT(ended.err, ContainsSubstring("[node2:1]: why\n"));
  const auto json = nlohmann::json::parse(read_file(report), nullptr, false);
  REQUIRE(json.is_object());
  CHECK(json["exit_code"] == 41);
  CHECK(eventually([&] { return hosts.are_empty(); }));
}

TEST_CASE("if hosts cannot start, the errors of all of them are reported and nothing is started",
          "[namespaces]") {
  const TemporaryDirectory shared;
  const std::string program = shared.file("program");
  write_file(program, "#!/bin/sh\n: >" + shared.file("started") + "\n", true);
  SshHosts hosts({"", "mount -t tmpfs none " + shared.path(), ""});
  if (!is_there(hosts)) return;

  const Ended missing = hosts.run({"--hosts=node1,node2,node3"}, {program});
  INFO(missing.err);
  CHECK(missing.code == 127);
  CHECK_THAT(missing.err, ContainsSubstring("cannot start on 1 of 3 hosts; nothing was started\n"
                                            "  node2: " +
                                            program + ": no such file"));

  hosts.forget_key(0);
  hosts.stop_sshd(2);
  const Ended ended = hosts.run({"--hosts=node1,node2,node3,other"}, {program});
  INFO(ended.err);
  CHECK(ended.code == 120);
  CHECK_THAT(
      ended.err,
      ContainsSubstring("cannot start on 4 of 4 hosts; nothing was started\n") &&
          ContainsSubstring("  node1: root@node1: Permission denied (publickey).\n") &&
          ContainsSubstring("  node2: " + program + ": no such file") &&
          ContainsSubstring("  node3: ssh: connect to host node3 port 22: Connection refused\n") &&
          ContainsSubstring("  other: ssh: Could not resolve hostname other"));

  Launch nowhere = hosts.launch({"--hosts=node2"}, {"true"});
  nowhere.directory = shared.path();
  write_file(shared.file("folder"), "");
  CHECK(run(nowhere, 60s).code == 0);
  const Ended no_program = hosts.run({"--hosts=node2", "--ssh=/nowhere/ssh"}, {"true"});
  CHECK(no_program.code == 127);
  CHECK_THAT(no_program.err, ContainsSubstring("node2: cannot start /nowhere/ssh"));
  CHECK(read_file(shared.file("started")).empty());
  CHECK(eventually([&] { return hosts.are_empty(); }));
}

TEST_CASE("a host without drun or without the directory is named", "[namespaces]") {
  const TemporaryDirectory shared;
  SshHosts hosts({"", "mount -t tmpfs none " + built(""), "mount -t tmpfs none " + shared.path()});
  if (!is_there(hosts)) return;
  const std::string folder = shared.file("work");
  REQUIRE(run(Launch{.argv = {"mkdir", folder}}).code == 0);
  Launch launch = hosts.launch({"--hosts=node1,node2,node3", "--no-copy"}, {"true"});
  launch.directory = folder;
  const Ended ended = run(launch, 60s);
  INFO(ended.err);
  CHECK(ended.code == 127);
  CHECK_THAT(ended.err,
             ContainsSubstring("  node2: drun: not found at " + drun_program() + " or on PATH") &&
                 ContainsSubstring("  node3: no folder " + folder));
  CHECK(eventually([&] { return hosts.are_empty(); }));
}

#ifndef __SANITIZE_ADDRESS__  // the sanitizers' drun has 140 MiB
TEST_CASE("a host without drun gets a copy over the same login", "[namespaces]") {
  const std::string without = "mount -t tmpfs none " + built("") +
                              " && mkdir -p ~root/.cache && mount -t tmpfs none ~root/.cache";
  const SshHosts hosts({"", without, without});
  if (!is_there(hosts)) return;
  for (const int copies : {2, 0}) {
    const Ended ended = hosts.run({"--hosts=node[1-3]"}, shell("echo rank $RANK"));
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
    CHECK(count(ended.out, "rank ") == 3);
    CHECK(count(ended.err, " to this host, which has no drun\n") == copies);
  }
  CHECK(eventually([&] { return hosts.are_empty(); }));
}
#endif

TEST_CASE("a signal to the launcher ends the job on every host", "[namespaces]") {
  const SshHosts hosts;
  if (!is_there(hosts)) return;
  // The worker of rank 1 has a child in a new session.
  const std::string script = "[ $RANK != 1 ] || setsid sleep 600 & echo up; exec sleep 600";
  const auto start = [&] {
    auto job = std::make_unique<Running>(hosts.launch({"--hosts=node[1-3]"}, shell(script)));
    REQUIRE(eventually([&] { return count(job->out(), "up\n") == 3; }, 30s));
    CHECK(hosts.left_on(1).size() >= 4);
    return job;
  };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGKILL}) {
    const auto job = start();
    job->signal(signal);
    const Ended ended = job->wait(30s);
    INFO("signal " << signal << "\n" << ended.err);
    CHECK_FALSE(ended.timed_out);
    CHECK(ended.code == 128 + signal);
    CHECK(eventually([&] { return hosts.are_empty(); }, 15s));
  }
}

TEST_CASE("a second Ctrl-C kills workers that ignore the first, on all hosts", "[namespaces]") {
  const SshHosts hosts;
  if (!is_there(hosts)) return;
  Running job(hosts.launch({"--hosts=node[1-3]"}, shell("trap 'echo heard' INT TERM; echo up; "
                                                        "while :; do sleep 600 & wait; done")));
  REQUIRE(eventually([&] { return count(job.out(), "up\n") == 3; }, 30s));
  job.signal(SIGINT);
  REQUIRE(eventually([&] { return count(job.out(), "heard\n") == 3; }, 30s));
  const auto begun = std::chrono::steady_clock::now();
  REQUIRE(eventually([&] { return std::chrono::steady_clock::now() - begun > 250ms; }));
  job.signal(SIGINT);
  const Ended ended = job.wait(20s);
  INFO(ended.err);
  CHECK(ended.code == 130);
  CHECK(eventually([&] { return hosts.are_empty(); }, 15s));
}

TEST_CASE("a host whose cable is cut is lost, and no process of the job remains there",
          "[namespaces]") {
  SshHosts hosts;
  if (!is_there(hosts)) return;
  const std::string marker = "DRUN_HOSTS_TEST=" + hosts.directory().path();
  Running job(hosts.launch({"--hosts=node[1-3]", "--heartbeat-timeout=2", "-x", marker},
                           shell("echo up; exec sleep 600")));
  REQUIRE(eventually([&] { return count(job.out(), "up\n") == 3; }, 30s));
  REQUIRE(processes_with(marker).size() == 3);
  hosts.cut_cable(1);
  const Ended ended = job.wait(40s);
  INFO(ended.err);
  CHECK(ended.code == 122);
  CHECK(count(ended.err, " s: lost node 1 (node2)") == 1);
  CHECK(eventually([&] { return processes_with(marker).empty(); }, 15s));
}

TEST_CASE("lines of all hosts arrive whole and in each worker's order", "[namespaces]") {
  const SshHosts hosts;
  if (!is_there(hosts)) return;
  constexpr int kLines = 20000;
  const Ended ended = hosts.run(
      {"--hosts=node[1-3]:2"},
      shell("seq -f \"$RANK line %.0f of a text that is as long as lines are, about this much\" " +
            std::to_string(kLines)));
  CHECK(ended.code == 0);
  CHECK(ended.err.empty());
  std::map<int, int> last;
  std::istringstream lines(ended.out);
  int wrong = 0;
  for (std::string line; std::getline(lines, line);) {
    const int rank = line.size() > 7 ? line[7] - '0' : -1;
    const std::string expected = "[node" + std::to_string(rank / 2 + 1) + ":" +
                                 std::to_string(rank) + "]: " + std::to_string(rank) + " line " +
                                 std::to_string(++last[rank]) +
                                 " of a text that is as long as lines are, about this much";
    if (line != expected && ++wrong < 5) FAIL_CHECK("\"" << line << "\" is not " << expected);
  }
  CHECK(wrong == 0);
  CHECK(last.size() == 6);
  for (const auto& [rank, number] : last) CHECK(number == kLines);
}

TEST_CASE("a reader that pauses at the end of a job gets all lines, and the job succeeds",
          "[namespaces]") {
  const SshHosts hosts;
  if (!is_there(hosts)) return;
  constexpr int kLines = 6000;  // 600 KB fit in the buffers of ssh and its connection
  const std::string print = " || head -c 600000 /dev/zero | tr '\\0' x | fold -w 100";
  // The ssh of the silent rank ends at once, and the reader pauses for longer than the launcher
  // then waits for the others.
  const auto job = [&](const std::string& silent) {
    Launch launch =
        hosts.launch({"--hosts=node[1-3]"}, shell("[ $RANK = " + silent + " ]" + print));
    launch.argv =
        Words{"sh", "-c", "{ \"$@\"; echo code $?; } | { sleep 14; exec cat >all" + silent + "; }",
              "sh"} +
        launch.argv;
    return launch;
  };
  Running first(job("0"));
  Running second(job("1"));
  CHECK(first.wait(60s).err.empty());
  CHECK(second.wait(60s).err.empty());
  for (const std::string silent : {"0", "1"}) {
    const std::string all = read_file(hosts.directory().file("all" + silent));
    CHECK(count(all, "]: xx") == 2 * kLines);
    CHECK(count(all, "code 0\n") == 1);
  }
}

TEST_CASE("login messages are harmless, and the end of an ssh is the end of its host") {
  const TemporaryDirectory directory;
  const std::string ssh = directory.file("ssh");
  // In place of ssh. Its last two arguments are the host and the command.
  write_file(ssh,
             "#!/bin/sh\nwhile [ $# -gt 2 ]; do shift; done\necho Welcome to $1\necho beware >&2\n"
             "[ $1 = a ] || exec sh -c \"$2\"\nexec 3<&0\nsh -c \"$2\" <&3 3<&- &\n"
             "while kill -0 $! && [ ! -e " +
                 directory.file("cut") + " ]; do sleep 0.05; done 2>&-\n[ ! -e " +
                 directory.file("cut") + " ] || exit 255\nwait $!\n",
             true);
  const std::string marker = "DRUN_HOSTS_TEST=" + directory.path();
  const auto launch = [&](const std::string& script) {
    return shell_job({"--ssh=" + ssh, "--hosts=a,b", "--master-addr=127.0.0.1",
                      "--master-port=" + std::to_string(free_port()), "-x", marker},
                     script);
  };
  const Ended greeted = run(launch("echo $RANK of $WORLD_SIZE"));
  INFO(greeted.out << greeted.err);
  CHECK(greeted.code == 0);
  CHECK_THAT(greeted.out, ContainsSubstring("[a:0]: 0 of 2\n") &&
                              ContainsSubstring("[b:1]: 1 of 2\n") &&
                              !ContainsSubstring("Welcome"));
  for (const char* line : {"a: Welcome to a\n", "a: beware\n", "b: Welcome to b\n", "b: beware\n"})
    CHECK(count(greeted.err, line) == 1);

  Running job(launch("echo up; exec sleep 600"));
  REQUIRE(eventually([&] { return count(job.out(), "up\n") == 2; }));
  write_file(directory.file("cut"), "");
  const Ended cut = job.wait(30s);
  INFO(cut.err);
  CHECK(cut.code == 122);
  CHECK_THAT(cut.err, ContainsSubstring("lost a, which led the job: its ssh connection ended"));
  CHECK(eventually([&] { return processes_with(marker).empty(); }));
}

TEST_CASE("a program is found in the PATH of its host") {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory.file("bin"));
  write_file(directory.file("bin/only_there"), "#!/bin/sh\necho rank $RANK of $WORLD_SIZE\n", true);
  const std::string ssh = directory.file("ssh");
  write_file(ssh,
             "#!/bin/sh\nwhile [ $# -gt 2 ]; do shift; done\n[ $1 = a ] || PATH=" +
                 directory.file("bin") + ":$PATH\nexport PATH\nexec sh -c \"$2\"\n",
             true);
  const Ended there = run(job({"--ssh=" + ssh, "--hosts=b"}, {"only_there"}));
  INFO(there.err);
  CHECK(there.code == 0);
  CHECK(there.out == "[b:0]: rank 0 of 1\n");
  const Ended missing = run(job({"--ssh=" + ssh, "--hosts=a,b"}, {"only_there"}));
  CHECK(missing.code == 127);
  CHECK_THAT(missing.err, ContainsSubstring("cannot start on 1 of 2 hosts; nothing was started") &&
                              ContainsSubstring("  a: only_there is not on PATH"));
}

TEST_CASE("a host that sends malformed facts is named, and nothing is started") {
  const TemporaryDirectory directory;
  const std::string ssh = directory.file("ssh");
  // Host b answers in place of an agent.
  write_file(ssh,
             "#!/bin/sh\nwhile [ $# -gt 2 ]; do shift; done\n[ $1 = b ] || exec sh -c \"$2\"\n"
             "read -r line\nline=${line#*\\\"}\n"
             "printf '\\036drun %s\\nC\\000\\000\\000\\011facts [1]' \"${line%%\\\"*}\"\ncat >&2\n",
             true);
  const Ended ended = run(job({"--ssh=" + ssh, "--hosts=a,b"}, {"true"}));
  INFO(ended.err);
  CHECK(ended.code == 121);
  CHECK_THAT(ended.err, ContainsSubstring("cannot start on 1 of 2 hosts; nothing was started") &&
                            ContainsSubstring("  b: the message \"facts\" is malformed at /;"));
}

TEST_CASE("an agent rejects a malformed spec and a launcher with another protocol") {
  const auto agent = [](const std::string& input) {
    Launch launch = job({}, {});
    launch.argv = {launch.argv.front(), "--from-stdin"};
    launch.stdin_text = input;
    return run(launch);
  };
  const Ended spec = agent("start 7 [\"n\",\"/\",[],[],\"\",[[],false]]\nspec [1]\n");
  CHECK(spec.code == 121);
  CHECK_THAT(spec.out, ContainsSubstring("\x1e"
                                         "drun n\n") &&
                           ContainsSubstring("facts [") &&
                           ContainsSubstring("hello [\"the message \\\"spec\\\" is malformed"));
  const Ended other = agent("{\"protocol\":6}\n");
  CHECK(other.code == 121);
  CHECK_THAT(other.err, ContainsSubstring("drun: another version of drun is installed here"));
}

TEST_CASE("options for interactive logins in the ssh configuration do not affect the job") {
  const SshHosts hosts;
  if (!is_there(hosts)) return;
  const std::string place = hosts.directory().path() + "/";
  const std::string config = read_file(place + "ssh_config");
  const auto configure = [&](const std::string& more) {
    write_file(place + "ssh_config", config + more);
  };
  // LocalForward fails because the port is in use, which would end the login.
  configure("  ControlMaster auto\n  ControlPath " + place + "cm-%h\n  ControlPersist 600\n" +
            "  RemoteCommand touch " + place + "remote\n  PermitLocalCommand yes\n" +
            "  LocalCommand touch " + place + "local\n  ExitOnForwardFailure yes\n" +
            "  LocalForward 10.78.0.254:22222 localhost:22\n");
  const Words options = {"--hosts=node1,node2,node3"};
  const Ended ended = hosts.run(options, shell("echo $RANK of $WORLD_SIZE"));
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(count(ended.out, " of 3\n") == 3);
  for (const char* file : {"remote", "local", "cm-node1"})
    CHECK_FALSE(std::filesystem::exists(place + file));
  CHECK(eventually([&] { return hosts.are_empty(); }));

  // The user's master connection is used and stays open.
  configure("  ControlPath " + place + "cm-%h\n");
  const auto ssh = [&](const Words& words) {
    Launch launch = hosts.launch({}, {});
    launch.argv.resize(launch.argv.size() - 3);  // without drun and its options
    const Words own = {"ssh", "-F", place + "ssh_config"};
    launch.argv.insert(launch.argv.end(), own.begin(), own.end());
    launch.argv.insert(launch.argv.end(), words.begin(), words.end());
    return launch;
  };
  Running master(ssh({"-M", "-N", "node1"}));
  REQUIRE(eventually([&] { return std::filesystem::exists(place + "cm-node1"); }, 20s));
  write_file(place + "authorized1", "");  // from now on only the master can reach node1
  const Ended shared = hosts.run(options, shell("echo $RANK of $WORLD_SIZE"));
  INFO(shared.out << shared.err);
  CHECK(shared.code == 0);
  CHECK(run(ssh({"-O", "check", "node1"}), 20s).code == 0);
  CHECK(run(ssh({"node1", "true"}), 20s).code == 0);
  master.signal(SIGTERM);
  master.wait(10s);
}

TEST_CASE("hosts use the working directory's name from the user's shell") {
  const TemporaryDirectory directory;
  REQUIRE(symlink(directory.path().c_str(), directory.file("link").c_str()) == 0);
  Launch launch = job({"-H", "a", "--dry-run=json"}, {"true"});
  launch.directory = directory.file("link");
  launch.environment["PWD"] = directory.file("link");
  const Ended ended = run(launch);
  INFO(ended.out << ended.err);
  CHECK_THAT(ended.out, ContainsSubstring("\"directory\": \"" + directory.file("link") + "\""));
  launch.environment["PWD"] = "/";  // a different directory
  CHECK_THAT(run(launch).out, ContainsSubstring("\"directory\": \"" + directory.path() + "\""));
}

}  // namespace drun::testing
