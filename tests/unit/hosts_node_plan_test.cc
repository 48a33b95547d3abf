// Tests the plan of a node: what it looks up on the node's host, and how it depends on the host's
// facts.
#include "launcher/hosts/node_plan.h"

#include "tests/support/catch.h"
#include "tests/support/plans.h"

namespace drun::hosts {
namespace {

using test::Words;

// A host with a PATH, on which the launcher has looked up nothing yet.
HostReport report_of(std::vector<EnvironmentEntry> environment = {{"PATH", "/opt/bin:/bin"}}) {
  HostReport report;
  report.facts.hostname = "far";
  report.facts.usable_cpus = 3;
  report.facts.working_directory = "/far";
  report.facts.environment = std::move(environment);
  return report;
}

HostPlan plan_of(const Words& words) { return test::host_plan_of(words, test::desk_with()); }

Lookups lookups_of(const HostPlan& plan, const HostReport& report) {
  const auto step = test::value_of(plan_node(plan, 0, report));
  REQUIRE(std::holds_alternative<Lookups>(step));
  return std::get<Lookups>(step);
}

}  // namespace

TEST_CASE("a node's plan looks up the program in the PATH of its host") {
  const HostPlan plan = plan_of({"-H", "a,b", "train"});
  HostReport report = report_of();
  CHECK(lookups_of(plan, report).paths == Words{"./train", "/bin/train", "/opt/bin/train"});
  report.answers.files = {{"./train", FileKind::Missing},
                          {"/bin/train", FileKind::Executable},
                          {"/opt/bin/train", FileKind::Missing}};
  const auto step = test::value_of(plan_node(plan, 0, report));
  REQUIRE(std::holds_alternative<Plan>(step));
  CHECK_FALSE(std::get<Plan>(step).cannot_start);
  report.answers.files["/bin/train"] = FileKind::NotExecutable;
  const auto worse = test::value_of(plan_node(plan, 0, report));
  REQUIRE(std::get<Plan>(worse).cannot_start);
  CHECK_THAT(std::get<Plan>(worse).cannot_start->message,
             ContainsSubstring("/bin/train is not executable"));
}

TEST_CASE("the PATH that -x gives to the workers comes before that of the host") {
  const HostPlan plan = plan_of({"-H", "a", "-x", "PATH=/mine", "train"});
  CHECK(lookups_of(plan, report_of()).paths == Words{"./train", "/mine/train"});
}

TEST_CASE("a node's plan asks for the topology only if its workers are placed") {
  CHECK_FALSE(lookups_of(plan_of({"-H", "a", "train"}), report_of()).has_topology);
  const HostPlan plan = plan_of({"-H", "a", "--bind-to=core", "train"});
  HostReport report = report_of();
  CHECK(lookups_of(plan, report).has_topology);
  report.answers.files = {{"./train", FileKind::Missing},
                          {"/bin/train", FileKind::Executable},
                          {"/opt/bin/train", FileKind::Missing}};
  report.answers.topology_problem = "cannot load hwloc";
  CHECK(plan_node(plan, 0, report).error() == Error{ErrorCode::System, "cannot load hwloc"});
  report.answers.topology_problem.clear();
  report.answers.topology =
      Topology{.cpus = {{.cpu = 7, .core = 1}}, .memory_nodes = {0}, .gpus = {}};
  const auto step = test::value_of(plan_node(plan, 0, report));
  CHECK(std::get<Plan>(step).agent.worker.placements[0].cpus == std::vector<int>{7});
}

TEST_CASE("a host with the files of this machine needs no second lookup") {
  const HostFacts here = test::train_host(
      {{"./train.py", FileKind::NotExecutable}, {"/usr/bin/python3", FileKind::Executable}});
  const HostPlan plan = test::host_plan_of({"-H", "a,b", "train.py"}, here);
  HostReport report{.facts = here, .answers = look_up(expected_lookups(plan, 1, here), here)};
  report.facts.probe = nullptr;
  const auto step = test::value_of(plan_node(plan, 1, report));
  REQUIRE(std::holds_alternative<Plan>(step));
  CHECK(std::get<Plan>(step).agent.worker.argv == Words{"/usr/bin/python3", "-u", "train.py"});
}

TEST_CASE("a PATH that is too long to look up is an error") {
  std::string path;
  for (int i = 0; i < 20'000; ++i) path += "/" + std::to_string(i) + ":";
  const HostPlan plan = plan_of({"-H", "a", std::string(200, 'p')});
  CHECK_THAT(plan_node(plan, 0, report_of({{"PATH", path}})).error().message,
             ContainsSubstring("PATH is too long there"));
}

TEST_CASE("the facts of a host decide about its workers and its log") {
  HostReport report = report_of({{"LOGLEVEL", "debug"}, {"PET_NPROC_PER_NODE", "2"}});
  report.facts.gpus = 4;
  report.facts.environment.emplace_back("PATH", "/bin");
  const HostFacts far = [&report] {
    HostFacts facts = report.facts;
    facts.probe = [](const std::string&) { return FileKind::Executable; };
    return facts;
  }();
  const Plan counted =
      test::node_plan_of(plan_of({"-H", "a,b", "--nproc-per-node=gpu", "p"}), 1, far);
  CHECK(counted.agent.join.local_world_size == 4);
  CHECK(counted.log_level == LogLevel::Debug);
  const Plan cpus = test::node_plan_of(
      plan_of({"-H", "a", "--nproc-per-node=cpu", "--log-level=error", "p"}), 0, far);
  CHECK(cpus.agent.join.local_world_size == 3);
  CHECK(cpus.log_level == LogLevel::Error);
  report.facts.gpus = 0;
  HostFacts without = far;
  without.gpus = 0;
  CHECK_THAT(test::usage_error(
                 test::planned_node(plan_of({"-H", "a", "--nproc-per-node=gpu", "p"}), 0, without)),
             ContainsSubstring("no GPU is visible on far"));
}

TEST_CASE("each local node has its own log directory, and none without log files") {
  const auto log_dir = [](const Words& words) {
    Words line{"--local-nodes=2"};
    line.insert(line.end(), words.begin(), words.end());
    HostFacts here = test::desk_with();
    here.free_port = [] { return 4000; };
    const HostPlan plan = test::host_plan_of(line, here);
    return test::node_plan_of(plan, 1, test::desk_with()).agent.output.log_dir;
  };
  CHECK(log_dir({"--log-dir=/logs", "p"}) == "/logs/node1");
  CHECK(log_dir({"--log-dir=/dev/null", "p"}) == "");
  CHECK_FALSE(log_dir({"p"}));
}

TEST_CASE("ranks in options are checked against the workers of all hosts") {
  const HostPlan plan = plan_of({"-H", "a,b", "--nproc-per-node=cpu", "--inject=kill:rank=5@1s",
                                 "--wrap=env", "--wrap-ranks=0,5", "p"});
  CHECK(check_ranks(plan, 6));
  CHECK_THAT(test::usage_error(check_ranks(plan, 5)), ContainsSubstring("--inject"));
  const HostPlan wrapped = plan_of({"-H", "a,b", "--wrap=env", "--wrap-ranks=2", "p"});
  CHECK_THAT(test::usage_error(check_ranks(wrapped, 2)),
             ContainsSubstring("--wrap-ranks: there is no rank 2; ranks are 0 to 1"));
}

}  // namespace drun::hosts
