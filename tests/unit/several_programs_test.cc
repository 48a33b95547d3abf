// Several programs in one job: from the command line to the workers' roles.
#include <nlohmann/json.hpp>

#include "agent/workers/worker_command.h"
#include "launcher/base/words.h"
#include "launcher/cli/parse_programs.h"
#include "launcher/hosts/host_plan.h"
#include "launcher/plan/plan.h"
#include "launcher/plan/programs.h"
#include "tests/support/catch.h"
#include "tests/support/plans.h"

namespace drun {
namespace {

using test::desk_with;
using test::options_of;
using test::Words;

Result<Plan> planned_programs(const Words& words, const HostFacts& host = desk_with()) {
  const Result<Options> options = test::parse_options(words, host);
  if (!options) return options.error();
  return make_plan(*options, host);
}

Plan programs_plan(const Words& words, const HostFacts& host = desk_with()) {
  return test::value_of(planned_programs(words, host));
}

std::string programs_error(const Words& words, const HostFacts& host = desk_with()) {
  return test::usage_error(planned_programs(words, host));
}

// For example "server: 1 ./server; worker: 4 ./worker --flag".
std::string text_of(const WorkerSpec& worker) {
  std::string text;
  for (const ProgramSpec& program : worker.programs)
    text += (text.empty() ? "" : "; ") + program.role + ": " + std::to_string(program.workers) +
            " " + shell_quoted(program.argv);
  return text;
}

Result<hosts::HostPlan> host_plan(const Words& words, const HostFacts& host = desk_with()) {
  const Result<Options> options = test::parse_options(words, host);
  if (!options) return options.error();
  return hosts::make_host_plan(*options, host, "/opt/drun");
}

// The programs of each host's agent.
std::vector<std::string> agents_of(const Words& words, const HostFacts& host = desk_with()) {
  const Result<hosts::HostPlan> plan = host_plan(words, host);
  INFO((plan ? "" : plan.error().message));
  REQUIRE(plan);
  std::vector<std::string> agents;
  for (std::size_t rank = 0; rank < plan->nodes.size(); ++rank)
    agents.push_back(text_of(test::node_plan_of(*plan, rank, desk_with()).agent.worker));
  return agents;
}

}  // namespace

TEST_CASE("a colon separates programs if the first one has its own number of workers") {
  const Plan plan =
      programs_plan({"-np", "1", "./server", ":", "-np", "4", "./bin/worker", "--flag", "x"});
  CHECK(text_of(plan.agent.worker) == "server: 1 ./server; worker: 4 ./bin/worker --flag x");
  CHECK(plan.agent.join.local_world_size == 5);
  CHECK(plan.agent.join.roles == std::vector<RoleShare>{{"server", 1}, {"worker", 4}});
  const auto with_full_name = programs_plan(
      {"--nproc_per_node=2", "./a", ":", "--nproc-per-node", "1", "--role=b", "--", "./a"});
  CHECK(text_of(with_full_name.agent.worker) == "a: 2 ./a; b: 1 ./a");
}

TEST_CASE("a colon belongs to the program if no number of workers is given before it") {
  for (const Words& front : {Words{}, Words{"--standalone"}, Words{"--role=x"}}) {
    Words words = front;
    words.insert(words.end(), {"./prog", "a", ":", "b"});
    const Options options = options_of(words);
    CHECK(options.programs.empty());
    CHECK(options.program_arguments == Words{"a", ":", "b"});
  }
  const Options torchrun =
      options_of({"--nproc-per-node=2", "./prog", "a", ":", "b"}, desk_with(), "torchrun");
  CHECK(torchrun.programs.empty());
  const HostFacts by_variable = desk_with({{"PET_NPROC_PER_NODE", "2"}});
  CHECK(options_of({"./prog", ":", "b"}, by_variable).programs.empty());
}

TEST_CASE("the separator between programs can be another word") {
  const Options options = options_of(
      {"--separator=::", "-np", "1", "./a", ":", "::", "-np", "2", "--no-python", "./b.py", ":"});
  REQUIRE(options.programs.size() == 2);
  CHECK(options.programs[0].arguments == Words{":"});
  CHECK(options.programs[1].arguments == Words{":"});
  CHECK(options.programs[1].no_python);
  CHECK(options.hosts.np == 3);
  CHECK_THAT(programs_error({"--separator=", "-np", "1", "./a"}), ContainsSubstring("--separator"));
}

TEST_CASE("a command line with missing or conflicting program options is rejected") {
  const auto [words, part] = GENERATE(table<Words, std::string>({
      {{"-np", "1", "./a", ":", "./b"}, "program 2 (./b): its number of workers is missing"},
      {{"-np", "1", "./a", ":", "./b"}, "--separator=WORD"},
      {{"-np", "1", "./a", ":"}, "program 2: it is missing"},
      {{"-np", "1", "./a", ":", "-np", "2"}, "program 2: it is missing"},
      {{"-np", "1", ":", "-np", "2", "./b"}, "program 1: it is missing"},
      {{"-np", "1", "./a", ":", "-np", "x", "./b"}, "program 2: --np=x"},
      {{"-np", "1", "./a", ":", "-np", "0", "./b"}, "program 2: --np=0"},
      {{"-np", "1", "./a", ":", "--nproc-per-node=2", "./b"}, "it has --nproc-per-node"},
      {{"-np", "1", "--nproc-per-node=1", "./a", ":", "-np", "1", "./b"}, "conflict; remove one"},
      {{"-np", "1", "./a", ":", "-np", "1", "--bind-to=core", "./b"},
       "--bind-to: this option applies to the whole"},
      {{"-np", "1", "./a", ":", "-np", "1", "-wdir", "/", "./b"}, "program 2: unknown option"},
      {{"-np", "1", "./a", ":", "-np", "1", "--role=" + std::string(201, 'r'), "./b"}, "--role"},
      {{"-np", "1", "./a", ":", "-np", "1", "-m", "--no-python", "b"}, "--module"},
      {{"-np", "1", "./a", ":", "-np", "1", "-x", "=3", "./b"}, "-x =3"},
      {{"-np", "65536", "./a", ":", "-np", "1", "./b"}, "65537 workers"},
      {{"--separator=::", "./a"}, "number of workers is missing"},
  }));
  INFO(shell_quoted(words));
  CHECK_THAT(programs_error(words), ContainsSubstring(part));
}

TEST_CASE("each program has its own variables and role") {
  const HostFacts host = desk_with({{"FROM_HERE", "yes"}, {"OMP_NUM_THREADS", "3"}});
  const Plan plan = programs_plan(
      {"--role=first",      "-x",  "A=1", "-np", "1", "./a", ":", "-x",     "FROM_HERE", "-x",
       "OMP_NUM_THREADS=7", "-np", "2",   "./b", ":", "-np", "1", "--role", "first",     "./a"},
      host);
  const WorkerSpec& worker = plan.agent.worker;
  CHECK(plan.agent.join.roles == std::vector<RoleShare>{{"first", 1}, {"b", 2}, {"first", 1}});
  CHECK(worker.programs[0].environment == std::vector<EnvironmentEntry>{{"A", "1"}});
  CHECK(worker.programs[1].environment ==
        std::vector<EnvironmentEntry>{{"FROM_HERE", "yes"}, {"OMP_NUM_THREADS", "7"}});
  World world;
  world.local_world_size = world.world_size = 4;
  const auto own = agent::own_environment(worker, world, 1, "");
  CHECK(std::count(own.begin(), own.end(), EnvironmentEntry{"OMP_NUM_THREADS", "7"}) == 1);
  CHECK(std::count(own.begin(), own.end(), EnvironmentEntry{"A", "1"}) == 0);
  CHECK(agent::worker_argv(worker, 0) == Words{"./a"});
  CHECK(agent::worker_argv(worker, 2) == Words{"./b"});
  CHECK(agent::program_name(worker, 3) == "./a");
}

TEST_CASE("adjacent programs with one role form one share, and a node has at most 16 shares") {
  Words words;
  for (int i = 0; i < 20; ++i) {
    if (i > 0) words.emplace_back(":");
    for (const std::string& word : Words{"-np", "1", "./same", std::to_string(i)})
      words.push_back(word);
  }
  const Plan plan = programs_plan(words);
  CHECK(plan.agent.join.roles == std::vector<RoleShare>{{"same", 20}});
  CHECK(plan.agent.worker.programs.size() == 20);
  words.clear();
  for (int i = 0; i < 17; ++i) {
    if (i > 0) words.emplace_back(":");
    for (const std::string& word : Words{"-np", "1", "--role=r" + std::to_string(i), "./a"})
      words.push_back(word);
  }
  CHECK_THAT(programs_error(words),
             ContainsSubstring("17 consecutive roles") && ContainsSubstring("at most 16"));
}

TEST_CASE("the same command line gives each node its part of the job") {
  const auto node = [](const std::string& rank, const Words& more = {}) {
    Words words{"--nnodes=3", "--node-rank=" + rank, "--master-addr=a"};
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"-np", "1", "./s", ":", "-np", "6", "./w"});
    return text_of(programs_plan(words).agent.worker);
  };
  CHECK(node("0") == "s: 1 ./s; w: 2 ./w");
  CHECK(node("1") == "w: 2 ./w");
  CHECK(node("2") == "w: 2 ./w");
  CHECK(node("0", {"--map-by=ppr:5:node"}) == "s: 1 ./s; w: 4 ./w");
  CHECK(node("1", {"--map-by=ppr:5:node"}) == "w: 2 ./w");
  CHECK_THAT(programs_error({"--nnodes=3", "--node-rank=2", "--map-by=ppr:5:node", "-np", "1",
                             "./s", ":", "-np", "6", "./w"}),
             ContainsSubstring("node 2 of 3 has no worker"));
  CHECK_THAT(
      programs_error({"--nnodes=2", "--node-rank=1", "--map-by=ppr:2:node", "-np", "5", "./w"}),
      ContainsSubstring("fewer"));
  CHECK_THAT(programs_error({"--nnodes=1:3", "--rdzv-backend=c10d", "--rdzv-endpoint=a", "-np", "3",
                             "./s", ":", "-np", "6", "./w"}),
             ContainsSubstring("--nproc-per-node"));
}

TEST_CASE("shares of a job are complete and in order for every size") {
  for (int np = 1; np <= 20; ++np) {
    for (int nodes = 1; nodes <= np; ++nodes) {
      int next = 0;
      for (int rank = 0; rank < nodes; ++rank) {
        const RankShare share = share_of(np, nodes, rank, std::nullopt);
        CHECK(share.first == next);
        CHECK((share.count == np / nodes || share.count == np / nodes + 1));
        next += share.count;
      }
      CHECK(next == np);
    }
  }
  CHECK(share_of(7, 3, 1, 3) == RankShare{3, 3});
  CHECK(share_of(7, 3, 2, 3) == RankShare{6, 1});
}

TEST_CASE("with workers per node every node runs all programs") {
  const Plan plan =
      programs_plan({"--nnodes=2", "--node-rank=1", "--master-addr=a", "--nproc-per-node=1", "./s",
                     ":", "--nproc-per-node=cpu", "./w"});
  CHECK(text_of(plan.agent.worker) == "s: 1 ./s; w: 4 ./w");
  CHECK(plan.agent.join.local_world_size == 5);
  CHECK_THAT(programs_error({"--nproc-per-node=1", "./s", ":", "--nproc-per-node=gpu", "./w"}),
             ContainsSubstring("./w: --nproc-per-node=gpu"));
}

TEST_CASE("each program's workers have their own GPUs") {
  HostFacts host = desk_with();
  host.gpus = 6;
  host.installed_gpus.resize(6);
  const Plan plan = programs_plan({"-np", "1", "./s", ":", "--gpus-per-worker=2", "-np", "2", "./w",
                                   ":", "--gpus-per-worker=1", "-np", "1", "./e"},
                                  host);
  const auto& places = plan.agent.worker.placements;
  REQUIRE(places.size() == 4);
  CHECK(places[0].devices.empty());
  CHECK(places[1].devices == Words{"0", "1"});
  CHECK(places[2].devices == Words{"2", "3"});
  CHECK(places[3].devices == Words{"4"});
  CHECK_THAT(
      programs_error({"-np", "1", "./s", ":", "--gpus-per-worker=4", "-np", "2", "./w"}, host),
      ContainsSubstring("3 workers need 8 GPUs, and 6 are visible"));
}

TEST_CASE("a missing program is named before anything starts") {
  const Plan plan = programs_plan({"-np", "1", "./s", ":", "-np", "1", "./missing"});
  REQUIRE(plan.cannot_start);
  CHECK(plan.cannot_start->program == "./missing");
  CHECK(plan.cannot_start->role == "missing");
}

TEST_CASE("agents on other hosts parse their part of the programs unchanged") {
  CHECK(agents_of({"-H", "a:3,b:2", "-np", "1", "./s", ":", "-np", "4", "./w", "--flag", "a b"}) ==
        Words{"s: 1 ./s; w: 2 ./w --flag 'a b'", "w: 2 ./w --flag 'a b'"});
  CHECK(agents_of({"-H", "a,b", "--nproc-per-node=1", "./s", ":", "--nproc-per-node=cpu", "./w"}) ==
        Words{"s: 1 ./s; w: 4 ./w", "s: 1 ./s; w: 4 ./w"});
  CHECK(agents_of({"-H", "a:3", "--separator=::", "-np", "1", "./s", ":", "::", "--role=x",
                   "--np=2", "-m", "pkg.w", ":1"})[0]
            .starts_with("s: 1 ./s :; x: 2 "));
  CHECK(agents_of({"-H", "a:2", "--map-by=node", "-np", "1", "./s", ":", "-np", "1", "./w"}) ==
        Words{"s: 1 ./s; w: 1 ./w"});
}

TEST_CASE("variables of programs are sent to the hosts with values that the plan hides") {
  const HostFacts host = desk_with({{"TOKEN", "s3cr=et,x"}});
  const Words words{"-H", "a:2", "-x", "TOKEN", "-np", "1", "./s", ":", "-np", "1", "./w"};
  const Result<hosts::HostPlan> plan = host_plan(words, host);
  REQUIRE(plan);
  CHECK(plan->nodes[0].environment.empty());
  CHECK(plan->nodes[0].label == "[a:${rank} ${role_name}]: ");
  CHECK_THAT(hosts::host_plan_text(*plan), !ContainsSubstring("s3cr"));
  CHECK_THAT(hosts::host_plan_text(*plan), ContainsSubstring("  program    ./s  (sets TOKEN)\n"));
  const Plan there = test::node_plan_of(*plan, 0, desk_with());
  CHECK(there.agent.worker.programs[0].environment ==
        std::vector<EnvironmentEntry>{{"TOKEN", "s3cr=et,x"}});
  CHECK(there.agent.worker.programs[1].environment.empty());
}

TEST_CASE("drun doctor checks the hosts and programs of the job") {
  const auto plan = host_plan({"doctor", "-H", "a:3,b:3,c:3", "-np", "4", "./w"});
  REQUIRE(plan);
  REQUIRE(plan->nodes.size() == 2);
  for (std::size_t rank = 0; rank < plan->nodes.size(); ++rank) {
    CHECK(plan->nodes[rank].workers == 1);
    const Plan there = test::node_plan_of(*plan, rank, desk_with());
    CHECK(there.agent.join.local_world_size == 1);
  }
  const auto several =
      host_plan({"doctor", "-H", "a:3,b:3", "-np", "4", "./w", ":", "-np", "1", "./missing"});
  REQUIRE(several);
  std::string problems;
  for (std::size_t rank = 0; rank < several->nodes.size(); ++rank) {
    CHECK(several->nodes[rank].workers == 1);
    const Plan there = test::node_plan_of(*several, rank, desk_with());
    CHECK(there.agent.join.local_world_size == 1);
    CHECK(there.agent.join.roles.empty());
    problems += there.agent.worker.argv.back() + "\n";
  }
  CHECK_THAT(problems, ContainsSubstring("--problem=./missing"));
  const Result<Plan> here = planned_programs(
      {"doctor", "--nnodes=2", "--master-addr=a", "-np", "1", "./a", ":", "-np", "4", "./b"});
  INFO((here ? "" : here.error().message));
  REQUIRE(here);
  CHECK(here->agent.join.local_world_size == 1);
}

TEST_CASE("the plan shows every program") {
  const Plan plan = programs_plan({"-x", "A=1", "-np", "1", "./s", ":", "-np", "4", "./w", "a b"});
  const std::string text = plan_text(plan);
  CHECK_THAT(text, ContainsSubstring("programs     local rank 0, role s: ./s  (sets A)\n") &&
                       ContainsSubstring("local ranks 1 to 4, role w: ./w 'a b'\n") &&
                       !ContainsSubstring("command  "));
  CHECK_THAT(text, ContainsSubstring("ROLE_NAME=s\n") && ContainsSubstring("ROLE_WORLD_SIZE=1\n"));
  const auto json = nlohmann::json::parse(plan_json(plan));
  REQUIRE(json.at("programs").size() == 2);
  CHECK(json.at("programs")[1] == nlohmann::json::parse(R"({"role":"w","local_rank":1,"workers":4,
                                  "command":["./w","a b"],"variables":{}})"));
  CHECK(nlohmann::json::parse(plan_json(programs_plan({"./s"}))).at("programs").is_null());
}

TEST_CASE("an app file has one program per line") {
  const auto lines = parse_app_file(
      "# ours\n\n  -np 1 ./server --text 'a  b'\r\n\t# more\n-np 4 \"./w x\" \\# c\\ d");
  REQUIRE(lines);
  CHECK(*lines == std::vector<Words>{{"-np", "1", "./server", "--text", "a  b"},
                                     {"-np", "4", "./w x", "#", "c d"}});
  const auto open = parse_app_file("-np 1 ./a\n-np 1 ./b 'c\n");
  REQUIRE_FALSE(open);
  CHECK_THAT(open.error().message, ContainsSubstring("line 2") && ContainsSubstring("quote"));
  std::string many;
  for (std::size_t i = 0; i <= kMostPrograms; ++i) many += "-np 1 ./a\n";
  CHECK_FALSE(parse_app_file(many));
  CHECK_FALSE(parse_app_file(std::string_view("-np 1 ./a \0 b", 13)));
  CHECK(parse_app_file("")->empty());
}

TEST_CASE("options before an app file apply to all its programs") {
  const Words words{"--app=file", "-x", "A=1", "--role=all"};
  const std::vector<OptionSyntax> known{{.name = "--np", .may_have_one_dash = true},
                                        {.name = "--export", .letter = 'x'},
                                        {.name = "--role"},
                                        {.name = "--bind-to"}};
  Options options;
  options.app = "file";
  options.role = "all";
  options.hosts.exports = {"A=1"};
  REQUIRE(take_app_file(options, {}, "-np 2 ./a\n-np 1 -x B=2 --role own ./b\n", known));
  REQUIRE(options.programs.size() == 2);
  CHECK(options.programs[0].role == "all");
  CHECK(options.programs[0].exports == Words{"A=1"});
  CHECK(options.programs[1].role == "own");
  CHECK(options.programs[1].exports == Words{"A=1", "B=2"});
  CHECK(options.hosts.np == 3);

  const auto refusal = [&known](const std::string& text, const Arguments& arguments = {}) {
    Options wrong;
    wrong.app = "file";
    const Result<void> taken = take_app_file(wrong, arguments, text, known);
    REQUIRE_FALSE(taken);
    return taken.error().message;
  };
  CHECK_THAT(refusal("# nothing\n"), ContainsSubstring("--app=file: the file has no program"));
  CHECK_THAT(refusal("./a\n"),
             ContainsSubstring("program 1 (./a): its number of workers is missing"));
  CHECK_THAT(refusal("-np 1 ./a\n-np 1 --bind-to=core ./b"), ContainsSubstring("program 2"));
  CHECK_THAT(refusal("-np 1 ./a", {.program = "./b"}), ContainsSubstring("./b is another"));
  CHECK_THAT(refusal("-np 1 ./a", {.options = {{"--np", "3"}}}), ContainsSubstring("--np"));
  CHECK_THAT(programs_error({"--app=/nowhere/at/all"}), ContainsSubstring("cannot read the file"));
}

}  // namespace drun
