#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"
#include "tests/support/job.h"
#include "tests/support/places.h"

namespace drun::testing {
namespace {

using nlohmann::json;

struct Diagnosed {
  Ended ended;
  json diagnosis;
};

Diagnosed run_with_report(Launch launch, std::chrono::milliseconds at_most = 60s) {
  const TemporaryDirectory directory;
  const std::string report = directory.path() + "/report.json";
  launch.argv.insert(launch.argv.begin() + 1, "--report=" + report);
  Diagnosed found{.ended = run(launch, at_most), .diagnosis = {}};
  std::ifstream file(report);
  found.diagnosis = json::parse(file).at("diagnosis");
  return found;
}

}  // namespace

TEST_CASE("a failed job says what was wrong with which rank, and what to do") {
  const Diagnosed found = run_with_report(shell_job(
      {"--nproc-per-node=3"},
      "[ $RANK = 2 ] || sleep 60\n"
      "echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB' >&2; exit 1"));
  INFO(found.ended.err << found.diagnosis.dump());
  CHECK_THAT(found.ended.err, ContainsSubstring("\n  cause      rank 2 ran out of GPU memory\n"
                                                "             a restart does not help; "));
  CHECK(found.diagnosis.at("class") == "gpu_memory");
  CHECK(found.diagnosis.at("ranks") == json::parse("[[2, 2]]"));
  CHECK(found.diagnosis.at("restart_helps") == "no");
}

TEST_CASE("a plain crash has a diagnosis in the report and no cause on the console") {
  const Diagnosed found =
      run_with_report(shell_job({"--nproc-per-node=2"}, "[ $RANK = 1 ] || sleep 60; exit 3"));
  INFO(found.ended.err << found.diagnosis.dump());
  CHECK(found.ended.err.find("  cause") == std::string::npos);
  CHECK(found.diagnosis.at("class") == "crash");
  CHECK(found.diagnosis.at("ranks") == json::parse("[[1, 1]]"));
}

TEST_CASE("a fatal signal has a cause with the facts of its node") {
  const std::string signal = GENERATE("KILL", "SEGV", "ABRT");
  CAPTURE(signal);
  const Diagnosed found = run_with_report(shell_job(
      {"--nproc-per-node=2"}, "[ $RANK = 1 ] || sleep 60; ulimit -c 0; kill -" + signal + " $$"));
  INFO(found.ended.err << found.diagnosis.dump());
  CHECK_THAT(found.ended.err,
             ContainsSubstring("  cause      rank 1 ") && !ContainsSubstring("  traceback"));
  CHECK(found.diagnosis.at("class") == "crash");
  const std::string text = found.diagnosis.at("summary").get<std::string>() + "; " +
                           found.diagnosis.at("advice").get<std::string>();
  CHECK_THAT(text, ContainsSubstring(signal == "KILL" ? "out-of-memory kill" : "no core dump"));
}

TEST_CASE("a SIGBUS where /dev/shm is full is a lack of memory") {
  if (geteuid() != 0) {
    WARN("skipped: only root can replace /dev/shm");
    return;
  }
  Launch launch = shell_job({"--nproc-per-node=1"},
                            "head -c 2000000 /dev/zero >/dev/shm/fill 2>&-; kill -BUS $$");
  launch.argv =
      Words{"unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=1m tmpfs /dev/shm && exec \"$@\"",
            "sh"} +
      launch.argv;
  const Ended ended = run(launch);
  INFO(ended.err);
  CHECK(ended.code == 128 + SIGBUS);
  CHECK_THAT(ended.err, ContainsSubstring("rank 0 got SIGBUS, and /dev/shm is full") &&
                            ContainsSubstring("--shm-size"));
}

TEST_CASE("an error is found before the lines that a library prints behind it") {
  const bool is_redirected = GENERATE(false, true);
  const TemporaryDirectory directory;
  Words options{"--nproc-per-node=1", "--report=" + directory.file("report.json")};
  if (is_redirected)
    options = options + Words{"--redirects=2", "--log-dir=" + directory.file("log")};
  const Ended ended =
      run(shell_job(options,
                    "exec >&2; echo 'Traceback (most recent call last):'\n"
                    "echo '  File \"train.py\", line 3, in step'\n"
                    "echo 'ValueError: bad batch'\n"
                    "for i in $(seq 40); do echo \"gpu0:1:2 [0] NCCL note $i\"; done\n"
                    "exit 1"));
  INFO(ended.err);
  CHECK_THAT(ended.err,
             ContainsSubstring("\n  error      ValueError: bad batch\n") &&
                 ContainsSubstring("\n  traceback  Traceback (most recent call last):\n"
                                   "               File \"train.py\", line 3, in step\n"));
  const json cause = json::parse(read_file(directory.file("report.json"))).at("root_cause");
  CHECK(cause.at("error") == "ValueError: bad batch");
  CHECK(cause.at("stderr_tail").size() == 20);
}

TEST_CASE("all nodes have the same diagnosis, with the node to exclude") {
  Nodes nodes(2);
  for (int node = 0; node < 2; ++node)
    nodes.start(node, {"--nproc-per-node=1"},
                "[ $RANK = 1 ] || sleep 60\n"
                "echo 'RuntimeError: CUDA error: uncorrectable ECC error encountered' >&2; exit 1");
  nodes.wait();
  const json diagnosis = nodes.report(0).at("diagnosis");
  CHECK(diagnosis == nodes.report(1).at("diagnosis"));
  CHECK(diagnosis.at("class") == "hardware");
  CHECK(diagnosis.at("exclude_node") == 1);
}

TEST_CASE("an error of a GPU in the kernel log is the cause of an error of CUDA") {
  if (geteuid() != 0) {
    WARN("skipped: only root can put a file in place of the kernel log");
    return;
  }
  const TemporaryDirectory directory;
  const std::string log = directory.path() + "/kmsg";
  std::ofstream(log) << "3,1,1,-;NVRM: Xid (PCI:0000:01:00): 48, before the job\n";
  Launch launch = shell_job(
      {"--nproc-per-node=3"},
      "[ $RANK = 1 ] || sleep 60\n"
      "echo \"3,2,2,-;NVRM: Xid (PCI:0000:c1:00): 79, pid=$$, name=sh, GPU has fallen off the "
      "bus.\" >> " +
          log + "\necho 'RuntimeError: CUDA error: unspecified launch failure' >&2; exit 1");
  const Words in_namespace{
      "unshare", "-m", "sh", "-c", "mount --bind \"$0\" /dev/kmsg && exec \"$@\"", log};
  const std::string report = directory.path() + "/report.json";
  launch.argv.insert(launch.argv.begin() + 1, "--report=" + report);
  launch.argv = in_namespace + launch.argv;
  const Ended ended = run(launch, 60s);
  std::ifstream file(report);
  const json diagnosis = json::parse(file).at("diagnosis");
  INFO(ended.err << diagnosis.dump());
  CHECK_THAT(ended.err,
             ContainsSubstring("\n  cause      node 0 (rank 1): the GPU has fallen off the bus "
                               "(Xid 79)\n"));
  CHECK(diagnosis.at("class") == "hardware");
  CHECK(diagnosis.at("ranks") == json::parse("[[1, 1]]"));
  CHECK(diagnosis.at("exclude_node") == 0);
}

TEST_CASE("a stopped rank is the cause of a hang") {
  const Diagnosed found = run_with_report(
      shell_job({"--nproc-per-node=3", "--hang-timeout=6"},
                "[ $RANK = 1 ] && kill -STOP $$; while :; do echo $RANK; sleep 0.2; done"),
      100s);
  INFO(found.ended.err << found.diagnosis.dump());
  CHECK(found.diagnosis.at("class") == "missing_rank");
  CHECK(found.diagnosis.at("ranks") == json::parse("[[1, 1]]"));
  CHECK_THAT(found.ended.err, ContainsSubstring("  cause      rank 1 is stopped") &&
                                  ContainsSubstring("stopped, no output and no CPU time"));
}

TEST_CASE("a program that does not exist is the user's error") {
  const Diagnosed found =
      run_with_report(shell_job({"--nproc-per-node=1"}, "exec python3 /nonexistent/train.py"));
  INFO(found.ended.err << found.diagnosis.dump());
  CHECK(found.diagnosis.at("class") == "user_error");
}

TEST_CASE("a successful job and an interrupted one are not failures") {
  CHECK(run_with_report(shell_job({}, "true")).diagnosis.is_null());
  const Diagnosed stopped =
      run_with_report(shell_job({"--nproc-per-node=1"}, "kill -TERM $PPID; sleep 60"));
  INFO(stopped.ended.err);
  CHECK(stopped.diagnosis.at("class") == "interrupted");
}

TEST_CASE("faults of a PyTorch job get the right class and rank", "[slow]") {
  const char* const python = std::getenv("DRUN_TORCH_PYTHON");
  if (python == nullptr) {
    WARN("skipped: DRUN_TORCH_PYTHON names no Python with a current torch");
    return;
  }
  struct Fault {
    const char* name;
    const char* fault_class;
    const char* ranks;
    const char* debug = "";
    std::vector<std::string> arguments{};  // rank, step, timeout of collectives
  };
  for (const Fault& each :
       {Fault{"kill", "crash", "[[1, 1]]"}, Fault{"memory", "host_memory", "[[1, 1]]"},
        Fault{"allocator", "host_memory", "[[1, 1]]"}, Fault{"loader", "data_loader", "[[1, 1]]"},
        Fault{"desync", "desync", "[[0, 1]]", "DETAIL"},
        // Gloo's timeout, after which the stacks of the other rank decide.
        Fault{"operation", "desync", "[[0, 1]]", "", {"1", "2", "6"}},
        Fault{"sleep", "missing_rank", "[[1, 1]]", "", {"1", "2", "6"}}}) {
    Words program{source_file("tests/workers/torch_faults.py"), each.name};
    program.insert(program.end(), each.arguments.begin(), each.arguments.end());
    Launch launch = job({"--standalone", "--nproc-per-node=2"}, program);
    launch.environment["PYTHON_EXEC"] = python;
    if (*each.debug != '\0') launch.environment["TORCH_DISTRIBUTED_DEBUG"] = each.debug;
    const Diagnosed found = run_with_report(launch, 250s);
    INFO(each.name << "\n" << found.ended.err << found.diagnosis.dump());
    CHECK(found.diagnosis.at("class") == each.fault_class);
    CHECK(found.diagnosis.at("ranks") == json::parse(each.ranks));
  }
  Launch launch = job({"--standalone", "--nproc-per-node=2"},
                      {source_file("tests/workers/torch_faults.py"), "import"});
  launch.environment["PYTHON_EXEC"] = python;
  const Diagnosed found = run_with_report(launch, 250s);
  CHECK(found.diagnosis.at("class") == "user_error");
}

TEST_CASE("PyTorch's Flight Recorder shows the rank that others wait for") {
  const char* const python = std::getenv("DRUN_TORCH_PYTHON");
  if (python == nullptr) {
    WARN("skipped: DRUN_TORCH_PYTHON names no Python with a current torch");
    return;
  }
  // The tools for stacks are not on this PATH.
  Launch launch = job({"--standalone", "--nproc-per-node=2", "--preload=torch", "--hang-timeout=6"},
                      {source_file("tests/workers/torch_faults.py"), "lock", "1", "3"});
  launch.environment["PYTHON_EXEC"] = python;
  launch.environment["PATH"] = "/nonexistent";
  const Diagnosed found = run_with_report(launch, 250s);
  INFO(found.ended.err << found.diagnosis.dump());
  CHECK_THAT(found.ended.err,
             ContainsSubstring("Flight Recorder: call 4 in 0 (default_pg): all_reduce, scheduled"));
  CHECK(found.diagnosis.at("class") == "missing_rank");
  CHECK(found.diagnosis.at("ranks") == json::parse("[[1, 1]]"));
}

TEST_CASE("a failure after which a restart does not help ends the job if the options say so") {
  const std::string missing = "echo \"ModuleNotFoundError: No module named 'x'\" >&2; exit 1";
  const Ended pointless = run(
      shell_job({"--nproc-per-node=1", "--max-restarts=3", "--no-restart-on=pointless"}, missing));
  CHECK_THAT(pointless.err, ContainsSubstring("no restart: --no-restart-on names pointless, and a "
                                              "restart does not help after user_error"));
  CHECK(pointless.err.find("restart 1 of") == std::string::npos);
  const Ended other = run(shell_job(
      {"--nproc-per-node=1", "--max-restarts=3", "--restart-on=network,hardware"}, missing));
  CHECK_THAT(other.err,
             ContainsSubstring("no restart: --restart-on does not name it (user_error)"));
  const Ended lost = run(shell_job(
      {"--nproc-per-node=1", "--max-restarts=1", "--restart-on=network", "--restart-backoff=0"},
      "echo 'Connection refused' >&2; exit 1"));
  CHECK_THAT(lost.err, ContainsSubstring("restart 1 of at most 1"));
}

}  // namespace drun::testing
