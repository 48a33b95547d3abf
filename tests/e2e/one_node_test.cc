// Tests jobs on one node: the workers' environment, how they end, and drun's output.

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/job.h"
#include "tests/support/job_traces.h"
#include "tests/support/machine.h"

namespace drun::testing {
namespace {

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

}  // namespace

TEST_CASE("a job runs where standard input, output or error is closed") {
  const TemporaryDirectory directory;
  for (const std::string closed : {"<&-", ">&-", "2>&-", "<&- >&- 2>&-"}) {
    CAPTURE(closed);
    const std::string file = directory.file("ran");
    Launch launch = shell_job({}, "echo out; echo err >&2; cat; echo yes > " + file);
    launch.argv = Words{"sh", "-c", "exec \"$@\" " + closed, "sh"} + launch.argv;
    CHECK(run(launch).code == 0);
    CHECK(read_file(file) == "yes\n");
    std::filesystem::remove(file);
  }
}

TEST_CASE("without the address 127.0.0.1 a job does not start and names the remedy") {
  if (geteuid() != 0) {
    WARN("skipped: only root can make a network namespace");
    return;
  }
  const std::string script =
      "ip link set lo up && ip addr del 127.0.0.1/8 dev lo && exec \"$0\" true";
  const Ended ended = run({.argv = {"unshare", "--net", "sh", "-c", script, drun_program()}});
  CHECK(ended.code == 125);
  CHECK_THAT(ended.err, ContainsSubstring("127.0.0.1 is missing") &&
                            ContainsSubstring("ip addr add 127.0.0.1/8 dev lo"));
}

TEST_CASE("workers get torchrun's variables in addition to drun's environment") {
  TemporaryDirectory directory;
  const int port = free_port();
  Launch launch =
      shell_job({"--nproc-per-node=2", "--nnodes=1", "--max_restarts", "3", "--rdzv_id=my-job",
                 "--role", "trainer", "--master_port=" + std::to_string(port)},
                "env > $DIR/$LOCAL_RANK");
  launch.environment["DIR"] = directory.path();
  launch.environment["OF_MINE"] = "kept = as is";
  const Ended ended = run(launch);
  INFO(ended.err);
  REQUIRE(ended.code == 0);
  CHECK(ended.out.empty());
  for (const std::string rank : {"0", "1"}) {
    const std::string env = read_file(directory.file(rank));
    for (const std::string& line :
         Words{"RANK=" + rank, "LOCAL_RANK=" + rank, "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2",
               "GROUP_RANK=0", "GROUP_WORLD_SIZE=1", "ROLE_NAME=trainer", "ROLE_RANK=" + rank,
               "ROLE_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(port),
               "TORCHELASTIC_RESTART_COUNT=0", "TORCHELASTIC_MAX_RESTARTS=3",
               "TORCHELASTIC_RUN_ID=my-job", "TORCHELASTIC_USE_AGENT_STORE=True",
               "TORCH_NCCL_ASYNC_ERROR_HANDLING=1", "OMP_NUM_THREADS=1", "OF_MINE=kept = as is"}) {
      INFO(line << "\nnot in\n" << env);
      CHECK(has_line(env, line));
    }
    CHECK_THAT(env, ContainsSubstring("TORCHELASTIC_ERROR_FILE=/"));
  }
}

TEST_CASE("drun's exit code is the root cause's") {
  const auto [script, code] =
      GENERATE(table<std::string, int>({{"exit 0", 0},
                                        {"exit 1", 1},
                                        {"[ $RANK != 1 ] || exit 42", 42},
                                        {"exit 255", 255},
                                        {"[ $RANK != 2 ] || kill -SEGV $$", 139},
                                        {"[ $RANK != 0 ] || kill -KILL $$", 137}}));
  const Ended ended = run(shell_job({"--standalone", "--nproc_per_node=3"}, script));
  INFO(script << "\n" << ended.err);
  CHECK(ended.code == code);
  CHECK(ended.err.empty() == (code == 0));
}

TEST_CASE("workers get the user's descriptor limit, which also suffices for many workers") {
  Launch launch = shell_job({"--standalone", "--nproc_per_node=96"}, "ulimit -Sn");
  launch.argv = Words{"sh", "-c", "ulimit -Sn 64 && exec \"$@\"", "sh"} + launch.argv;
  const Ended ended = run(launch);
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK(count(ended.out, "64\n") == 96);
}

TEST_CASE("a hard limit on files that is too low for the workers is named") {
  const std::string limit = GENERATE("64", "90");  // for the pipes, for the first worker
  Launch launch = shell_job({"--standalone", "--nproc_per_node=8"}, "true");
  launch.argv = Words{"sh", "-c", "ulimit -n " + limit + " && exec \"$@\"", "sh"} + launch.argv;
  const Ended ended = run(launch);
  INFO(ended.err);
  CHECK(ended.code == 126);
  CHECK_THAT(ended.err, ContainsSubstring("raise the limit (ulimit -n)"));
}

TEST_CASE("a hard limit on files that is too low for drun itself is named before anything starts") {
  const std::string limit = GENERATE("8", "14", "31");
  Launch launch = shell_job({"--standalone", "--nproc_per_node=1"}, "echo started");
  launch.argv = Words{"sh", "-c", "ulimit -n " + limit + " && exec \"$@\"", "sh"} + launch.argv;
  const Ended ended = run(launch);
  CHECK(ended.code == 125);
  CHECK(ended.out.empty());
  CHECK(ended.err == "drun: cannot start the agent: the hard limit on open files is " + limit +
                         ", and it needs at least 32; raise the limit (ulimit -n)\n");
}

TEST_CASE("a file size limit fails drun's writes and does not end drun") {
  const TemporaryDirectory directory;
  Launch launch = shell_job({"-n2", "--report=" + directory.file("report.json")}, "kill -XFSZ $$");
  launch.argv = Words{"sh", "-c", "ulimit -f 0 && exec \"$@\"", "sh"} + launch.argv;
  const Ended ended = run(launch);
  INFO(ended.err);
  CHECK(ended.code == 128 + SIGXFSZ);  // the workers have the default action
  CHECK_THAT(ended.err,
             ContainsSubstring("report.json: file too large") && ContainsSubstring("job failed"));
  CHECK(std::filesystem::is_empty(directory.path()));
}

TEST_CASE("workers inherit no descriptor of drun") {
  // A shell in drun's place is the reference, because the test runner may have left some open.
  const std::string open_ones = "for each in /proc/$$/fd/*; do echo ${each##*/}; done";
  const Ended here = run(Launch{.argv = {"sh", "-c", open_ones}});
  const Ended ended = run(shell_job({"--nproc_per_node=40", "--local-ranks-filter=39"}, open_ones));
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK(ended.out == here.out);
}

#ifndef __SANITIZE_ADDRESS__
TEST_CASE("drun loads only the libraries that a job needs") {
  const std::string libraries = "grep -o 'lib[a-z]*[.]so' /proc/$PPID/maps | sort -u";
  TemporaryDirectory directory;
  const std::string secret = directory.file("secret");
  write_file(secret, "0123456789abcdef0123456789abcdef");
  chmod(secret.c_str(), 0600);
  const auto loaded = [&](Words options) { return run(shell_job(options, libraries)).out; };
  const std::string plain = loaded({});
  CHECK_THAT(plain, ContainsSubstring("libc.so"));
  CHECK_THAT(plain, !ContainsSubstring("libssl") && !ContainsSubstring("libhwloc"));
  CHECK_THAT(loaded({"--secret-file=" + secret}), ContainsSubstring("libssl.so"));
  CHECK_THAT(loaded({"--bind-to=core"}), ContainsSubstring("libhwloc.so"));
}
#endif

TEST_CASE("a job that cannot start is also in the report file") {
  TemporaryDirectory directory;
  const std::string file = directory.file("report.json");
  const auto [options, program, code] = GENERATE(table<std::string, std::string, int>(
      {{"--rdzv-backend=etcd", "true", 2}, {"--nnodes=1", "/no/such/program", 127}}));
  const Ended ended = run(job({"--report=" + file, options}, {program}));
  CHECK(ended.code == code);
  CHECK(nlohmann::json::parse(read_file(file))["exit_code"] == code);
}

TEST_CASE("a report to stdout follows the workers' lines, also if stdout is a file") {
  const TemporaryDirectory directory;
  const std::string all = directory.file("all");
  for (const std::string& report : {std::string("/dev/stdout"), all}) {
    Launch launch = shell_job({"--report=" + report}, "echo from the worker");
    launch.argv = Words{"sh", "-c", "exec \"$@\" >" + all, "sh"} + launch.argv;
    const Ended ended = run(launch);
    INFO(ended.err);
    CHECK(ended.code == 0);
    const std::string text = read_file(all);
    CHECK_THAT(text, StartsWith("from the worker\n{"));
    CHECK_THAT(text, ContainsSubstring("\"outcome\": \"succeeded\""));
  }
}

TEST_CASE("events and the workers' lines do not overwrite each other if stdout is their file") {
  const TemporaryDirectory directory;
  const std::string all = directory.file("all");
  Launch launch =
      shell_job({"--events=/dev/stdout"}, "for i in 1 2 3 4 5 6 7 8 9; do echo $i; done");
  launch.argv = Words{"sh", "-c", "echo before; exec \"$@\"", "sh"} + launch.argv;
  launch.argv = Words{"sh", "-c", "exec \"$@\" >" + all, "sh"} + launch.argv;
  const Ended ended = run(launch);
  INFO(ended.err);
  CHECK(ended.code == 0);
  const std::string text = read_file(all);
  INFO(text);
  std::istringstream lines(text);
  std::string printed;
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("{\"") || !nlohmann::json::accept(line)) printed += line + "\n";
  CHECK(printed == "before\n1\n2\n3\n4\n5\n6\n7\n8\n9\n");
  CHECK_THAT(text, ContainsSubstring("\"event\":\"agent_started\""));
  CHECK_THAT(text, ContainsSubstring("\"event\":\"job_ended\""));
}

TEST_CASE("under the name torchrun every failure has exit code 1") {
  TemporaryDirectory directory;
  Launch launch = shell_job({"--standalone"}, "exit 42");
  launch.argv[0] = directory.file("torchrun");
  std::filesystem::create_symlink(drun_program(), launch.argv[0]);
  CHECK(run(launch).code == 1);
}

TEST_CASE("under the name torchrun workers read drun's standard input, as breakpoint() does") {
  TemporaryDirectory directory;
  Launch launch = shell_job({"--standalone"}, "read line; echo \"got $line\"");
  const std::string torchrun = directory.file("torchrun");
  std::filesystem::create_symlink(drun_program(), torchrun);
  launch.stdin_text = "a pipe\n";
  CHECK_THAT(run(launch).out, ContainsSubstring("got \n"));  // under its normal name
  launch.argv[0] = torchrun;
  CHECK_THAT(run(launch).out, ContainsSubstring("got a pipe\n"));
}

// The worker is in another session and process group than the terminal's foreground job. It must
// neither be stopped by SIGTTIN nor get EIO.
TEST_CASE("a worker reads from drun's terminal, and its prompt is shown") {
  const bool is_torchrun = GENERATE(true, false);
  TemporaryDirectory directory;
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  REQUIRE(terminal >= 0);
  REQUIRE((grantpt(terminal) == 0 && unlockpt(terminal) == 0));
  const std::string name = ptsname(terminal);
  const int held = open(name.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  REQUIRE(held >= 0);
  Launch launch = shell_job({"--standalone", "--stdin=rank0"},
                            "printf 'asks: '; read line; echo \"got $line\"");
  if (is_torchrun) {
    const std::string torchrun = directory.file("torchrun");
    std::filesystem::create_symlink(drun_program(), torchrun);
    launch.argv[0] = torchrun;
    std::erase(launch.argv, "--stdin=rank0");
  }
  launch.argv = Words{"sh", "-c", "exec setsid --ctty --wait \"$@\" <\"$0\"", name} + launch.argv;
  Running running(launch);
  REQUIRE(running.prints("asks: "));
  REQUIRE(write(terminal, "a line\n", 7) == 7);
  const Ended ended = running.wait();
  close(held);
  close(terminal);
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.out, ContainsSubstring("asks: got a line\n"));
}

TEST_CASE("a program that cannot be executed is reported before anything starts") {
  TemporaryDirectory directory;
  const std::string text = directory.file("text");
  write_file(text, "no program");
  const Ended missing =
      run(job({"--standalone", "--nproc_per_node=2"}, {directory.file("missing")}));
  CHECK(missing.code == 127);
  CHECK_THAT(missing.err, ContainsSubstring(directory.file("missing")));
  const Ended plain = run(job({"--standalone"}, {text}));
  CHECK(plain.code == 126);
  CHECK_THAT(plain.err, ContainsSubstring(text));
}

// A shell wrapper without exec: SIGTERM ends it at once, and its child writes a checkpoint.
const std::string kSavesOnTerm =
    "trap 'sleep 2; echo saved >> $FILE; exit 0' TERM; echo x >> $FILE; while :; do sleep 0.01; "
    "done";

TEST_CASE("one failed worker stops all others at once") {
  const auto start = std::chrono::steady_clock::now();
  const Ended ended = run(
      shell_job({"--standalone", "--nproc_per_node=8"}, "[ $RANK = 5 ] && exit 3; exec sleep 600"));
  INFO(ended.err);
  CHECK(ended.code == 3);
  CHECK(std::chrono::steady_clock::now() - start < test::scaled(5s));
  CHECK_THAT(ended.err, ContainsSubstring("rank 5"));
}

TEST_CASE("a worker that ignores SIGTERM is killed after the shutdown timeout") {
  const Ended ended =
      run(shell_job({"--standalone", "--nproc_per_node=2", "--shutdown-timeout=1"},
                    "[ $RANK = 1 ] && exit 3; trap '' TERM; while :; do sleep 1; done"));
  INFO(ended.err);
  CHECK(ended.code == 3);
  CHECK_FALSE(ended.timed_out);
}

TEST_CASE("a wrapped worker has the shutdown timeout to write its checkpoint") {
  TemporaryDirectory directory;
  Launch launch = shell_job(
      {"--standalone", "--nproc_per_node=2"},
      "[ $RANK = 1 ] && { until [ -s $FILE ]; do sleep 0.01; done; exit 3; }; sh -c \"$CHILD\"; :");
  launch.environment["FILE"] = directory.file("checkpoint");
  launch.environment["CHILD"] = kSavesOnTerm;
  const Ended ended = run(launch);
  INFO(ended.err);
  CHECK(ended.code == 3);
  CHECK(read_file(directory.file("checkpoint")) == "x\nsaved\n");
}

TEST_CASE("background work is waited for after success, and reported once") {
  TemporaryDirectory directory;
  Launch launch = shell_job({"--standalone"}, "(sleep 2; echo done > $FILE) & exit 0");
  launch.environment["FILE"] = directory.file("upload");
  const Ended ended = run(launch);
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK(read_file(directory.file("upload")) == "done\n");
  CHECK(count(ended.err, "--leftovers=keep") == 1);
  CHECK(count(ended.err, "waiting up to") == 1);
  CHECK(count(ended.err, "\n") == 1);
}

TEST_CASE("with --leftovers=kill background work is terminated, and reported once") {
  const Ended ended = run(shell_job({"--standalone", "--leftovers=kill"}, "sleep 600 & exit 0"));
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK(count(ended.err, "\n") == 1);
  CHECK_THAT(ended.err, ContainsSubstring("terminated a leftover process: pid"));
}

TEST_CASE("with --leftovers=keep, and under the name torchrun, background work outlives drun") {
  const bool is_torchrun = GENERATE(false, true);
  TemporaryDirectory directory;
  Launch launch =
      shell_job(is_torchrun ? Words{"--standalone"} : Words{"--standalone", "--leftovers=keep"},
                "(until [ -e $DIR/go ]; do sleep 0.01; done; echo done > $DIR/out) "
                "> /dev/null 2>&1 & exit 0");
  launch.environment["DIR"] = directory.path();
  if (is_torchrun) {
    launch.argv[0] = directory.file("torchrun");
    std::filesystem::create_symlink(drun_program(), launch.argv[0]);
  }
  const Ended ended = run(launch);
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK(count(ended.err, "running: pid") == 1);
  write_file(directory.file("go"), "");
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  const std::string out = directory.file("out");
  while (!(std::filesystem::exists(out) && read_file(out) == "done\n") &&
         std::chrono::steady_clock::now() < deadline)
    usleep(10'000);
  CHECK(std::filesystem::exists(out));
}

TEST_CASE("a failed round is restarted until the restarts are used up") {
  TemporaryDirectory directory;
  const auto [failing, code] = GENERATE(table<std::string, int>({{"2", 0}, {"9", 7}}));
  Launch launch =
      shell_job({"--standalone", "--nproc_per_node=3", "--max-restarts=2"},
                "echo x >> $DIR/$TORCHELASTIC_RESTART_COUNT.$RANK; "
                "[ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT -lt $FAILING ] && exit 7; "
                "[ $TORCHELASTIC_RESTART_COUNT -lt $FAILING ] && exec sleep 600; exit 0");
  launch.environment["DIR"] = directory.path();
  launch.environment["FAILING"] = failing;
  const Ended ended = run(launch);
  INFO(ended.err);
  CHECK(ended.code == code);
  for (const std::string attempt : {"0", "1", "2"}) {
    CHECK(read_file(directory.file(attempt + ".1")) == "x\n");
  }
  CHECK_FALSE(std::filesystem::exists(directory.file("3.1")));
}

TEST_CASE("a job is restarted although its temporary and log directories have been removed") {
  const TemporaryDirectory directory;
  const std::string script =
      "for file in $TORCHELASTIC_ERROR_FILE $DRUN_PROGRESS_FILE $DRUN_HEARTBEAT_FILE; do\n"
      "  [ $DRUN_ROUND = 0 ] || { [ -d ${file%/*} ] && echo there; }\n"
      "done\n"
      "[ $DRUN_ROUND = 0 ] || { echo 5 > $DRUN_PROGRESS_FILE && exit 0; }\n"
      "error=${TORCHELASTIC_ERROR_FILE%/attempt_*}\n"
      "rm -r $error ${DRUN_PROGRESS_FILE%/*} ${DRUN_HEARTBEAT_FILE%/*}\n"
      "rm -rf " +
      directory.file("logs") + "\nexit 3";
  for (const Words& options :
       {Words{}, Words{"--tee=3"}, Words{"--tee=3", "--log-dir=" + directory.file("logs")}}) {
    CAPTURE(options);
    const Ended ended = run(shell_job(
        Words{"--max-restarts=1", "--restart-backoff=0", "--hang-timeout=60"} + options, script));
    INFO(ended.err);
    CHECK(ended.code == 0);
    CHECK(count(ended.out, "there\n") == 3);
  }
}

TEST_CASE("the last lines before a crash are never lost") {
  const Ended ended = run(shell_job({"--standalone", "--nproc_per_node=4"},
                                    "seq -f \"$RANK:%g\" 1 20000; kill -KILL $$"));
  INFO(ended.err);
  CHECK(ended.code == 137);
  CHECK(count(ended.out, "\n") >= 20000);
  std::size_t complete = 0;
  for (const std::string rank : {"0", "1", "2", "3"}) {
    if (has_line(ended.out, rank + ":20000")) ++complete;
  }
  CHECK(complete >= 1);  // the first one's failure may have stopped the others
}

TEST_CASE("lines of many workers reach the console whole") {
  const Ended ended =
      run(shell_job({"--standalone", "--nproc_per_node=8"}, "seq -f \"<$RANK:%g>\" 1 5000"));
  REQUIRE(ended.code == 0);
  for (int rank = 0; rank < 8; ++rank) {
    for (const int line : {1, 2500, 5000}) {
      CHECK(has_line(ended.out, "<" + std::to_string(rank) + ":" + std::to_string(line) + ">"));
    }
  }
  CHECK(count(ended.out, "\n") == 40000);
}

TEST_CASE("the report contains rank, code, stderr and the error file's message") {
  TemporaryDirectory directory;
  Launch launch =
      shell_job({"--standalone", "--nproc_per_node=2", "--report=" + directory.file("report.json")},
                "[ $RANK = 0 ] && exec sleep 600; "
                "printf '{\"message\": {\"message\": \"ValueError: bad seed\", \"extraInfo\": "
                "{\"py_callstack\": \"Traceback line\", "
                "\"timestamp\": \"1700000000\"}}}' > $TORCHELASTIC_ERROR_FILE; "
                "echo first line >&2; echo last words >&2; exit 9");
  launch.environment["TORCHELASTIC_ERROR_FILE"] = directory.file("passed-on.json");
  const Ended ended = run(launch);
  INFO(ended.err);
  REQUIRE(ended.code == 9);
  for (const char* part :
       {"rank 1", "exited with code 9", "ValueError: bad seed", "Traceback line", "last words"}) {
    CHECK_THAT(ended.err, ContainsSubstring(part));
  }
  const auto report = nlohmann::json::parse(read_file(directory.file("report.json")));
  CHECK(report.dump().find("bad seed") != std::string::npos);
  const auto passed_on = nlohmann::json::parse(read_file(directory.file("passed-on.json")));
  CHECK(passed_on["message"]["message"] == "ValueError: bad seed");
  CHECK(passed_on["message"]["errorCode"] == 9);
}

TEST_CASE("the report names only error files that remain, and drun's own has the whole record") {
  const TemporaryDirectory directory;
  for (const bool keeps_files : {false, true}) {
    CAPTURE(keeps_files);
    Words options{"--report=" + directory.file("report.json")};
    if (keeps_files) options.push_back("--log-dir=" + directory.file("logs"));
    Launch launch =
        shell_job(options, R"(echo '{"message":{"message":"m","extraInfo":{"more":"x"}}}' )"
                           R"(>"$TORCHELASTIC_ERROR_FILE"; exit 3)");
    launch.environment["TORCHELASTIC_ERROR_FILE"] = directory.file("own.json");
    const Ended ended = run(launch);
    REQUIRE(ended.code == 3);
    const auto cause =
        nlohmann::json::parse(read_file(directory.file("report.json"))).at("root_cause");
    CHECK(cause.at("message") == "m");
    CHECK(cause.at("error_file").is_string() == keeps_files);
    CHECK((ended.err.find("  files ") != std::string::npos) == keeps_files);
    if (keeps_files) CHECK(std::filesystem::exists(cause.at("error_file").get<std::string>()));
    CHECK_THAT(read_file(directory.file("own.json")), ContainsSubstring(R"("more":"x")"));
  }
}

TEST_CASE("an error file that cannot be used is named with the reason") {
  const Ended ended =
      run(shell_job({"--standalone"}, "echo nonsense > $TORCHELASTIC_ERROR_FILE; exit 9"));
  INFO(ended.err);
  CHECK(ended.code == 9);
  CHECK_THAT(ended.err, ContainsSubstring("error file ignored: it is no JSON"));
}

std::string time_of_failure_that_says(const std::string& second) {
  TemporaryDirectory directory;
  const Ended ended = run(shell_job(
      {"--standalone", "--report=" + directory.file("report.json")},
      "printf '{\"message\": {\"message\": \"bad\", \"extraInfo\": {\"timestamp\": \"%s\"}}}' " +
          second + " > $TORCHELASTIC_ERROR_FILE; exit 9"));
  INFO(ended.err);
  REQUIRE(ended.code == 9);
  return nlohmann::json::parse(read_file(directory.file("report.json")))["root_cause"]["time"];
}

TEST_CASE("a failure's time is taken from its error file") {
  CHECK(time_of_failure_that_says("1700000000") == "2023-11-14T22:13:20.000000Z");
}

TEST_CASE("a failure's time is exact if its error file has the second of the worker's end") {
  std::string time;
  do {  // retry if a second ends between the two
    time = time_of_failure_that_says("$(date +%s)");
  } while (time.find(".000000Z") != std::string::npos);
  CHECK(time.substr(0, 3) == "202");
}

TEST_CASE("stdin is empty by default, and rank 0's with --stdin=rank0") {
  Launch launch = shell_job({"--standalone", "--nproc_per_node=2"}, "echo \"$RANK:$(cat)\"");
  launch.stdin_text = "hello";
  const Ended without = run(launch);
  CHECK(has_line(without.out, "0:"));
  CHECK(has_line(without.out, "1:"));
  launch =
      shell_job({"--standalone", "--nproc_per_node=2", "--stdin=rank0"}, "echo \"$RANK:$(cat)\"");
  launch.stdin_text = "hello";
  const Ended with = run(launch);
  CHECK(has_line(with.out, "0:hello"));
  CHECK(has_line(with.out, "1:"));
}

TEST_CASE("leftover processes of a worker are terminated and reported") {
  Launch launch =
      shell_job({"--standalone", "--shutdown-timeout=1"}, "setsid sleep 600 & sleep 600 & exit 0");
  launch.environment["DRUN_TEST_LEFT"] = std::to_string(getpid());
  const Ended ended = run(launch);
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.err, ContainsSubstring("sleep"));
  CHECK(processes_with("DRUN_TEST_LEFT=" + std::to_string(getpid())).empty());
}

TEST_CASE("redirects, tee and filters put lines where torchrun puts them") {
  TemporaryDirectory directory;
  const Ended ended =
      run(shell_job({"--standalone", "--nproc_per_node=3", "--log-dir=" + directory.path(),
                     "--rdzv-id=x", "-r", "0:3,1:1", "--tee=2:3"},
                    "echo out$RANK; echo err$RANK >&2"));
  INFO(ended.err);
  REQUIRE(ended.code == 0);
  std::string run_directory;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
    run_directory = entry.path();
  const auto log = [&](const std::string& file) {
    return read_file(run_directory + "/attempt_0/" + file);
  };
  CHECK(log("0/stdout.log") == "out0\n");
  CHECK(log("0/stderr.log") == "err0\n");
  CHECK(log("1/stdout.log") == "out1\n");
  CHECK(log("2/stdout.log") == "out2\n");
  CHECK(ended.out == "[default2]:out2\n");
  CHECK(has_line(ended.err, "err1"));
  CHECK(has_line(ended.err, "[default2]:err2"));
  CHECK_THAT(ended.err, !ContainsSubstring("err0"));
}

TEST_CASE("a termination signal stops the job gracefully and sets the exit code") {
  const auto [signal, name] = GENERATE(table<int, std::string>(
      {{SIGTERM, "TERM"}, {SIGINT, "INT"}, {SIGHUP, "HUP"}, {SIGQUIT, "QUIT"}}));
  Running running(shell_job({"--standalone", "--nproc_per_node=2"},
                            "trap 'echo got-" + name + "; exit 0' " + name +
                                "; echo ready; while :; do sleep 0.05; done"));
  REQUIRE(running.prints("ready\nready\n"));
  running.signal(signal);
  const Ended ended = running.wait();
  INFO(ended.err);
  CHECK(ended.code == 128 + signal);
  CHECK(count(ended.out, "got-" + name) == 2);
  CHECK_THAT(ended.err, ContainsSubstring("SIG" + name));
}

TEST_CASE("SIGHUP stays ignored if it was ignored at the start") {
  Launch launch = shell_job({"--standalone"}, "echo ready; cat $DIR/go; exit 5");
  TemporaryDirectory directory;
  REQUIRE(mkfifo(directory.file("go").c_str(), 0600) == 0);
  launch.environment["DIR"] = directory.path();
  launch.argv.insert(launch.argv.begin(), {"nohup"});
  Running running(launch);
  REQUIRE(running.prints("ready"));
  running.signal(SIGHUP);
  write_file(directory.file("go"), "now");
  CHECK(running.wait().code == 5);
}

TEST_CASE("USR1, USR2 and CONT are passed on to the workers and change nothing else") {
  Running running(shell_job({"--standalone", "--nproc_per_node=2"},
                            "n=0; trap 'echo usr1' USR1; trap 'echo usr2; n=1' USR2; echo ready; "
                            "while [ $n = 0 ]; do sleep 0.05; done; exit 6"));
  REQUIRE(running.prints("ready\nready\n"));
  running.signal(SIGUSR1);
  REQUIRE(eventually([&] { return count(running.out(), "usr1") == 2; }));
  running.signal(SIGUSR2);
  CHECK(running.wait().code == 6);
}

TEST_CASE("a second Ctrl-C kills at once") {
  Running running(
      shell_job({"--standalone", "--nproc_per_node=2"},
                "trap 'echo asked' INT TERM; echo ready; while :; do sleep 0.05; done"));
  REQUIRE(running.prints("ready\nready\n"));
  running.signal(SIGINT);
  REQUIRE(eventually([&] { return count(running.out(), "asked") == 2; }));
  // Two signals within 200 ms count as one: shells and `timeout` can send it twice.
  const auto first = std::chrono::steady_clock::now();
  REQUIRE(eventually([&] { return std::chrono::steady_clock::now() - first > 300ms; }));
  running.signal(SIGINT);
  const Ended ended = running.wait(10s);
  CHECK_FALSE(ended.timed_out);
  CHECK(ended.code == 130);
}

TEST_CASE("killing drun leaves no process and no file of the job") {
  const std::string mark = "DRUN_TEST_ORPHAN=" + std::to_string(getpid());
  const bool kills_agent = GENERATE(false, true);
  Launch launch = shell_job({"--standalone", "--nproc_per_node=2", "--hang-timeout=600"},
                            "trap '' TERM HUP INT; setsid sh -c 'trap \"\" TERM; (sleep 600 & "
                            "sleep 600) & exec sleep 600' & "
                            "echo file $DRUN_HEARTBEAT_FILE; echo file $TORCHELASTIC_ERROR_FILE; "
                            "echo ready; while :; do sleep 600; done");
  launch.environment["DRUN_TEST_ORPHAN"] = std::to_string(getpid());
  Running running(launch);
  REQUIRE(eventually([&] {
    const std::string& out = running.out();
    const std::size_t first = out.find("ready\n");
    return first != out.npos && out.find("ready\n", first + 1) != out.npos;
  }));
  REQUIRE(eventually([&] { return processes_with(mark).size() >= 8; }));
  pid_t victim = running.pid();
  if (kills_agent) {
    for (const pid_t pid : processes_with(mark)) {
      const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat");
      if (stat.find(") ") != stat.npos &&
          std::stoi(stat.substr(stat.find(") ") + 4)) == running.pid())
        victim = pid;
    }
    REQUIRE(victim != running.pid());
  }
  kill(victim, SIGKILL);
  CHECK(eventually([&] { return processes_with(mark).empty(); }, 15s));
  const Ended ended = running.wait();
  CHECK(ended.code == 137);
  std::istringstream lines(ended.out);
  int files = 0;
  for (std::string word, file; lines >> word;) {
    if (word != "file" || !(lines >> file)) continue;
    ++files;
    CHECK(eventually([&, directory = std::filesystem::path(file).parent_path()] {
      return !std::filesystem::exists(directory);
    }));
  }
  CHECK(files == 4);
}

TEST_CASE("a program that fails three times in the same way is not restarted again") {
  const auto began = std::chrono::steady_clock::now();
  const Ended ended = run(shell_job({"--standalone", "--nproc_per_node=1", "--max-restarts=5"},
                                    "echo \"unknown option --lr (pid $$)\" >&2; exit 3"),
                          60s);
  INFO(ended.err);
  CHECK(ended.code == 3);
  CHECK(std::chrono::steady_clock::now() - began >= 3s);
  CHECK_THAT(ended.err, ContainsSubstring("restart 1 of at most 5, in 1") &&
                            ContainsSubstring("restart 2 of at most 5, in 2") &&
                            ContainsSubstring("no restart: the job failed 3 times in a row") &&
                            !ContainsSubstring("restart 3"));
}

TEST_CASE("a job that makes progress gets new restarts, and ends without progress") {
  const TemporaryDirectory directory;
  const std::string shows = GENERATE("echo step $n >>$DRUN_PROGRESS_FILE", "touch $CHECKPOINTS/$n");
  Launch launch =
      shell_job({"--standalone", "--nproc_per_node=2", "--max-restarts=1/progress",
                 "--restart-backoff=0", "--checkpoint-dir=" + directory.path()},
                "n=$TORCHELASTIC_RESTART_COUNT; [ $n -ge 4 ] || { " + shows + "; }; exit 3");
  launch.environment["CHECKPOINTS"] = directory.path();
  const Ended ended = run(launch, 60s);
  INFO(ended.err);
  CHECK(ended.code == 3);
  CHECK_THAT(ended.err, ContainsSubstring("restart 4, 1 of at most 1 since the last progress") &&
                            ContainsSubstring(
                                "no restart: the only restart since the last progress is used") &&
                            !ContainsSubstring("restart 5"));
}

TEST_CASE("with --max-same-failures=0 and no backoff all restarts are used") {
  const Ended ended = run(shell_job({"--standalone", "--nproc_per_node=1", "--max-restarts=5",
                                     "--max-same-failures=0", "--restart-backoff=0"},
                                    "exit 3"),
                          60s);
  INFO(ended.err);
  CHECK(ended.code == 3);
  CHECK_THAT(ended.err, ContainsSubstring("restart 5 of at most 5:") &&
                            ContainsSubstring("no restart: all 5 restarts are used"));
}

TEST_CASE("a temporary directory that does not exist is named") {
  Launch launch = shell_job({"--standalone"}, "true");
  launch.environment["TMPDIR"] = "/nowhere";
  const Ended ended = run(launch);
  CHECK(ended.code == 125);
  CHECK_THAT(ended.err,
             ContainsSubstring("cannot use the temporary directory /nowhere: no such file or "
                               "directory; set TMPDIR or --log-dir"));
}

TEST_CASE("a temporary directory that cannot hold files is a system error") {
  for (const std::string redirects : {"0", "3"}) {
    Launch launch = shell_job({"--redirects=" + redirects}, "true");
    launch.environment["TMPDIR"] = "/proc/self";
    const Ended ended = run(launch);
    INFO(ended.err);
    CHECK(ended.code == 125);
    CHECK_THAT(ended.err, ContainsSubstring("/proc/self: ") && ContainsSubstring("--log-dir"));
  }
}

TEST_CASE("an empty TMPDIR is one that is not set") {
  Launch launch = shell_job({"--standalone"}, "true");
  for (const std::string variable : {"TMPDIR", "TMP", "TEMP", "TEMPDIR"})
    launch.environment[variable] = "";
  const Ended ended = run(launch);
  INFO(ended.err);
  CHECK(ended.code == 0);
}

TEST_CASE("a preloaded interpreter that hangs in a fork does not delay the end of a job") {
  const int interrupts = GENERATE(1, 2);
  CAPTURE(interrupts);
  const TemporaryDirectory directory;
  write_file(directory.file("hanging.py"),
             "import os, sys, time\n"
             "def hang():\n"
             "  open(os.environ['MARK'], 'w').close()\n"
             "  time.sleep(600)\n"
             "os.register_at_fork(before=hang)\n");
  write_file(directory.file("train.py"), "");
  Launch launch{.argv = {drun_program(), "--nproc-per-node=1", "--preload=hanging",
                         "--log-level=info", directory.file("train.py")}};
  launch.environment["PYTHONPATH"] = directory.path();
  launch.environment["MARK"] = directory.file("forking");
  Running job(launch);
  REQUIRE(eventually([&] { return std::filesystem::exists(directory.file("forking")); }, 20s));
  const auto began = std::chrono::steady_clock::now();
  job.signal(SIGINT);
  if (interrupts == 2) {
    REQUIRE(job.prints("got SIGINT"));
    job.signal(SIGINT);
  }
  const Ended ended = job.wait(60s);
  CAPTURE(ended.err);
  CHECK(ended.code == 130);
  CHECK(std::chrono::steady_clock::now() - began < 15s);  // a fork has 30 s otherwise
  CHECK(ended.err.find("started again") == ended.err.npos);
}

TEST_CASE("a preloaded interpreter that hung in a fork is started again for the next round") {
  const TemporaryDirectory directory;
  // Starting a worker takes two forks, the second one in a child of the interpreter. Only that one
  // is counted, because the interpreter itself may fork once more to end threads. The second child
  // belongs to local rank 1.
  write_file(directory.file("hanging.py"),
             "import os, time\n"
             "interpreter = os.getpid()\n"
             "def hang():\n"
             "  if os.getpid() == interpreter: return\n"
             "  with open(os.environ['FORKS'], 'a') as file: file.write('.')\n"
             "  if os.path.getsize(os.environ['FORKS']) == 2:\n"
             "    open(os.environ['MARK'], 'w').close()\n"
             "    time.sleep(600)\n"
             "os.register_at_fork(before=hang)\n");
  write_file(directory.file("train.py"),
             "import os, sys, time\n"
             "print('preloaded' if 'hanging' in sys.modules else 'plain', flush=True)\n"
             "while not os.path.exists(os.environ['MARK']): time.sleep(0.02)\n"
             "sys.exit(3 if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' else 0)\n");
  Launch launch{.argv = {drun_program(), "--nproc-per-node=2", "--preload=hanging",
                         "--max-restarts=1", directory.file("train.py")}};
  launch.environment["PYTHONPATH"] = directory.path();
  launch.environment["FORKS"] = directory.file("forks");
  launch.environment["MARK"] = directory.file("forking");
  const auto began = std::chrono::steady_clock::now();
  const Ended ended = run(launch, 60s);
  CAPTURE(ended.err);
  CHECK(ended.code == 0);
  CHECK(ended.out == "preloaded\npreloaded\npreloaded\n");
  CHECK(std::chrono::steady_clock::now() - began < 15s);
}

}  // namespace drun::testing
