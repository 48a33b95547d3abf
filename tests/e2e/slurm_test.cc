// Tests drun under a real Slurm with three nodes on this machine.
#include <csignal>
#include <nlohmann/json.hpp>

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/job_traces.h"
#include "tests/support/slurm_cluster.h"

namespace drun::testing {
namespace {

// Extracts a word from rank 0's line: "0/6 node01:20001 slurm-1.0".
std::string word_after(const std::string& text, const std::string& lead) {
  const std::size_t at = text.find(lead);
  if (at == std::string::npos) return "";
  const std::size_t begin = at + lead.size();
  return text.substr(begin, text.find_first_of(" \n", begin) - begin);
}

const std::string kWhoUnderSlurm =
    "echo \"$RANK/$WORLD_SIZE $GROUP_RANK $MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_RUN_ID "
    "procid=$SLURM_PROCID.\"";

}  // namespace

TEST_CASE("under srun the command is only drun and the program", "[slurm]") {
  const SlurmCluster slurm;
  if (!is_there(slurm)) return;

  const Ended ended = slurm.run({"srun", "-N3", "-c2", drun_program(), "sh", "-c", kWhoUnderSlurm});
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  const std::string port = word_after(ended.out, "0/6 0 node01:");
  for (const std::string rank : {"0/6 0", "1/6 0", "2/6 1", "3/6 1", "4/6 2", "5/6 2"}) {
    CHECK_THAT(ended.out, ContainsSubstring(rank + " node01:" + port + " slurm-1.0 procid=.\n"));
  }

  // Without ports reserved by Slurm, and in an order different from Slurm's.
  write_file(slurm.directory().file("order"), "node03\nnode01\nnode02\n");
  Launch arbitrary =
      slurm.launch({"srun", "-n3", "--distribution=arbitrary", "env", "-u", "SLURM_STEP_RESV_PORTS",
                    drun_program(), "sh", "-c", kWhoUnderSlurm});
  arbitrary.environment["SLURM_HOSTFILE"] = slurm.directory().file("order");
  const Ended derived = run(arbitrary, 60s);
  INFO(derived.out << derived.err);
  CHECK(derived.code == 0);
  for (const std::string rank : {"0/3 0", "1/3 1", "2/3 2"})
    CHECK_THAT(derived.out, ContainsSubstring(rank + " node01:6"));

  const Ended dry = slurm.run(
      {"srun", "-N2", "--nodelist=node[02-03]", drun_program(), "--dry-run=json", "true"});
  CHECK(dry.code == 0);
  CHECK(count(dry.out, "\"from\": \"SLURM_STEP_NODELIST\"") == 2);
  CHECK(count(dry.out, "\"value\": \"node02\"") == 2);

  const Ended failed = slurm.run(
      {"srun", "-N3", drun_program(), "sh", "-c", "[ $RANK != 1 ] || exit 41; exec sleep 600"});
  CHECK(failed.code == 41);

  if (slurm.has_gpus()) {
    const Ended gpus = slurm.run({"srun", "-N2", "--gpus-per-node=2", drun_program(),
                                  "--virtual-local-rank", "--gpus-per-worker=1", "sh", "-c",
                                  "echo $RANK/$WORLD_SIZE=$CUDA_VISIBLE_DEVICES."});
    INFO(gpus.out << gpus.err);
    CHECK(gpus.code == 0);
    for (const char* each : {"0/4=0.", "1/4=1.", "2/4=0.", "3/4=1."})
      CHECK_THAT(gpus.out, ContainsSubstring(each));
  } else {
    WARN("skipped: workers by Slurm's GPUs: no device can be made here");
  }

  const Ended several = slurm.run({"srun", "-N3", "-n6", drun_program(), "true"});
  CHECK(several.code == 2);
  CHECK_THAT(several.err, ContainsSubstring("6 tasks on 3 nodes"));
  CHECK_THAT(several.err, ContainsSubstring("srun -N3 -n3 --ntasks-per-node=1"));

  // The step inherits SLURM_CPUS_PER_TASK=2 but has one CPU per node.
  const Ended exact = slurm.run({"salloc", "-N2", "-n2", "-c2", "--quiet", "srun", "--exact",
                                 drun_program(), "sh", "-c", kWhoUnderSlurm});
  INFO(exact.out << exact.err);
  CHECK(exact.code == 0);
  for (const char* rank : {"0/2 0", "1/2 1"}) CHECK_THAT(exact.out, ContainsSubstring(rank));

  const Ended no_node =
      slurm.run({"srun", "-N2", "env", "-u", "SLURM_NODEID", drun_program(), "true"});
  CHECK(no_node.code == 2);
  CHECK_THAT(no_node.err, ContainsSubstring("does not set SLURM_NODEID"));
}

TEST_CASE("nodes with unresolvable names use the addresses that Slurm knows", "[slurm]") {
  const SlurmCluster slurm(false);
  if (!is_there(slurm)) return;
  const Ended ended = slurm.run({"srun", "-N3", drun_program(), "sh", "-c", kWhoUnderSlurm});
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(ended.err.empty());
  for (const std::string rank : {"0/3 0", "1/3 1", "2/3 2"})
    CHECK_THAT(ended.out, ContainsSubstring(rank + " 127.0.0.1:"));
  const Ended dry = slurm.run({"srun", "-N2", drun_program(), "--dry-run=json", "true"});
  INFO(dry.out << dry.err);
  CHECK(dry.code == 0);
  CHECK(count(dry.out, "\"from\": \"SLURM_STEP_NODELIST and scontrol show node node01\"") == 2);
}

TEST_CASE("under an MPI launcher inside a Slurm job, nodes use the addresses that Slurm knows",
          "[slurm]") {
  const SlurmCluster slurm(false);
  if (!is_there(slurm)) return;
  const std::vector<Words> launchers{
      {"mpirun", "--allow-run-as-root", "--map-by", "ppr:1:node"},
      {"mpiexec.hydra", "-bootstrap", "slurm", "-ppn", "1", "-n", "3"}};
  for (const Words& launcher : launchers) {
    if (run(Launch{.argv = {launcher.front(), "--version"}}, 20s).code != 0) {
      WARN("skipped in part: no " << launcher.front());
      continue;
    }
    const Ended ended = slurm.run(Words{"salloc", "-N3", "--quiet"} + launcher +
                                  Words{drun_program(), "sh", "-c", kWhoUnderSlurm});
    INFO(launcher.front() << ": " << ended.out << ended.err);
    CHECK(ended.code == 0);
    const std::string address = word_after(ended.out, "0/3 0 ");
    CHECK_FALSE(address.starts_with("node"));
    for (const std::string rank : {"0/3 0 ", "1/3 1 ", "2/3 2 "})
      CHECK_THAT(ended.out, ContainsSubstring(rank + address));
  }
}

TEST_CASE("two jobs share Slurm's nodes, and scancel ends only one of them, completely",
          "[slurm]") {
  const SlurmCluster slurm;
  if (!is_there(slurm)) return;
  const std::string marker = "DRUN_SLURM_TEST=" + slurm.directory().path();
  const std::string wait = "echo up $RANK $MASTER_PORT.; exec sleep 600";
  const std::string until = "echo up $RANK $MASTER_PORT.; until [ -e " +
                            slurm.directory().file("go") + " ]; do sleep 0.1; done; echo done.";
  Running first(slurm.launch({"srun", "-N3", "--job-name=first", "env", marker, drun_program(),
                              "--nproc-per-node=2", "sh", "-c", wait}));
  Running second(
      slurm.launch({"srun", "-N3", drun_program(), "--nproc-per-node=2", "sh", "-c", until}));
  const auto is_up = [](Running& job) { return count(job.out(), "up ") == 6; };
  REQUIRE(eventually([&] { return is_up(first) && is_up(second); }, 60s));
  CHECK(word_after(first.out(), "up 0 ") != word_after(second.out(), "up 0 "));
  CHECK(processes_with(marker).size() >= 9);

  CHECK(slurm.run({"scancel", "--name=first"}).code == 0);
  const Ended canceled = first.wait(60s);
  CHECK_FALSE(canceled.timed_out);
  CHECK(canceled.code != 0);
  CHECK(eventually([&] { return processes_with(marker).empty(); }, 30s));

  write_file(slurm.directory().file("go"), "");
  const Ended done = second.wait(60s);
  INFO(done.out << done.err);
  CHECK(done.code == 0);
  CHECK(count(done.out, "done.") == 6);
}

TEST_CASE("a drained node finishes its job, and a node that is down ends its job on all nodes",
          "[slurm]") {
  const SlurmCluster slurm;
  if (!is_there(slurm)) return;
  const std::string marker = "DRUN_SLURM_TEST=" + slurm.directory().path();
  const auto set_state = [&slurm](const std::string& node, const std::string& state) {
    const Ended set =
        slurm.run({"scontrol", "update", "NodeName=" + node, "State=" + state, "Reason=test"});
    INFO(set.out << set.err);
    REQUIRE(set.code == 0);
  };
  const std::string until = "echo up.; until [ -e " + slurm.directory().file("go") +
                            " ]; do sleep 0.1; done; echo done $RANK.";
  Running finishing(
      slurm.launch({"srun", "-N1", "--nodelist=node01", drun_program(), "sh", "-c", until}));
  Running lost(slurm.launch({"srun", "-N2", "--nodelist=node[02-03]", "env", marker, drun_program(),
                             "sh", "-c", "echo up.; exec sleep 600"}));
  REQUIRE(eventually(
      [&] { return count(finishing.out(), "up.") == 1 && count(lost.out(), "up.") == 2; }, 60s));

  set_state("node01", "drain");
  write_file(slurm.directory().file("go"), "");
  const Ended finished = finishing.wait(60s);
  INFO(finished.out << finished.err);
  CHECK(finished.code == 0);
  CHECK_THAT(finished.out, ContainsSubstring("done 0."));

  set_state("node03", "down");
  const Ended ended = lost.wait(60s);
  INFO(ended.out << ended.err);
  CHECK(ended.code != 0);
  CHECK_THAT(ended.err, ContainsSubstring("SIGTERM"));
  CHECK(eventually([&] { return processes_with(marker).empty(); }, 30s));
}

TEST_CASE("a batch job is requeued by its workers' exit code and then gets a new run id",
          "[slurm]") {
  const SlurmCluster slurm;
  if (!is_there(slurm)) return;
  const std::string log = slurm.directory().file("log");
  const std::string script = slurm.directory().file("script");
  write_file(script,
             "#!/bin/sh\n" + drun_program() + " true 2>>" + log + "\nsrun " + drun_program() +
                 " sh -c 'echo run $RANK $TORCHELASTIC_RUN_ID >>" + log +
                 "; [ -n \"$SLURM_RESTART_COUNT\" ] || exit 85'\n",
             true);
  const Ended submitted = slurm.run({"sbatch", "--parsable", "-N2", "--ntasks-per-node=1",
                                     "--requeue", "--output=/dev/null", script});
  INFO(submitted.err);
  REQUIRE(submitted.code == 0);
  const std::string id = submitted.out.substr(0, submitted.out.find_first_of(";\n"));
  // Slurm holds a requeued job for two minutes.
  const auto is_again = [&] {
    slurm.run({"scontrol", "update", "JobId=" + id, "StartTime=now"}, 20s);
    return count(read_file(log), "slurm-" + id + ".0-r1") == 2;
  };
  CHECK(eventually(is_again, 90s));
  const std::string text = read_file(log);
  INFO(text);
  CHECK_THAT(text, ContainsSubstring(" slurm-" + id + ".0\n"));
  // The script runs drun itself, without srun, so there is none on the second node.
  CHECK_THAT(text, ContainsSubstring("has 2 nodes, but srun did not start this drun"));
}

TEST_CASE("a job near its time limit saves its state, is requeued and continues from there",
          "[slurm]") {
  const SlurmCluster slurm;
  if (!is_there(slurm)) return;
  const TemporaryDirectory& directory = slurm.directory();
  const std::string log = directory.file("log");
  const std::string state = directory.file("checkpoint");
  const std::string worker = directory.file("worker.sh");
  // Each rank counts steps. Rank 0 saves the count on the signal, and logs its first step.
  write_file(worker,
             "#!/bin/bash\nstep=$(cat " + state + " 2>/dev/null || echo 0)\n" +
                 "[ $RANK != 0 ] || echo \"run ${SLURM_RESTART_COUNT:-0} begins at $step\" >>" +
                 log + "\ntrap '[ $RANK != 0 ] || { echo $step >" + state +
                 "; echo \"saved $step\" >>" + log + "; }; exit 7' USR1\n" +
                 "[ -z \"$SLURM_RESTART_COUNT\" ] || exit 0\n" +
                 "while :; do sleep 0.05; step=$((step + 1)); done\n",
             true);
  const std::string script = directory.file("script");
  write_file(script,
             "#!/bin/sh\nsrun " + drun_program() +
                 " --signal-before=45:SIGUSR1 --requeue --shutdown-timeout=5 " + worker + " 2>>" +
                 directory.file("err") + "\n",
             true);
  const Ended submitted = slurm.run({"sbatch", "--parsable", "-N2", "--ntasks-per-node=1",
                                     "--time=1", "--requeue", "--output=/dev/null", script});
  INFO(submitted.err);
  REQUIRE(submitted.code == 0);
  const std::string id = submitted.out.substr(0, submitted.out.find_first_of(";\n"));
  // Slurm keeps a requeued job pending for two minutes. Without any pause it would take the end of
  // the first run for the end of the second.
  std::optional<std::chrono::steady_clock::time_point> pending_since;
  const auto is_again = [&] {
    const auto now = std::chrono::steady_clock::now();
    const bool is_pending =
        slurm.run({"squeue", "-h", "-o", "%T", "-j", id}, 20s).out == "PENDING\n";
    if (!is_pending) pending_since.reset();
    if (is_pending && !pending_since) pending_since = now;
    if (is_pending && now > *pending_since + 5s)
      slurm.run({"scontrol", "update", "JobId=" + id, "StartTime=now"}, 20s);
    return count(read_file(log), "run 1 begins") == 1;
  };
  CHECK(eventually(is_again, 120s));
  const std::string text = read_file(log);
  INFO(text << read_file(directory.file("err")) << slurm.run({"scontrol", "show", "job", id}).out
            << slurm.run({"sinfo", "-N", "-l"}).out);
  const std::size_t saved = text.find("saved ");
  REQUIRE(saved != text.npos);
  const std::string step = text.substr(saved + 6, text.find('\n', saved) - saved - 6);
  CHECK(std::stoi(step) > 0);
  CHECK_THAT(text, ContainsSubstring("run 1 begins at " + step + "\n"));
  CHECK_THAT(read_file(directory.file("err")),
             ContainsSubstring("job preempted after") &&
                 ContainsSubstring("the time limit of Slurm job " + id + " ends"));
}

// By hand (docs/internals/reliability.md): four jobs of three nodes and six workers, preempted 25
// times each. Every rank counts steps, and rank 0 saves the count on the signal, which takes a
// different time in each run.
TEST_CASE("a hundred preemptions by Slurm lose no step that was saved", "[.preemptions]") {
  constexpr int kJobs = 4;
  constexpr int kPreemptions = 25;
  const SlurmCluster slurm;
  if (!is_there(slurm)) return;
  const std::string directory = slurm.directory().path() + "/";
  write_file(directory + "worker.sh",
             "#!/bin/bash\ncd " + directory +
                 "$JOB\nstep=$(cat checkpoint 2>/dev/null || echo 0)\n" +
                 "say() { [ $RANK != 0 ] || echo \"$*\" >>log; }\n"
                 "run=${SLURM_RESTART_COUNT:-0}\nsay begins $step\n"
                 "save() { [ $RANK != 0 ] || { sleep 0.$((run * 37 % 90 + 10)); echo $step >new; "
                 "mv new checkpoint; echo \"saved $step\" >>log; }; exit 0; }\ntrap save USR1\n" +
                 "[ $run -lt " + std::to_string(kPreemptions) + " ] || { say ends; exit 0; }\n" +
                 "while :; do sleep 0.05; step=$((step + 1)); done\n",
             true);
  std::vector<std::string> ids;
  for (int job = 0; job < kJobs; ++job) {
    const std::string name = "job" + std::to_string(job);
    std::filesystem::create_directory(directory + name);
    write_file(
        directory + name + ".sh",
        "#!/bin/sh\nexport JOB=" + name + "\nsrun -c1 " + drun_program() +
            " --nproc-per-node=2 --signal-before=50:SIGUSR1 --requeue --shutdown-timeout=5 " +
            directory + "worker.sh 2>>" + directory + name + "/err\n",
        true);
    const Ended submitted =
        slurm.run({"sbatch", "--parsable", "-N3", "--ntasks-per-node=1", "-c1", "--time=1",
                   "--requeue", "--output=/dev/null", directory + name + ".sh"});
    INFO(submitted.err);
    REQUIRE(submitted.code == 0);
    ids.push_back(submitted.out.substr(0, submitted.out.find_first_of(";\n")));
  }
  std::map<std::string, std::chrono::steady_clock::time_point> pending_since;
  const auto are_over = [&] {
    int over = 0;
    for (std::size_t job = 0; job < ids.size(); ++job) {
      const std::string log = read_file(directory + "job" + std::to_string(job) + "/log");
      if (log.find("ends") != log.npos) {
        ++over;
        continue;
      }
      const auto now = std::chrono::steady_clock::now();
      const bool is_pending =
          slurm.run({"squeue", "-h", "-o", "%T", "-j", ids[job]}, 20s).out == "PENDING\n";
      if (!is_pending) {
        pending_since.erase(ids[job]);
        continue;
      }
      const auto since = pending_since.try_emplace(ids[job], now).first->second;
      if (now > since + 5s)
        slurm.run({"scontrol", "update", "JobId=" + ids[job], "StartTime=now"}, 20s);
    }
    std::this_thread::sleep_for(500ms);
    return over == kJobs;
  };
  CHECK(eventually(are_over, std::chrono::minutes(60)));
  int preemptions = 0;
  int steps = 0;
  for (std::size_t job = 0; job < ids.size(); ++job) {
    const std::string place = directory + "job" + std::to_string(job);
    std::istringstream log(read_file(place + "/log"));
    INFO(log.str() << read_file(place + "/err"));
    int saved = 0;
    for (std::string line; std::getline(log, line);) {
      if (line.rfind("begins ", 0) == 0) CHECK(std::stoi(line.substr(7)) == saved);
      if (line.rfind("saved ", 0) != 0) continue;
      CHECK(std::stoi(line.substr(6)) > saved);
      saved = std::stoi(line.substr(6));
      ++preemptions;
    }
    steps += saved;
    CHECK(count(read_file(place + "/err"), "job preempted after") >= kPreemptions);
  }
  CHECK(preemptions == kJobs * kPreemptions);
  WARN(preemptions << " preemptions, " << steps << " steps");
}

}  // namespace drun::testing
