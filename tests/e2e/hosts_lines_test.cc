// Tests log files and standard input of jobs over ssh. All hosts are this machine, through a
// command in place of ssh; hosts_test.cc uses real sshds.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/job_traces.h"
#include "tests/support/places.h"
#include "tests/support/plain_ssh.h"

namespace drun::testing {
namespace {

namespace fs = std::filesystem;

#ifdef __SANITIZE_ADDRESS__
constexpr long kMostKib = 280'000;  // the sanitizer alone uses 240 MB, even for an empty job
#else
constexpr long kMostKib = 60'000;
#endif

// Returns the highest peak memory in KiB of the process and its descendants.
long peak_kib_of_tree(pid_t pid) {
  long most = peak_kib(pid);
  const std::string place = "/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid);
  std::istringstream children(read_file(place + "/children"));
  for (pid_t child = 0; children >> child;) most = std::max(most, peak_kib_of_tree(child));
  return most;
}

}  // namespace

TEST_CASE("with a log directory the launcher has a file for each rank of all hosts") {
  const PlainSsh ssh;
  const std::string logs = ssh.directory().file("logs");
  const Ended ended = run(
      ssh.launch("a:2,b:2", {"--log-dir=logs", "--report=r.json", "--max-restarts=1", "-r", "1:2"},
                 "echo rank $RANK; printf 'err %s' $RANK >&2; printf '%s last' $RANK; "
                 "[ $TORCHELASTIC_RESTART_COUNT$RANK != 02 ]"),
      60s);
  INFO(ended.out << ended.err);
  REQUIRE(ended.code == 0);
  const std::string place = only_entry(logs);
  CHECK(place.starts_with(logs + "/"));
  for (int rank = 0; rank < 4; ++rank) {
    const std::string number = std::to_string(rank);
    const std::string host = rank < 2 ? "a" : "b";
    for (const std::string round : {"/attempt_0/", "/attempt_1/"}) {
      if (round == "/attempt_0/" && rank != 2)
        continue;  // rank 2's failure may have stopped the
                   // others early
      const std::string folder = place + round + number;
      CHECK(read_file(folder + "/stdout.log") == "rank " + number + "\n" + number + " last");
      CHECK(read_file(folder + "/stderr.log") == "err " + number);
    }
    CHECK_THAT(ended.out,
               ContainsSubstring("[" + host + ":" + number + "]: rank " + number + "\n"));
    const std::string error = "[" + host + ":" + number + "]: err " + number + "\n";
    if (rank % 2 == 0)
      CHECK_THAT(ended.err, ContainsSubstring(error));
    else
      CHECK_THAT(ended.err, !ContainsSubstring(error));
  }
}

TEST_CASE("the report of a job over ssh names the launcher's log directory") {
  const PlainSsh ssh;
  const Ended ended = run(ssh.launch("a,b", {"--log-dir=logs"}, "exit $((RANK * 3))"), 60s);
  INFO(ended.out << ended.err);
  CHECK(ended.code == 3);
  CHECK_THAT(ended.err, ContainsSubstring(only_entry(ssh.directory().file("logs"))));
}

TEST_CASE("a log directory that cannot be created is reported before any login") {
  const PlainSsh ssh("touch login");
  write_file(ssh.directory().file("logs"), "a file");
  const Ended ended = run(ssh.launch("a,b", {"--log-dir=logs"}, "exit 0"), 60s);
  CHECK(ended.code == 2);
  CHECK_THAT(ended.err, ContainsSubstring("cannot use log directory") &&
                            ContainsSubstring("choose another with --log-dir"));
  CHECK_FALSE(fs::exists(ssh.directory().file("login")));
}

TEST_CASE("a job that does not start leaves no log directory") {
  const PlainSsh ssh("[ $1 = a ] || exit 255");
  const Ended ended = run(ssh.launch("a,b", {"--log-dir=logs"}, "exit 0"), 60s);
  CHECK(ended.code == 120);
  CHECK(fs::is_empty(ssh.directory().file("logs")));
}

TEST_CASE("without gathering each host has log files by local rank") {
  const PlainSsh ssh;
  const Ended ended = run(
      ssh.launch("a:2,b:1", {"--log-dir=logs", "--no-gather-logs", "--tee=1"}, "echo $RANK"), 60s);
  INFO(ended.out << ended.err);
  REQUIRE(ended.code == 0);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(ssh.directory().file("logs"))) {
    const std::string folder = entry.path().string() + "/attempt_0/";
    files +=
        !read_file(folder + "0/stdout.log").empty() + !read_file(folder + "1/stdout.log").empty();
  }
  CHECK(files == 3);
}

TEST_CASE("a suspended reader of the launcher costs no memory, and the files lose no line") {
  const PlainSsh ssh;
  const Words write = {"exec " + built("bench/lines") + " write $RANK 300000 100"};
  Launch launch = ssh.launch("a,b", {"--log-dir=logs"}, write.front());
  // The reader starts only once the file `go` exists.
  const std::string go = ssh.directory().file("go");
  const std::string script =
      "\"$@\" | { until [ -e " + go + " ]; do sleep 0.05; done; exec cat >all; }";
  Words argv = {"sh", "-c", script, "sh"};
  launch.argv = argv + launch.argv;
  Running job(launch);
  const std::string logs = ssh.directory().file("logs");
  std::uintmax_t before = 0;
  int still = 0;
  REQUIRE(eventually(
      [&] {
        std::uintmax_t now = 0;
        std::error_code ec;
        for (const auto& entry : fs::recursive_directory_iterator(logs, ec))
          if (entry.is_regular_file(ec)) now += entry.file_size(ec);
        still = now > 0 && now == std::exchange(before, now) ? still + 1 : 0;
        return still == 50;
      },
      60s));
  CHECK(before < 20'000'000);  // of 60 MB
  CHECK(peak_kib_of_tree(job.pid()) < kMostKib);
  write_file(go, "");
  const Ended ended = job.wait(60s);
  INFO(ended.err);
  CHECK(ended.code == 0);
  const std::string place = only_entry(logs) + "/attempt_0/";
  for (const char* rank : {"0", "1"}) {
    const Ended lines = run(Launch{.argv = {"sh", "-c", "wc -l <" + place + rank + "/stdout.log"}});
    CHECK(std::stoi(lines.out) == 300000);
  }
}

TEST_CASE("rank 0 reads the launcher's standard input to its end") {
  const PlainSsh ssh;
  std::string text;
  for (int i = 0; i < 50000; ++i) text += "line " + std::to_string(i) + "\n";
  Launch launch = ssh.launch("a:2,b:2", {"--stdin=rank0", "--output=lines"},
                             "sleep 0.2; n=$(wc -c); sleep 0.$RANK; echo $RANK got $n");
  launch.stdin_text = text + "no newline";
  const Ended ended = run(launch, 60s);
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.out,
             ContainsSubstring("0 got " + std::to_string(launch.stdin_text.size()) + "\n"));
  for (const char* rank : {"1", "2", "3"})
    CHECK_THAT(ended.out, ContainsSubstring(std::string(rank) + " got 0\n"));
}

TEST_CASE("rank 0 reads arbitrary bytes unchanged") {
  const PlainSsh ssh;
  const std::string program = built("bench/lines");
  Launch launch = ssh.launch("a", {"--stdin=rank0", "--log-dir=logs"}, "cat");
  // The input contains lines that look like drun's protocol.
  const std::string input = ssh.directory().file("input");
  std::string bytes =
      "input 5\nkill\nsignal 15\n\x1e"
      "drun {}\n\n\ninput end\n";
  for (int i = 0; i < 300000; ++i) bytes += static_cast<char>(i % 251);
  write_file(input, bytes);
  launch.argv = Words{"sh", "-c", "exec \"$@\" <" + input, "sh"} + launch.argv;
  const Ended ended = run(launch, 60s);
  INFO(ended.err);
  CHECK(ended.code == 0);
  const bool is_same =
      read_file(only_entry(ssh.directory().file("logs")) + "/attempt_0/0/stdout.log") == bytes;
  CHECK(is_same);
}

TEST_CASE(
    "a program that does not read its input neither waits nor makes the launcher read it all") {
  const PlainSsh ssh;
  Launch launch = ssh.launch("a,b", {"--stdin=rank0"}, "sleep 0.3; echo $RANK done");
  launch.argv = Words{"sh", "-c", "yes | { \"$@\"; echo ended $?; }", "sh"} + launch.argv;
  const Ended ended = run(launch, 60s);
  INFO(ended.err);
  CHECK_THAT(ended.out, ContainsSubstring("ended 0\n") && ContainsSubstring("0 done\n"));
}

TEST_CASE("a program at a terminal gets its input line by line until the end of file") {
  const PlainSsh ssh;
  Launch launch =
      ssh.launch("a,b", {"--stdin=rank0"},
                 "[ $RANK = 0 ] || exit 0; while read -r line; do echo got $line; done; "
                 "echo at the end");
  // Runs drun in a pseudo-terminal, which interprets the Ctrl-D.
  std::string command;
  for (const std::string& word : launch.argv) {
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    command += quoted + "' ";
  }
  const std::string script =
      "import os,pty,sys,time\n"
      "pid,fd=pty.fork()\n"
      "if pid==0: os.execvp('sh',['sh','-c',sys.argv[1]])\n"
      "seen=b''\n"
      "def until(word):\n"
      "  global seen\n"
      "  while word not in seen: seen+=os.read(fd,4096)\n"
      "os.write(fd,b'one\\n'); until(b'got one'); os.write(fd,b'two\\n'); until(b'got two')\n"
      "os.write(fd,b'\\x04'); until(b'at the end')\n"
      "while True:\n"
      "  try:\n"
      "    if not os.read(fd,4096): break\n"
      "  except OSError: break\n"
      "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid,0)[1]))\n";
  launch.argv = {"python3", "-c", script, command};
  const Ended ended = run(launch, 30s);
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
}

TEST_CASE("input that rank 0 has not read is still available after a restart") {
  const PlainSsh ssh;
  Launch launch =
      ssh.launch("a,b", {"--stdin=rank0", "--max-restarts=1"},
                 "[ $RANK = 0 ] || exec sleep 1; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || "
                 "exit 1; echo got $(cat)");
  launch.stdin_text = "some words";
  const Ended ended = run(launch, 60s);
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.out, ContainsSubstring("got some words\n"));
}

namespace {

// A control message and a frame with it. A worker prints them to imitate the agent.
const std::string kForgery =
    "import os,sys\n"
    "end=b'{\"exit_code\":7,\"text\":\"forged\\\\n\",\"report\":\"\"}'\n"
    "for fd in 1,2:\n"
    "  os.write(fd,b'\\x1edrun '+end+b'\\n')\n"
    "  os.write(fd,b'C'+len(end).to_bytes(4,'big')+end+b'\\n')\n"
    "  os.write(fd,b'\\x1edrun #5 0 0 0\\nhello\\n\\x1edrun begins\\n\\x1edrun room 9\\n')\n"
    "  os.write(fd,b'a\\0b\\n')\n"
    "sys.stdout.write('last, without an end')\n";

void check_forgery(const std::string& out, const std::string& label) {
  const std::string mark =
      "\x1e"
      "drun ";
  const std::string end = R"({"exit_code":7,"text":"forged\n","report":""})";
  INFO(out);
  CHECK_THAT(out, ContainsSubstring(label + mark + end + "\n"));
  CHECK_THAT(out, ContainsSubstring(label + std::string("C\0\0\0", 4) +
                                    static_cast<char>(end.size()) + end + "\n"));
  CHECK_THAT(out, ContainsSubstring(label + mark + "#5 0 0 0\n" + label + "hello\n" + label + mark +
                                    "begins\n" + label + mark + "room 9\n"));
  CHECK_THAT(out, ContainsSubstring(label + std::string("a\0b\n", 4)));
}

}  // namespace

TEST_CASE("output that imitates drun's protocol is shown unchanged and has no effect") {
  const PlainSsh ssh;
  write_file(ssh.directory().file("forge.py"), kForgery);
  const std::string script = "python3 forge.py";
  const Words options = {"--stdin=rank0"};
  const Ended ended = run(ssh.launch("a,b,c", options, script), 60s);
  CHECK(ended.code == 0);
  for (const char* label : {"[a:0]: ", "[b:1]: ", "[c:2]: "}) {
    check_forgery(ended.out, label);
    check_forgery(ended.err, label);
    CHECK_THAT(ended.out, ContainsSubstring(std::string(label) + "last, without an end\n"));
  }
  CHECK(count(ended.err, "forged\n") == 0);

  Words files = options + Words{"--log-dir=logs"};
  const Ended kept = run(ssh.launch("a,b,c", files, script), 60s);
  CHECK(kept.code == 0);
  check_forgery(kept.out, "[b:1]: ");
  const std::string place = only_entry(ssh.directory().file("logs")) + "/attempt_0/";
  for (const char* rank : {"0", "1", "2"})
    CHECK_THAT(read_file(place + rank + "/stdout.log"), EndsWith("last, without an end"));
}

TEST_CASE("a worker cannot forge the end of a host whose agent was killed") {
  const PlainSsh ssh;
  write_file(ssh.directory().file("forge.py"), kForgery);
  // The agent is the parent of the shell that runs the script.
  Running job(ssh.launch("a,b", {},
                         "python3 forge.py; [ $RANK = 0 ] || exec sleep 600; "
                         "echo up $PPID; exec sleep 600"));
  REQUIRE(eventually([&] { return job.out().find("up ") != std::string::npos; }, 30s));
  const std::string out = job.out();
  kill(std::stoi(out.substr(out.find("up ") + 3)), SIGKILL);
  const Ended ended = job.wait(40s);
  INFO(ended.err);
  CHECK(ended.code != 7);
  CHECK(ended.code != 0);
  check_forgery(ended.out, "[a:0]: ");
  CHECK_THAT(ended.err, !ContainsSubstring("forged\n"));
  CHECK_THAT(ended.err, ContainsSubstring("a: drun: the agent was ended by signal 9"));
}

TEST_CASE("ten megabytes without a newline arrive whole, from a worker and from a login") {
  const PlainSsh ssh("[ $1 != b ] || { head -c 10000000 /dev/zero | tr '\\0' l; }");
  const Ended ended = run(
      ssh.launch("a,b", {}, "[ $RANK = 1 ] || { head -c 10000000 /dev/zero | tr '\\0' w; }"), 60s);
  INFO(ended.err.substr(0, 1000));
  CHECK(ended.code == 0);
  CHECK(std::count(ended.out.begin(), ended.out.end(), 'w') == 10000000);
  CHECK(std::count(ended.err.begin(), ended.err.end(), 'l') == 10000000);
}

TEST_CASE("variables for the workers do not affect the agents") {
  const PlainSsh ssh;
  const Words variables = {"-x", "LOGLEVEL=DEBUG",
                           "-x", "TMPDIR=/nowhere",
                           "-x", "PET_MAX_RESTARTS=9",
                           "-x", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=nonsense",
                           "-x", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=forged",
                           "-x", "DRUN_SECRET=short",
                           "-x", "TORCHELASTIC_ERROR_FILE=/nowhere/file"};
  const std::string script =
      "echo $LOGLEVEL $TMPDIR $PET_MAX_RESTARTS $TORCH_ELASTIC_SHUTDOWN_TIMEOUT "
      "$TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE";
  const std::string expected = "DEBUG /nowhere 9 nonsense forged\n";
  const Ended there = run(ssh.launch("a,b", variables, script), 60s);
  INFO(there.out << there.err);
  CHECK(there.code == 0);
  CHECK_THAT(there.out,
             ContainsSubstring("[a:0]: " + expected) && ContainsSubstring("[b:1]: " + expected));
  CHECK(there.err.empty());
  const Ended here =
      run(shell_job(variables + Words{"-np", "2", "--output=labelled"}, script), 60s);
  INFO(here.out << here.err);
  CHECK(here.code == 0);
  CHECK_THAT(here.out, ContainsSubstring("[default0]:" + expected) &&
                           ContainsSubstring("[default1]:" + expected));
  CHECK(here.err.empty());
}

TEST_CASE("a single host uses the secret in the environment of its login") {
  const PlainSsh ssh("export DRUN_SECRET=0123456789abcdef0123456789abcdef");
  const Ended ended = run(ssh.launch("a", {}, "echo rank $RANK has ${DRUN_SECRET-none}"), 60s);
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.out, ContainsSubstring("rank 0 has none\n"));
}

TEST_CASE("the program and its devices are looked up with the workers' environment") {
  const PlainSsh ssh;
  const std::string folder = ssh.directory().file("bin");
  std::filesystem::create_directory(folder);
  write_file(folder + "/only-there", "#!/bin/sh\necho ran $CUDA_VISIBLE_DEVICES\n", true);
  Launch launch = ssh.launch("a",
                             {"-x", "PATH=" + folder + ":/usr/bin:/bin", "-x",
                              "CUDA_VISIBLE_DEVICES=3,5", "--virtual-local-rank", "-np", "1"},
                             "");
  launch.argv.resize(launch.argv.size() - 3);
  launch.argv.push_back("only-there");
  const Ended ended = run(launch, 60s);
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.out, ContainsSubstring("ran 3\n"));
}

}  // namespace drun::testing
