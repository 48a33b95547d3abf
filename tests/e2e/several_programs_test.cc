// Tests jobs of several programs: on one machine, on several nodes, on hosts, and from a file.

#include <sys/stat.h>

#include <algorithm>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/job.h"
#include "tests/support/job_traces.h"

namespace drun::testing {
namespace {

constexpr const char* kWhoOfRole =
    "echo \"$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $ROLE_NAME $ROLE_RANK/$ROLE_WORLD_SIZE "
    "$0 $MARK\"";

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

// Scripts for a server and some workers. They print their ranks and run the commands in their
// files.
class Programs {
 public:
  Programs() {
    for (const std::string name : {"server", "worker"})
      write_file(directory_.file(name),
                 "#!/bin/sh\n" + std::string(kWhoOfRole) + "\n. ./" + name + ".action\n", true);
    does("server", "");
    does("worker", "");
  }
  void does(const std::string& name, const std::string& script) {
    write_file(directory_.file(name + ".action"), script + "\n");
  }
  Launch launch(const Words& options, const Words& program) const {
    Launch launch = job(options, program);
    launch.directory = directory_.path();
    return launch;
  }
  const TemporaryDirectory& directory() const { return directory_; }

 private:
  TemporaryDirectory directory_;
};

}  // namespace

TEST_CASE("two programs of one job have consecutive ranks and different roles") {
  const Programs programs;
  const Ended ended = run(programs.launch(
      {"-np", "1", "-x", "MARK=s"}, {"./server", ":", "-np", "2", "-x", "MARK=w", "./worker"}));
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK(ended.err.empty());
  CHECK(sorted_lines(ended.out) == Words{"0/3 0/3 server 0/1 ./server s",
                                         "1/3 1/3 worker 0/2 ./worker w",
                                         "2/3 2/3 worker 1/2 ./worker w"});
}

TEST_CASE("nodes with the same command line divide the programs among themselves") {
  const Programs programs;
  const std::string port = std::to_string(free_port());
  std::vector<std::unique_ptr<Running>> nodes;
  for (const std::string rank : {"0", "1"}) {
    nodes.push_back(std::make_unique<Running>(
        programs.launch({"--nnodes=2", "--node-rank=" + rank, "--master-addr=127.0.0.1",
                         "--master-port=" + port, "-np", "1"},
                        {"./server", ":", "-np", "4", "./worker"})));
  }
  const Ended first = nodes[0]->wait(40s);
  const Ended second = nodes[1]->wait(40s);
  INFO(first.err << second.err);
  CHECK(first.code == 0);
  CHECK(second.code == 0);
  CHECK(sorted_lines(first.out) == Words{"0/5 0/3 server 0/1 ./server ",
                                         "1/5 1/3 worker 0/4 ./worker ",
                                         "2/5 2/3 worker 1/4 ./worker "});
  CHECK(sorted_lines(second.out) ==
        Words{"3/5 0/2 worker 2/4 ./worker ", "4/5 1/2 worker 3/4 ./worker "});
}

TEST_CASE("programs can come from a file, and labels and reports show their roles") {
  Programs programs;
  write_file(programs.directory().file("job.app"),
             "# the server first\n-np 1 ./server --text 'a b'\n\n-np 2 --role trainer ./worker\n");
  // The failure ends the job, so it waits for the server's message.
  const std::string said = programs.directory().file("said");
  REQUIRE(mkfifo(said.c_str(), 0600) == 0);
  programs.does("worker", "[ $ROLE_RANK = 0 ] && exec sleep 30; read word < said; exit 7");
  programs.does("server", "echo \"$2\"; echo word > said; sleep 30");
  const Ended ended = run(programs.launch(
      {"--output=labelled", "--shutdown-timeout=5", "--report=report.json", "--app", "job.app"},
      {}));
  INFO(ended.out << ended.err);
  CHECK(ended.code == 7);
  CHECK_THAT(ended.out, ContainsSubstring("[server0]:a b\n") &&
                            ContainsSubstring("[trainer2]:2/3 2/3 trainer 1/2 ./worker \n"));
  CHECK_THAT(ended.err, ContainsSubstring(": rank 2 on node 0") &&
                            ContainsSubstring("role trainer, exited with code 7") &&
                            ContainsSubstring("./worker"));
  const auto report = nlohmann::json::parse(read_file(programs.directory().file("report.json")));
  CHECK(report.at("root_cause").at("role") == "trainer");
  CHECK(report.at("root_cause").at("program") == "./worker");
}

TEST_CASE("programs can come from a pipe") {
  const Ended ended = run(Launch{
      .argv = {"bash", "-c", "exec \"$0\" --standalone --app <(echo '-np 2 echo from a pipe')",
               drun_program()}});
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK(count(ended.out, "from a pipe\n") == 2);
}

TEST_CASE("a job of several programs restarts as a whole") {
  Programs programs;
  programs.does("worker", "[ $ROLE_RANK$TORCHELASTIC_RESTART_COUNT != 10 ] || exit 3");
  const Ended ended = run(
      programs.launch({"--max-restarts=1", "-np", "1"}, {"./server", ":", "-np", "2", "./worker"}));
  INFO(ended.err);
  CHECK(ended.code == 0);
  const Words lines = sorted_lines(ended.out);
  CHECK(std::count(lines.begin(), lines.end(), "2/3 2/3 worker 1/2 ./worker ") == 2);
}

TEST_CASE("a single program keeps a colon, and a missing one of several programs is named") {
  const Ended plain = run(job({"--standalone"}, {"sh", "-c", "echo \"$@\"", "sh", "a", ":", "b"}));
  INFO(plain.err);
  CHECK(plain.code == 0);
  CHECK(plain.out == "a : b\n");
  const Programs programs;
  const Ended ended =
      run(programs.launch({"-np", "1"}, {"./server", ":", "-np", "1", "./not-there"}));
  CHECK(ended.code == 127);
  CHECK(ended.out.empty());
  CHECK_THAT(ended.err, ContainsSubstring("./not-there: no such file"));
}

TEST_CASE("programs are assigned to hosts in order") {
  const Programs programs;
  // Runs ssh's command on this machine: words are quoted as for other machines.
  write_file(programs.directory().file("ssh"),
             "#!/bin/sh\nfor word; do last=$word; done\nexec sh -c \"$last\"\n", true);
  const Ended ended = run(programs.launch(
      {"-H", "a:2,b:2", "--ssh=./ssh", "--master-addr=127.0.0.1",
       "--master-port=" + std::to_string(free_port()), "-np", "1", "-x", "MARK=it's 1"},
      {"./server", ":", "-np", "3", "./worker", ":1"}));
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(sorted_lines(ended.out) == Words{"[a:0 server]: 0/4 0/2 server 0/1 ./server it's 1",
                                         "[a:1 worker]: 1/4 1/2 worker 0/3 ./worker ",
                                         "[b:2 worker]: 2/4 0/2 worker 1/3 ./worker ",
                                         "[b:3 worker]: 3/4 1/2 worker 2/3 ./worker "});
}

}  // namespace drun::testing
