// Tests the plan for a command line with --hosts: the ssh commands, and the plan of each node.
#include "launcher/hosts/host_plan.h"

#include <nlohmann/json.hpp>

#include "agent/spawn/command.h"
#include "launcher/base/version.h"
#include "launcher/plan/plan.h"
#include "tests/support/catch.h"
#include "tests/support/plans.h"

namespace drun::hosts {
namespace {

using test::has;
using test::options_of;
using test::Words;

HostFacts desk_with_file(std::vector<EnvironmentEntry> environment = {}) {
  HostFacts host = test::desk_with(std::move(environment));
  host.working_directory = "/home/me/it's mine";
  host.file_text = [](const std::string& path) {
    return path == "hosts.txt" ? std::optional<std::string>("a slots=2\nb slots=4\n")
                               : std::nullopt;
  };
  return host;
}

HostPlan desk_plan(const Words& words, std::vector<EnvironmentEntry> environment = {}) {
  return test::host_plan_of(words, desk_with_file(std::move(environment)));
}

std::string desk_error(const Words& words) {
  return test::host_plan_error(words, desk_with_file());
}

Plan node_plan(const HostPlan& plan, std::size_t rank) {
  return test::node_plan_of(plan, rank, desk_with_file());
}

JoinSpec node_join(const HostPlan& plan, std::size_t rank) {
  return node_plan(plan, rank).agent.join;
}

// "a2 b1".
std::string nodes_text(const HostPlan& plan) {
  std::string text;
  for (const HostNode& node : plan.nodes)
    text += (text.empty() ? "" : " ") + node.name +
            (node.workers ? std::to_string(*node.workers) : "?");
  return text;
}

}  // namespace

TEST_CASE("a command line that was written for mpirun starts the same job") {
  const HostPlan plan = desk_plan({"--allow-run-as-root",
                                   "-np",
                                   "16",
                                   "-H",
                                   "a:8,b:8",
                                   "-bind-to",
                                   "none",
                                   "-map-by",
                                   "slot",
                                   "-x",
                                   "NCCL_DEBUG=INFO",
                                   "-x",
                                   "PATH",
                                   "-mca",
                                   "pml",
                                   "ob1",
                                   "--mca",
                                   "btl",
                                   "^openib",
                                   "python",
                                   "train.py"},
                                  {{"PATH", "/bin"}});
  CHECK(nodes_text(plan) == "a8 b8");
  CHECK(plan.nodes[1].environment == std::vector<EnvironmentEntry>{{"NCCL_DEBUG", "INFO"},
                                                                   {"PATH", "/bin"},
                                                                   {"OMPI_MCA_pml", "ob1"},
                                                                   {"OMPI_MCA_btl", "^openib"}});
  const AgentSpec agent = node_plan(plan, 1).agent;
  CHECK(agent.join.node_rank == 1);
  CHECK(agent.join.node_count == 2);
  CHECK(agent.join.run_id == plan.run_id);
  CHECK(agent.join.endpoint.host == "a");
  CHECK(agent.join.local_world_size == 8);
  CHECK(agent.worker.argv == Words{"python", "train.py"});
  CHECK(agent.worker.placements.empty());
  CHECK(agent.output.mode == OutputMode::Labeled);
  CHECK(has(agent::to_lines(agent.worker.environment), "OMPI_MCA_pml=ob1"));
  CHECK(test::usage_error(test::parse_options({"-H", "a", "--mca", "=", "x", "p"})) ==
        "--mca ==x: expected a name and a value, such as --mca btl tcp,self");
}

TEST_CASE("the default fanout grows with the number of cores") {
  const auto fanout = [](int cores, const Words& words) {
    HostFacts host = desk_with_file();
    host.usable_cpus = cores;
    return test::host_plan_of(words, host).fanout;
  };
  CHECK(fanout(1, {"--hosts=a,b", "p"}) == 32);
  CHECK(fanout(6, {"--hosts=a,b", "p"}) == 96);
  CHECK(fanout(128, {"--hosts=a,b", "p"}) == 256);
  CHECK(fanout(128, {"--hosts=a,b", "--fanout=100", "p"}) == 100);
}

TEST_CASE("each host's agent receives its node rank and the exact command to run") {
  const HostPlan plan =
      desk_plan({"--hosts=me@a:2,b", "--max-restarts=3", "-x", "A=1", "--rdzv-id=job", "--tee", "3",
                 "./train", "--lr", "0.1", "a b", "--hosts=x"},
                {{"PET_MIN_UPTIME", "7"}});
  REQUIRE(plan.nodes.size() == 2);
  const AgentSpec agent = node_plan(plan, 1).agent;
  CHECK(agent.host == "b");
  CHECK(agent.join.node_rank == 1);
  CHECK(agent.join.node_count == 2);
  CHECK(agent.join.run_id == "job");
  CHECK(agent.join.endpoint == Endpoint{"a", 0});  // the port is in the launcher's Go
  CHECK(agent.join.max_restarts == 3);
  CHECK(agent.join.local_world_size == 1);
  CHECK(agent.worker.argv == Words{"./train", "--lr", "0.1", "a b", "--hosts=x"});
  CHECK(agent.output.mode == OutputMode::Labeled);
  CHECK(agent.output.label_template == "[b:${rank}]: ");
  CHECK(agent.output.streams[0][1].to_file);
  CHECK(node_join(plan, 0).local_world_size == 2);
  CHECK(plan.nodes[0].environment == std::vector<EnvironmentEntry>{{"A", "1"}});
  CHECK(plan.nodes[0].label == "[a:${rank}]: ");
  CHECK(plan.options.min_uptime == std::chrono::seconds(7));
  CHECK(plan.directory == "/home/me/it's mine");
  CHECK(plan.secret.empty());
}

TEST_CASE("ssh gets the user's ssh arguments first and no part of the job's command") {
  const Words ssh =
      desk_plan({"--hosts=me@a", "--ssh-args=-F 'my config' -p 2222", "--ssh=/opt/ssh", "$(rm)"})
          .nodes[0]
          .ssh_command;
  REQUIRE(ssh.size() > 7);
  CHECK(Words(ssh.begin(), ssh.begin() + 8) ==
        Words{"/opt/ssh", "-F", "my config", "-p", "2222", "-T", "-o", "BatchMode=yes"});
  for (const char* option : {"ControlMaster=no", "RemoteCommand=none", "PermitLocalCommand=no",
                             "ClearAllForwardings=yes"})
    CHECK(has(ssh, option));
  CHECK(ssh[ssh.size() - 2] == "me@a");
  CHECK(ssh.back().starts_with("exec sh -c '"));
  CHECK(ssh.back().ends_with(std::string("--from-stdin' /opt/drun ") + kVersion));
  for (const std::string& word : ssh) CHECK(word.find("$(rm)") == std::string::npos);
  const HostPlan no_copy = desk_plan({"--hosts=a,b", "--no-copy", "p"});
  CHECK(no_copy.nodes[1].ssh_command.back().ends_with("--from-stdin' /opt/drun"));
}

TEST_CASE("mpirun's options have the same meaning as in mpirun") {
  CHECK(nodes_text(desk_plan({"-np", "5", "--hostfile", "hosts.txt", "p"})) == "a2 b3");
  CHECK(nodes_text(desk_plan({"-n", "5", "-machinefile", "hosts.txt", "p"})) == "a2 b3");
  CHECK(nodes_text(desk_plan({"-np", "2", "-host", "a:4,b:4", "p"})) == "a2");
  CHECK(nodes_text(desk_plan({"-H", "a:4,b:4", "--np=4", "--map-by", "node", "p"})) == "a2 b2");
  CHECK(nodes_text(desk_plan({"--host", "a,b", "-map-by", "ppr:3:node", "p"})) == "a3 b3");
  CHECK(nodes_text(desk_plan({"-H", "a,b", "--nproc-per-node=gpu", "p"})) == "a? b?");
  CHECK(desk_plan({"-H", "a", "-bind-to", "core", "p"}).options.bind_to == BindTo::Core);
  const HostPlan meeting =
      desk_plan({"-H", "a,b", "-x", "MASTER_ADDR=10.0.0.9", "-x", "MASTER_PORT=7000", "p"});
  CHECK(to_string(node_join(meeting, 1).endpoint) == "10.0.0.9:7000");
}

TEST_CASE("the option -x exports local values, several at once, and allows commas in values") {
  const HostPlan plan =
      desk_plan({"-H", "a", "-x", "A,B", "-x", "C=1,2", "--export=D=", "-x", "NO", "p"},
                {{"A", "a"}, {"B", "b b"}});
  CHECK(plan.nodes[0].environment ==
        std::vector<EnvironmentEntry>{{"A", "a"}, {"B", "b b"}, {"C", "1,2"}, {"D", ""}});
  REQUIRE(plan.warnings.size() == 1);
  CHECK_THAT(plan.warnings[0],
             ContainsSubstring("-x NO is not passed on: it is not set on this machine"));
  CHECK_THAT(desk_error({"-H", "a", "-x", "=1", "p"}),
             ContainsSubstring("expected VAR or VAR=VALUE"));
}

TEST_CASE("selected devices determine their host's worker count and CUDA_VISIBLE_DEVICES") {
  const HostPlan plan = desk_plan({"--hosts=w[0-2]:4", "--include=w0@w2:0,3", "p"});
  CHECK(nodes_text(plan) == "w04 w22");
  CHECK(plan.nodes[0].environment.empty());
  CHECK(plan.nodes[1].environment ==
        std::vector<EnvironmentEntry>{{"CUDA_VISIBLE_DEVICES", "0,3"}});
  CHECK(nodes_text(desk_plan({"--hosts=w[0-2]:4", "--exclude=w1", "p"})) == "w04 w24");
}

TEST_CASE("a single host needs no address, and the first of several reports its own") {
  const HostPlan alone = desk_plan({"-H", "a:2", "p"});
  CHECK(alone.master_addr.empty());
  CHECK(to_string(node_join(alone, 0).endpoint) == "127.0.0.1:0");
  CHECK(alone.endpoints.empty());
  const HostPlan two = desk_plan({"-H", "localhost,b", "p"});
  CHECK(two.endpoints == std::vector<std::size_t>{0});
  CHECK(two.master_port == 0);
  CHECK_FALSE(two.has_own_address);
  CHECK_THAT(host_plan_text(two),
             ContainsSubstring("on localhost, at an address that it reports, a free port\n"));
  const HostPlan named = desk_plan({"-H", "localhost,b", "--master-addr=desk", "p"});
  CHECK(named.master_addr == "desk");
  CHECK(named.has_own_address);
  CHECK_THAT(host_plan_text(named), ContainsSubstring("desk, a free port\n"));
  CHECK(desk_plan({"-H", "a,b", "--master-port=0", "p"}).master_port == 0);
  CHECK(node_join(desk_plan({"-H", "a,b", "--master-port=7", "p"}), 1).endpoint.port == 7);
}

TEST_CASE("options that conflict with --hosts are rejected with the reason") {
  CHECK_THAT(desk_error({"-H", "a", "--hostfile=hosts.txt", "p"}),
             ContainsSubstring("one of them"));
  CHECK_THAT(desk_error({"--hostfile=no", "p"}),
             ContainsSubstring("--hostfile=no: cannot read the file"));
  CHECK_THAT(desk_error({"-H", "a:x", "p"}), ContainsSubstring("--hosts=a:x: \"x\" slots"));
  CHECK_THAT(desk_error({"-H", "a,b", "--node-rank=1", "p"}),
             ContainsSubstring("remove the option"));
  CHECK_THAT(desk_error({"-H", "a,b", "--nnodes=3", "p"}),
             ContainsSubstring("--nnodes=3: there are 2 hosts"));
  CHECK_THAT(desk_error({"-H", "a", "--standalone", "p"}), ContainsSubstring("--standalone"));
  for (const char* where : {"--hosts=a", "--local-nodes=2"})
    CHECK_THAT(desk_error({where, "--requeue", "--time-limit=1h", "p"}),
               ContainsSubstring("--requeue: with --"));
  CHECK_THAT(desk_error({"-H", "a", "--rdzv-backend=c10d", "p"}),
             ContainsSubstring("remove these options"));
  CHECK_THAT(desk_error({"-H", "a", "--output=raw", "p"}), ContainsSubstring("--output=raw"));
  CHECK_THAT(desk_error({"--local-nodes=2,netns", "--master-port=0", "p"}),
             ContainsSubstring("cannot know a free port"));
  CHECK_THAT(desk_error({"-H", "a", "-np", "9", "p"}),
             ContainsSubstring("-np 9: the hosts have 1"));
  CHECK(desk_plan({"-H", "a,b", "--nnodes=2", "p"}).nodes.size() == 2);
}

TEST_CASE("the plan shows the exact commands but not the values of variables") {
  const HostPlan plan = desk_plan({"-H", "a:2,b", "-x", "TOKEN=secret", "--dry-run", "p", "it's"});
  const std::string text = host_plan_text(plan);
  CHECK_THAT(text, ContainsSubstring("node 1       b, 1 worker\n") &&
                       ContainsSubstring("  login      ssh -T -o 'BatchMode=yes'") &&
                       ContainsSubstring("  program    p 'it'\\''s'\n") &&
                       ContainsSubstring("  variables  TOKEN\n"));
  CHECK(text.find("secret") == std::string::npos);
  const auto json = nlohmann::json::parse(host_plan_json(plan), nullptr, false);
  REQUIRE(json.is_object());
  CHECK(json["nodes"][0]["workers"] == 2);
  CHECK(json["nodes"][1]["ssh"] == plan.nodes[1].ssh_command);
  CHECK(json["nodes"][0]["programs"] ==
        nlohmann::json::parse(
            R"([{"role":"default","workers":2,"command":["p","it's"],"variables":{}}])"));
}

TEST_CASE("a job on other hosts needs a working directory") {
  HostFacts host = desk_with_file({{"A", "a"}});
  host.working_directory.clear();
  const auto plan = make_host_plan(options_of({"-H", "a,b", "p"}, host), host, "/bin/drun");
  REQUIRE_FALSE(plan);
  CHECK(plan.error().code == ErrorCode::System);
  CHECK_THAT(plan.error().message, ContainsSubstring("working directory has been removed"));
}

TEST_CASE("the plan shows where the log files are, on this machine or on each host") {
  const auto text = [](Words words) {
    words.insert(words.begin(), {"-H", "a,b"});
    words.emplace_back("p");
    return host_plan_text(desk_plan(words));
  };
  CHECK_THAT(text({"--tee=3"}), ContainsSubstring("log files    in a temporary directory, on each "
                                                  "host; streams selected by --redirects and "
                                                  "--tee\n"));
  CHECK_THAT(text({"--redirects=0:1", "--log-dir=/logs", "--no-gather-logs"}),
             ContainsSubstring("log files    /logs, on each host; "));
  CHECK_THAT(text({"--log-dir=/logs"}),
             ContainsSubstring("log files    /logs, on this machine, one directory per rank\n"));
  CHECK(text({"--tee=3", "--log-dir=/dev/null"}).find("log files") == std::string::npos);
  CHECK(text({}).find("log files") == std::string::npos);
  CHECK_THAT(
      host_plan_text(desk_plan({"--local-nodes=2,netns", "--tee=3", "--log-dir=/logs", "p"})),
      ContainsSubstring("log files    /logs/node0 and so on, one directory per node; "));
}

TEST_CASE("without hosts -np counts the workers of this machine or of all nodes") {
  const HostFacts host = desk_with_file({{"A", "a"}});
  const auto plan = [&host](const Words& words) {
    return make_plan(options_of(words, host), host);
  };
  const Result<Plan> counted = plan({"-np", "3", "-x", "A", "-x", "B=b", "./p"});
  REQUIRE(counted);
  CHECK(counted->agent.join.local_world_size == 3);
  CHECK(has(agent::to_lines(counted->agent.worker.environment), "B=b"));
  CHECK(plan({"--map-by", "ppr:2:node", "./p"})->agent.join.local_world_size == 2);
  const auto error = [&plan](const Words& words) { return plan(words).error().message; };
  CHECK_THAT(error({"-np", "3", "--nproc-per-node=2", "./p"}), ContainsSubstring("remove one"));
  CHECK(plan({"-np", "3", "--nnodes=2", "./p"})->agent.join.local_world_size == 2);
  CHECK(plan({"-np", "3", "--nnodes=2", "--node-rank=1", "./p"})->agent.join.local_world_size == 1);
  CHECK_THAT(error({"-np", "1", "--nnodes=2", "--node-rank=1", "./p"}),
             ContainsSubstring("has no worker"));
  CHECK_THAT(error({"--include=a", "./p"}), ContainsSubstring("requires --hosts"));
  for (const std::string option : {"--fanout=3", "--no-gather-logs", "--no-copy"})
    CHECK_THAT(error({option, "./p"}), ContainsSubstring("it requires --hosts"));
}

TEST_CASE("the option --from-stdin accepts no other arguments and is not in the help") {
  const auto parsed = [](const Words& words) {
    return parse_command_line(words, [](std::string_view) { return std::nullopt; });
  };
  CHECK(std::holds_alternative<FromStdinCommand>(*parsed({"drun", "--from-stdin"})));
  CHECK_FALSE(parsed({"drun", "--from-stdin", "p"}));
  const Result<Command> help = parsed({"drun", "--help"});
  CHECK(std::get<ShowText>(*help).text.find("from-stdin") == std::string::npos);
  CHECK(std::get<ShowText>(*help).text.find("--host ") == std::string::npos);
  CHECK_THAT(parsed({"drun", "-H", "a", "--map-by", "socket", "p"}).error().message,
             ContainsSubstring("ppr:N:node"));
}

}  // namespace drun::hosts
