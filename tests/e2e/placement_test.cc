// Tests where workers run, their wrapper commands, and invalid placement options.

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "tests/support/catch.h"
#include "tests/support/job.h"
#include "tests/support/places.h"

namespace drun::testing {
namespace {

std::vector<int> our_cpus() {
  cpu_set_t set;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(static_cast<int>(cpu));
  return cpus;
}

nlohmann::json plan_of(const Words& options) {
  const Ended ended = run(job(options + Words{"--dry-run=json"}, {"true"}));
  INFO(ended.err);
  REQUIRE(ended.code == 0);
  return nlohmann::json::parse(ended.out);
}

// A control group with a quota of `cpus` CPUs, removed at the end. The path is empty if none can be
// created.
class Quota {
 public:
  explicit Quota(int cpus) {
    namespace fs = std::filesystem;
    std::error_code ec;
    const std::string name = "/drun_test_" + std::to_string(getpid());
    if (fs::exists("/sys/fs/cgroup/cgroup.controllers", ec)) {
      make("/sys/fs/cgroup" + name, "cpu.max", std::to_string(cpus * 100000) + " 100000");
    } else {
      make("/sys/fs/cgroup/cpu" + name, "cpu.cfs_quota_us", std::to_string(cpus * 100000));
    }
  }
  ~Quota() {
    std::error_code ec;
    if (!path_.empty()) std::filesystem::remove(path_, ec);
  }
  Quota(const Quota&) = delete;
  Quota& operator=(const Quota&) = delete;
  const std::string& path() const { return path_; }

 private:
  void make(const std::string& path, const std::string& file, const std::string& text) {
    std::error_code ec;
    if (!std::filesystem::create_directory(path, ec)) return;
    path_ = path;
    if (std::filesystem::exists(path + "/" + file, ec)) write_file(path + "/" + file, text);
    if (!read_file(path + "/" + file).starts_with(text)) {
      std::filesystem::remove(path, ec);
      path_.clear();
    }
  }
  std::string path_;
};

const std::string kTellCpus =
    "echo \"rank $RANK on $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)\"";

}  // namespace

TEST_CASE("workers bound to cores run on different CPUs, as in the plan and the report") {
  if (our_cpus().size() < 2) {
    WARN("skipped: only one CPU is allowed here");
    return;
  }
  TemporaryDirectory directory;
  const Words options{"--standalone", "--bind-to=core", "--nproc-per-node=2",
                      "--report=" + directory.file("report.json")};
  const Ended probe = run(job(options + Words{"--dry-run=json"}, {"true"}));
  if (probe.code == 2) {
    WARN("skipped: only one core is allowed here");
    return;
  }
  const nlohmann::json places = nlohmann::json::parse(probe.out)["placement"];
  const Ended ended = run(shell_job(options, kTellCpus));
  INFO(ended.err);
  REQUIRE(ended.code == 0);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string cpus = places[static_cast<std::size_t>(rank)]["cpus"];
    CHECK_THAT(ended.out, ContainsSubstring("rank " + std::to_string(rank) + " on " + cpus + "\n"));
  }
  CHECK(places[0]["cpus"] != places[1]["cpus"]);
  CHECK(nlohmann::json::parse(read_file(directory.file("report.json")))["placement"] == places);
}

TEST_CASE("with one allowed CPU drun binds a worker to it and rejects a second worker") {
  const std::string cpu = std::to_string(our_cpus().back());
  Launch launch = shell_job({"--standalone", "--bind-to=core"}, kTellCpus);
  launch.argv = Words{"taskset", "-c", cpu} + launch.argv;
  const Ended ended = run(launch);
  INFO(ended.err);
  CHECK(ended.out == "rank 0 on " + cpu + "\n");
  launch = shell_job({"--standalone", "--bind-to=core", "--nproc-per-node=2"}, "echo started");
  launch.argv = Words{"taskset", "-c", cpu} + launch.argv;
  const Ended refused = run(launch);
  CHECK(refused.code == 2);
  CHECK(refused.out.empty());
  CHECK_THAT(refused.err, ContainsSubstring("--bind-to=core: 2 workers with a core each") &&
                              ContainsSubstring("start fewer"));
}

TEST_CASE("without placement options workers run on drun's CPUs") {
  const Ended plain = run(shell_job({"--standalone"}, kTellCpus));
  const Ended none = run(shell_job({"--standalone", "--bind-to=none"}, kTellCpus));
  CHECK(plain.out == none.out);
  CHECK(plan_of({"--standalone"})["placement"].is_null());
}

TEST_CASE("OMP_NUM_THREADS is the requested number, or the number of a worker's cores") {
  const auto threads = [](const Words& options) {
    Launch launch = shell_job(Words{"--standalone"} + options, "echo $OMP_NUM_THREADS");
    launch.environment["OMP_NUM_THREADS"] = "77";
    return run(launch).out;
  };
  CHECK(threads({}) == "77\n");
  CHECK(threads({"--omp-threads=3"}) == "3\n");
  CHECK(threads({"--omp-threads=auto", "--bind-to=core"}) == "1\n");
  const auto workers = std::to_string(our_cpus().size());
  const std::string shared = threads({"--omp-threads=auto", "--nproc-per-node=" + workers});
  CHECK(shared.substr(0, 2) == "1\n");
}

TEST_CASE("each worker sees different GPUs") {
  Launch launch = shell_job(
      {"--standalone", "--nproc-per-node=2", "--gpus-per-worker=2", "--virtual-local-rank"},
      "echo \"rank $RANK local $LOCAL_RANK sees $CUDA_VISIBLE_DEVICES\"");
  if (std::filesystem::exists("/proc/driver/nvidia") || std::filesystem::exists("/dev/nvidia0") ||
      std::filesystem::exists("/sys/class/kfd")) {
    WARN("skipped: this machine has GPUs, so the list cannot be made up");
    return;
  }
  launch.environment["CUDA_VISIBLE_DEVICES"] = "4,5,6,7";
  const Ended ended = run(launch);
  INFO(ended.err);
  CHECK_THAT(ended.out, ContainsSubstring("rank 0 local 0 sees 4,5\n"));
  CHECK_THAT(ended.out, ContainsSubstring("rank 1 local 0 sees 6,7\n"));
}

TEST_CASE("only the chosen ranks are wrapped in a command") {
  const Ended ended =
      run(shell_job({"--standalone", "--nproc-per-node=3",
                     "--wrap=env 'WRAPPED=as ${rank} of ${local_rank}'", "--wrap-ranks=0,2"},
                    "echo \"rank $RANK $WRAPPED.\""));
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.out, ContainsSubstring("rank 0 as 0 of 0.\n"));
  CHECK_THAT(ended.out, ContainsSubstring("rank 1 .\n"));
  CHECK_THAT(ended.out, ContainsSubstring("rank 2 as 2 of 2.\n"));
}

TEST_CASE("a wrapped worker's exit code is that of the wrapping command") {
  const Ended ended =
      run(shell_job({"--standalone", "--wrap=nice -n 5"}, "exit $(( $(nice) + 30 ))"));
  CHECK(ended.code == 30 + std::min(::getpriority(PRIO_PROCESS, 0) + 5, 19));
}

TEST_CASE("ranks to wrap are counted over all nodes, and a missing rank causes a warning") {
  Nodes nodes(2, {"--nproc-per-node=1", "--wrap=env WRAPPED=${rank}", "--wrap-ranks=1,9"});
  nodes.start(0, {}, "echo \"[$WRAPPED]\"");
  nodes.start(1, {}, "echo \"[$WRAPPED]\"");
  const std::vector<Ended> ended = nodes.wait();
  CHECK(ended[0].out == "[]\n");
  CHECK(ended[1].out == "[1]\n");
  CHECK_THAT(ended[0].err, ContainsSubstring("--wrap-ranks: there is no rank 9; ranks are 0 to 1"));
  CHECK(ended[1].err.empty());
}

TEST_CASE("invalid placement options are rejected before anything starts") {
  const auto [options, code, reason] = GENERATE(table<Words, int, std::string>({
      {{"--bind-to=corner"}, 2, "--bind-to=corner: expected one of none, core, socket, numa, gpu"},
      {{"--numa-binding=core"}, 2, "--numa-binding=core: expected one of node, socket"},
      {{"--bind-to=core", "--numa-binding=node"}, 2, "remove one of them"},
      {{"--bind-memory=strict"}, 2, "--bind-memory=strict: no worker is bound"},
      {{"--omp-threads=none"}, 2, "--omp-threads=none: expected"},
      {{"--gpus-per-worker=0"}, 2, "--gpus-per-worker=0: expected"},
      {{"--wrap-ranks=0"}, 2, "it requires --wrap"},
      {{"--wrap=env", "--wrap-ranks=1"}, 2, "there is no rank 1"},
      {{"--wrap=env 'X=1"}, 2, "is not closed"},
      {{"--wrap=/no/such/debugger --args"}, 127, "--wrap: /no/such/debugger: no such file"},
  }));
  CAPTURE(reason);
  const Ended ended = run(shell_job(Words{"--standalone"} + options, "echo started"));
  CHECK(ended.code == code);
  CHECK(ended.out.empty());
  CHECK_THAT(ended.err, ContainsSubstring(reason));
}

TEST_CASE("with a quota of one CPU there is one worker with one thread") {
  const Quota quota(1);
  if (quota.path().empty()) {
    WARN("skipped: no control group with a quota can be made here");
    return;
  }
  if (our_cpus().size() < 2) {
    WARN("skipped: only one CPU is allowed here anyway");
    return;
  }
  Launch launch = shell_job({"--standalone", "--nproc-per-node=cpu", "--omp-threads=auto"},
                            "echo $WORLD_SIZE $OMP_NUM_THREADS");
  launch.argv =
      Words{"sh", "-c", "echo $$ > " + quota.path() + "/cgroup.procs && exec \"$@\"", "sh"} +
      launch.argv;
  const Ended ended = run(launch);
  INFO(ended.err);
  CHECK(ended.out == "1 1\n");
  CHECK(eventually([&] { return read_file(quota.path() + "/cgroup.procs").empty(); }));
}

TEST_CASE("a placement that the kernel refuses is a warning, or an error if it was strict") {
  const auto under = [](const std::string& refused, const Words& options) {
    Launch launch = shell_job(Words{"--standalone", "--nproc-per-node=2"} + options, "echo ran");
    launch.argv = Words{built("workers/refuse"), refused} + launch.argv;
    return run(launch);
  };
  if (under("memory", {}).code == 77) {
    WARN("skipped: no system call can be refused here");
    return;
  }
  const Ended wished = under("memory", {"--bind-to=numa"});
  INFO(wished.err);
  CHECK(wished.code == 0);
  CHECK(wished.out == "ran\nran\n");
  CHECK_THAT(wished.err, ContainsSubstring("does not let workers' memory be placed: operation not "
                                           "permitted; give the container that right"));
  const Ended strict = under("memory", {"--bind-to=numa", "--bind-memory=strict"});
  INFO(strict.err);
  CHECK(strict.code == 126);
  CHECK(strict.out.empty());
  CHECK_THAT(strict.err, ContainsSubstring("local rank 0 cannot be bound to memory of NUMA node 0: "
                                           "operation not permitted; choose --bind-memory=prefer"));
  const Ended cpus = under("affinity", {"--bind-to=numa"});
  INFO(cpus.err);
  CHECK(cpus.code == 126);
  CHECK(cpus.out.empty());
  CHECK_THAT(cpus.err, ContainsSubstring("local rank 0 cannot be bound to CPUs"));
  CHECK(under("memory", {"--bind-to=numa", "--bind-memory=none"}).err.empty());
}

}  // namespace drun::testing
