// Tests the plan of drun doctor: the job's command line with probes in place of its program.
#include "launcher/plan/doctor.h"

#include "launcher/hosts/host_plan.h"
#include "launcher/plan/plan.h"
#include "tests/support/catch.h"
#include "tests/support/plans.h"

namespace drun {
namespace {

using test::has;
using test::parse_line;
using test::Words;

Options doctor(const Words& words) {
  Words all{"doctor"};
  all.insert(all.end(), words.begin(), words.end());
  return test::options_of(all);
}

HostFacts probed_host() {
  HostFacts host;
  host.hostname = "gpu0";
  host.own_folder = "/opt/drun";
  host.usable_cpus = 64;
  host.gpus = 8;
  host.working_directory = "/home/me";
  host.probe = [](const std::string& path) {
    return path.ends_with("/drun-probe") ? FileKind::Executable : FileKind::Missing;
  };
  return host;
}

Plan doctor_plan(const Words& words, const HostFacts& host = probed_host()) {
  return test::plan_of(doctor(words), host);
}

}  // namespace

TEST_CASE("drun doctor runs one probe per node at the job's rendezvous endpoint") {
  const Plan plan = doctor_plan({"--nnodes=3", "--node_rank=1", "--master_addr=10.0.0.1", "--json",
                                 "--nproc_per_node=gpu", "--max_restarts=3", "--tee=3",
                                 "--bind_to=core", "--hang-timeout=60", "--preflight"});
  CHECK(plan.is_doctor);
  const JoinSpec& join = plan.agent.join;
  CHECK(join.node_count == 3);
  CHECK(join.node_rank == 1);
  CHECK(join.endpoint == Endpoint{"10.0.0.1", 29500});
  CHECK(join.local_world_size == 1);
  CHECK(join.max_restarts == 0);
  CHECK(join.join_timeout == std::chrono::minutes(2));
  CHECK_FALSE(join.preflight);
  CHECK(plan.agent.hang_timeout.count() == 0);
  CHECK(plan.agent.worker.placements.empty());
  CHECK_FALSE(plan.agent.output.streams[0][0].to_file);
  const Words& words = plan.agent.worker.argv;
  CHECK(words.front() == "/opt/drun/drun-probe");
  for (const char* word : {"--cores=64", "--gpus=8", "--json"}) CHECK(has(words, word));
  CHECK_FALSE(plan.cannot_start);
}

TEST_CASE("drun doctor checks the given program without starting it") {
  const Plan plan = doctor_plan({"--rdzv-conf=join_timeout=7", "./train", "--json"});
  const Words& words = plan.agent.worker.argv;
  CHECK(words.front() == "/opt/drun/drun-probe");
  CHECK_FALSE(has(words, "--json"));  // an argument of the program
  CHECK_THAT(words.back(), StartsWith("--problem=./train: no such file"));
  CHECK(plan.agent.join.join_timeout == std::chrono::seconds(7));
}

TEST_CASE("drun doctor reports a missing drun-probe") {
  HostFacts host = probed_host();
  host.own_folder = "/usr/bin";
  host.probe = [](const std::string&) { return FileKind::Missing; };
  CHECK_THAT(doctor_plan({}, host).cannot_start->message,
             ContainsSubstring("/usr/bin/drun-probe") && ContainsSubstring("reinstall drun"));
}

TEST_CASE("a program named doctor can be started, and torchrun has no doctor command") {
  CHECK(std::get<Options>(*parse_line({"--", "doctor"})).program == "doctor");
  CHECK_FALSE(std::get<Options>(*parse_line({"./doctor"})).doctor);
  CHECK(std::get<Options>(*parse_line({"doctor"}, {}, "torchrun")).program == "doctor");
  CHECK_FALSE(parse_line({"doctor", "--no-such-option"}));
}

TEST_CASE("drun doctor's help shows the rendezvous options and fits 80 columns") {
  const std::string help = std::get<ShowText>(*parse_line({"doctor", "--help"})).text;
  CHECK_THAT(help, ContainsSubstring("Usage: drun doctor") &&
                       ContainsSubstring("--rdzv-endpoint") && ContainsSubstring("--hosts") &&
                       ContainsSubstring("--json") &&
                       ContainsSubstring("Exit code: 0 if there are no problems"));
  CHECK_THAT(help, !ContainsSubstring("--tee"));
  for (std::size_t begin = 0; begin < help.size();) {
    const std::size_t end = help.find('\n', begin);
    CHECK(end - begin <= 84);
    begin = end + 1;
  }
}

TEST_CASE("with --hosts each agent is started as drun doctor") {
  HostFacts host = probed_host();
  host.random_id = "0123";
  const Words words{"--hosts=a:4,b:4", "--json", "--tee=3"};
  const auto plan = hosts::make_host_plan(doctor(words), host, "/opt/drun/drun");
  REQUIRE(plan);
  REQUIRE(plan->nodes.size() == 2);
  host.drun_version = "9.9";  // of the node's host
  const Plan made = test::node_plan_of(*plan, 1, host);
  CHECK(made.is_doctor);
  CHECK(made.agent.join.local_world_size == 1);
  CHECK(made.agent.output.mode == OutputMode::Lines);
  CHECK(has(made.agent.worker.argv, "--json"));
  CHECK(has(made.agent.worker.argv, "--quiet"));
  CHECK(has(made.agent.worker.argv, "--drun-version=9.9"));
  CHECK(made.agent.drun_version == "9.9");
}

TEST_CASE("only exit code 1 of a probe counts as its verdict") {
  Failure failure;
  failure.status = Exited{1};
  CHECK(is_verdict(Outcome{.ending = WorkersFailed{{failure}}}));
  failure.status = Exited{3};
  CHECK_FALSE(is_verdict(Outcome{.ending = WorkersFailed{{failure}}}));
  CHECK_FALSE(is_verdict(Outcome{}));
  CHECK_FALSE(is_logged_by_doctor("rank 0 (local rank 0, pid 7) failed: exit code 1"));
  CHECK(is_logged_by_doctor("rank 0 (local rank 0, pid 7) failed: exit code 127"));
  CHECK(is_logged_by_doctor("waiting for 1 of 2 nodes"));
}

}  // namespace drun
