#include "launcher/plan/plan.h"

#include <cerrno>
#include <csignal>
#include <map>

#include "launcher/plan/programs.h"
#include "tests/support/catch.h"
#include "tests/support/plans.h"

namespace drun {
namespace {

using test::join_of;
using test::plan_error;
using test::plan_of;
using test::running;
using test::train_host;
using test::Words;

Program program_of(const Options& options, const HostFacts& host) {
  const Result<Program> program = plan_program(options, host);
  REQUIRE(program);
  return *program;
}

}  // namespace

TEST_CASE("a single node without a port uses loopback, a free port and a random run id") {
  const JoinSpec join = join_of({});
  CHECK(join.endpoint == Endpoint{"127.0.0.1", 0});
  CHECK(join.run_id == "0123456789abcdef");
  CHECK(join.master_addr == "127.0.0.1");
  CHECK(join.master_port == 0);
  CHECK(join.is_coordinator);
  CHECK(join.local_world_size == 1);
  CHECK(join == join_of({.standalone = true}));
  CHECK(join == join_of({.nnodes = NodeRange{1, 1}, .node_rank = 0}));
  CHECK(join_of({.rdzv_id = "mine"}).run_id == "mine");
  CHECK(join_of({.rdzv_id = "\u00e9t\u00e9 7"}).run_id == "\u00e9t\u00e9 7");
  CHECK(join_of({.master_addr = "gpu9"}).endpoint.host == "127.0.0.1");
}

TEST_CASE("one node with a port, or several nodes, meet at the given endpoint") {
  CHECK(join_of({.master_port = 1234}).endpoint == Endpoint{"127.0.0.1", 1234});
  CHECK(join_of({.master_port = 1234}).run_id == "none");
  CHECK(join_of({.master_port = 0}).endpoint.port == 0);
  const JoinSpec two = join_of({.nnodes = NodeRange{2, 2}});
  CHECK(two.endpoint == Endpoint{"127.0.0.1", 29500});
  CHECK(two.master_port == 29500);
  CHECK(two.run_id == "none");
  const JoinSpec three = join_of({.nnodes = NodeRange{1, 3},
                                  .max_restarts = 2,
                                  .node_rank = 2,
                                  .master_addr = "[fe80::1]",
                                  .master_port = 77});
  CHECK(three.node_count == 3);
  CHECK(three.node_rank == 2);
  CHECK_FALSE(three.is_coordinator);
  CHECK(three.endpoint == Endpoint{"fe80::1", 77});
  CHECK(three.master_addr == "fe80::1");
  CHECK(three.max_restarts == 2);
}

TEST_CASE("an endpoint overrides master address and port, with a warning") {
  const Options options{.nnodes = NodeRange{2, 2},
                        .master_addr = "a",
                        .master_port = 1,
                        .rdzv_endpoint = "b",
                        .program = "train"};
  const Plan plan = plan_of(options);
  CHECK(plan.agent.join.endpoint == Endpoint{"b", 29500});
  CHECK(plan.agent.join.master_addr == "b");
  CHECK(plan.warnings.size() == 2);
}

TEST_CASE("c10d without an endpoint meets at the master address and port, without a warning") {
  Options options{.nnodes = NodeRange{1, 2}, .rdzv_backend = "c10d", .program = "train"};
  options.master_addr = "gpu0";
  const Plan usual = plan_of(options);
  CHECK(usual.agent.join.endpoint == Endpoint{"gpu0", 29400});
  CHECK(usual.warnings.empty());
  options.master_port = 29777;
  const Plan own = plan_of(options);
  CHECK(own.agent.join.endpoint == Endpoint{"gpu0", 29777});
  CHECK(own.warnings.empty());
  options.rdzv_endpoint = "gpu1:5";
  const Plan given = plan_of(options);
  CHECK(given.agent.join.endpoint == Endpoint{"gpu1", 5});
  CHECK(given.warnings.size() == 2);
}

TEST_CASE("c10d with a fixed size is static if the node rank is given") {
  const JoinSpec one = join_of({.rdzv_backend = "c10d", .rdzv_endpoint = "localhost:0"});
  CHECK(one.endpoint == Endpoint{"localhost", 0});
  CHECK(one.run_id == "none");
  const JoinSpec two = join_of({.nnodes = NodeRange{2, 2},
                                .node_rank = 1,
                                .rdzv_backend = "c10d",
                                .rdzv_endpoint = "gpu0",
                                .rdzv_id = "7"});
  CHECK(two.endpoint == Endpoint{"gpu0", 29400});
  CHECK(two.run_id == "7");
  CHECK_FALSE(two.elastic);
  CHECK_FALSE(two.is_coordinator);
}

TEST_CASE("the message for an invalid plan names the option and the value") {
  CHECK_THAT(plan_error({.rdzv_backend = "etcd-v2"}),
             ContainsSubstring("--rdzv-backend=etcd-v2: the address of etcd is missing"));
  CHECK_THAT(plan_error({.rdzv_backend = "zeus"}), ContainsSubstring("--rdzv-backend=zeus"));
  CHECK_THAT(plan_error({.nnodes = NodeRange{2, 2}, .standalone = true}),
             ContainsSubstring("--nnodes=2: --standalone means one node"));
  CHECK_THAT(plan_error({.node_rank = 1}),
             ContainsSubstring("--node-rank=1: the job has only node 0"));
  CHECK_THAT(plan_error({.nnodes = NodeRange{3, 3}, .node_rank = 3}),
             ContainsSubstring("--node-rank=3: with --nnodes=3 it is 0 to 2"));
  CHECK_THAT(plan_error({.nnodes = NodeRange{2, 2}, .master_port = 0}),
             ContainsSubstring("--master-port=0: port 0 means any free port"));
  CHECK_THAT(plan_error({.nnodes = NodeRange{2, 2}, .rdzv_endpoint = "h:0"}),
             ContainsSubstring("--rdzv-endpoint=h:0: port 0"));
  CHECK_THAT(plan_error({.nnodes = NodeRange{2, 2}, .master_addr = "h:5"}),
             ContainsSubstring("--master-addr=h:5: set the port separately: --master-port=5"));
  CHECK_THAT(plan_error({.rdzv_endpoint = "h:x"}), ContainsSubstring("--rdzv-endpoint: "));
  CHECK_THAT(plan_error({.role = std::string(201, 'x')}), ContainsSubstring("--role=x"));
  CHECK_THAT(plan_error({.rdzv_id = "a/b"}), ContainsSubstring("--rdzv-id=a/b"));
  CHECK_THAT(plan_error({.nproc_per_node = Device::Xpu}), ContainsSubstring("=xpu"));
  CHECK_THAT(plan_error({.nproc_per_node = Device::Gpu}),
             ContainsSubstring("no GPU is visible on gpu0"));
  CHECK_THAT(plan_error({.module = true, .no_python = true}), ContainsSubstring("--no-python"));
}

TEST_CASE("if workers host the store, drun uses another port for the rendezvous") {
  const JoinSpec alone = join_of({.store = StoreHost::Worker});
  CHECK(alone.endpoint == Endpoint{"127.0.0.1", 0});
  CHECK(alone.master_port == 29500);
  const JoinSpec named =
      join_of({.master_addr = "gpu0", .master_port = 5, .store = StoreHost::Worker});
  CHECK(named.endpoint == Endpoint{"127.0.0.1", 0});
  CHECK(named.master_addr == "gpu0");
  CHECK(named.master_port == 5);
  const JoinSpec two =
      join_of({.nnodes = NodeRange{2, 2}, .master_addr = "gpu0", .store = StoreHost::Worker});
  CHECK(two.endpoint == Endpoint{"gpu0", 29400});
  CHECK(two.master_addr == "gpu0");
  CHECK(two.master_port == 29500);
  const JoinSpec apart = join_of({.nnodes = NodeRange{2, 2},
                                  .master_addr = "10.0.0.1",
                                  .rdzv_endpoint = "gpu0:9",
                                  .store = StoreHost::Worker});
  CHECK(apart.endpoint == Endpoint{"gpu0", 9});
  CHECK(apart.master_addr == "10.0.0.1");
  CHECK_THAT(
      plan_error(
          {.nnodes = NodeRange{2, 2}, .rdzv_endpoint = "gpu0:29500", .store = StoreHost::Worker}),
      ContainsSubstring("set another port in --rdzv-endpoint"));
  CHECK_THAT(plan_error({.nnodes = NodeRange{2, 2}, .master_port = 0, .store = StoreHost::Worker}),
             ContainsSubstring("requires a specific port"));
}

TEST_CASE("the number of workers may depend on the machine") {
  HostFacts host = train_host();
  CHECK(join_of({.nproc_per_node = 3}, host).local_world_size == 3);
  CHECK(join_of({.nproc_per_node = Device::Cpu}, host).local_world_size == 6);
  CHECK(join_of({.nproc_per_node = Device::Auto}, host).local_world_size == 6);
  host.gpus = 2;
  CHECK(join_of({.nproc_per_node = Device::Auto}, host).local_world_size == 2);
  CHECK(join_of({.nproc_per_node = Device::Gpu}, host).local_world_size == 2);
}

TEST_CASE("timeouts come from --rdzv-conf, and an unknown key causes a warning") {
  using std::chrono::seconds;
  CHECK(join_of({}).join_timeout == seconds(900));
  CHECK(join_of({.rdzv_conf = {{"timeout", "60"}}}).join_timeout == seconds(60));
  CHECK(join_of({.rdzv_conf = {{"join_timeout", "5"}, {"timeout", "60"}}}).join_timeout ==
        seconds(5));
  CHECK(join_of({.rdzv_conf = {{"keep_alive_interval", "2"}}}).heartbeat_timeout == seconds(6));
  CHECK(join_of({.rdzv_conf = {{"keep_alive_max_attempt", "2"}}}).heartbeat_timeout == seconds(10));
  CHECK(join_of(
            {.rdzv_conf = {{"keep_alive_interval", "1e9"}, {"keep_alive_max_attempt", "1000000"}}})
            .heartbeat_timeout == std::chrono::hours(24 * 365));
  CHECK_THAT(plan_error({.rdzv_conf = {{"join_timeout", "0"}}}),
             ContainsSubstring("--rdzv-conf join_timeout=0: expected seconds"));
  CHECK_THAT(plan_error({.rdzv_conf = {{"keep_alive_max_attempt", "0"}}}),
             ContainsSubstring("expected a number, 1 or more"));
  Options options = running("train");
  options.rdzv_conf = {{"is_host", "1"}, {"read_timeout", "x"}, {"\"quoted", "1"}};
  const Plan plan = plan_of(options);
  REQUIRE(plan.warnings.size() == 1);
  CHECK_THAT(plan.warnings[0], ContainsSubstring("--rdzv-conf \"quoted=1: unknown key, ignored"));
}

TEST_CASE("scripts and modules run under the nearest Python") {
  std::map<std::string, FileKind> files{{"t.py", FileKind::NotExecutable},
                                        {"/usr/bin/python3", FileKind::Executable}};
  Options script = running("t.py");
  script.program_arguments = {"-x", "1"};
  const Program on_path = program_of(script, train_host(files));
  CHECK(on_path.argv == Words{"/usr/bin/python3", "-u", "t.py", "-x", "1"});
  CHECK(on_path.arguments_at == 3);
  CHECK_FALSE(on_path.cannot_start);

  Options module = running("pkg.main");
  module.module = true;
  CHECK(program_of(module, train_host(files)).argv ==
        Words{"/usr/bin/python3", "-u", "-m", "pkg.main"});
  CHECK(program_of(module, train_host(files)).arguments_at == 4);

  files["/venv/bin/python3"] = FileKind::Executable;
  files["/conda/bin/python"] = FileKind::Executable;
  CHECK(program_of(script, train_host(files, {{"CONDA_PREFIX", "/conda"}})).argv[0] ==
        "/conda/bin/python");
  CHECK(
      program_of(script, train_host(files, {{"CONDA_PREFIX", "/conda"}, {"VIRTUAL_ENV", "/venv"}}))
          .argv[0] == "/venv/bin/python3");
  const Program chosen =
      program_of(script, train_host(files, {{"VIRTUAL_ENV", "/venv"}, {"PYTHON_EXEC", "/opt/py"}}));
  CHECK(chosen.argv[0] == "/opt/py");
  REQUIRE(chosen.cannot_start);
  CHECK_THAT(chosen.cannot_start->message, ContainsSubstring("PYTHON_EXEC: /opt/py: no such file"));
  const Program none = program_of(script, train_host({{"t.py", FileKind::Executable}}));
  REQUIRE(none.cannot_start);
  CHECK_THAT(none.cannot_start->message, ContainsSubstring("set PYTHON_EXEC"));
}

TEST_CASE("a script is looked up in the working directory, and a program on PATH") {
  const HostFacts host = train_host({{"/usr/bin/python3", FileKind::Executable},
                                     {"/usr/bin/on_path.py", FileKind::Executable},
                                     {"./here", FileKind::Executable},
                                     {"/usr/bin/closed", FileKind::NotExecutable},
                                     {"./closed.sh", FileKind::NotExecutable},
                                     {"./folder", FileKind::Directory},
                                     {"folder.py", FileKind::Directory}});
  const auto problem = [&](const std::string& name) {
    const Program program = program_of(running(name), host);
    REQUIRE(program.cannot_start);
    return std::pair(program.cannot_start->status.error_number, program.cannot_start->message);
  };
  CHECK_FALSE(program_of(running("train"), host).cannot_start);
  CHECK(program_of(running("train"), host).argv == Words{"train"});
  CHECK_FALSE(program_of(running("./here"), host).cannot_start);
  CHECK(problem("on_path.py").first == ENOENT);
  CHECK(problem("here") ==
        std::pair(ENOENT, std::string("here is not on PATH, but in this directory; write ./here")));
  CHECK(problem("gone") ==
        std::pair(ENOENT, std::string("gone is not on PATH; write its path, such as ./gone")));
  for (const char* word : {"stauts", "statu", "docotr", "hepl"})
    CHECK_THAT(plan_of(running(word)).cannot_start->message,
               ContainsSubstring("did you mean drun"));
  CHECK(problem("./gone").first == ENOENT);
  CHECK_THAT(problem("./gone").second, ContainsSubstring("no such file in /home/me"));
  CHECK(problem("closed").first == EACCES);
  CHECK(problem("./closed.sh").first == EACCES);
  CHECK_THAT(problem("./closed.sh").second,
             ContainsSubstring("chmod +x") && ContainsSubstring("noexec"));
  CHECK(problem("./folder").first == EACCES);
  CHECK(problem("folder.py").first == EACCES);
}

TEST_CASE(
    "a script is executed with --no-python, and a text file runs in Python under the name "
    "torchrun") {
  const HostFacts host = train_host({{"/usr/bin/python3", FileKind::Executable},
                                     {"./t.py", FileKind::Executable},
                                     {"t.py", FileKind::Executable},
                                     {"./text", FileKind::NotExecutable}});
  Options script = running("./t.py");
  CHECK(program_of(script, host).argv[0] == "/usr/bin/python3");
  script.no_python = true;
  CHECK(program_of(script, host).argv == Words{"./t.py"});
  Options text = running("./text");
  CHECK(program_of(text, host).cannot_start);
  text.invoked_as = "torchrun";
  CHECK(program_of(text, host).argv == Words{"/usr/bin/python3", "-u", "./text"});
  Options path = running("./text");
  path.run_path = true;
  CHECK_FALSE(program_of(path, host).cannot_start);
}

TEST_CASE(
    "a program that cannot start ends a one-node job, and causes a warning with several nodes") {
  Options options = running("gone");
  CHECK(plan_of(options).cannot_start);
  CHECK(plan_of(options).warnings.empty());
  options.nnodes = NodeRange{2, 2};
  const Plan plan = plan_of(options);
  CHECK_FALSE(plan.cannot_start);
  REQUIRE(plan.warnings.size() == 1);
  CHECK_THAT(plan.warnings[0], ContainsSubstring("the job will fail on this node"));
}

TEST_CASE("streams go to files and to the console by torchrun's rules") {
  Options options = running("train");
  options.nproc_per_node = 3;
  options.redirects.of_ranks = {{0, 3}, {1, 1}};
  options.tee.of_ranks = {{1, 1}, {2, 2}};
  options.local_ranks_filter = {0, 1};
  const OutputSpec output = plan_of(options).agent.output;
  const StreamPlan file{.to_file = true, .to_console = false};
  const StreamPlan teed{.to_file = true, .to_console = true, .is_labeled = true};
  const StreamPlan plain{};
  const StreamPlan hidden{.to_console = false};
  const StreamPlan hidden_tee{.to_file = true, .to_console = false, .is_labeled = true};
  REQUIRE(output.streams.size() == 3);
  CHECK(output.streams[0] == std::array{file, file});
  CHECK(output.streams[1] == std::array{teed, plain});
  CHECK(output.streams[2] == std::array{hidden, hidden_tee});
}

TEST_CASE("a local rank that this node does not have is rejected") {
  Options options = running("train");
  options.nproc_per_node = 12;
  options.tee.of_ranks = {{11, 3}};
  CHECK(plan_of(options).agent.output.streams[11][0].to_file);
  options.tee.of_ranks = {{12, 3}};
  CHECK(plan_error(options) ==
        "--tee: there is no local rank 12; the local ranks of this node are 0 to 11");
  options.tee.of_ranks = {};
  options.redirects.of_ranks = {{40, 3}};
  CHECK_THAT(plan_error(options), ContainsSubstring("--redirects: there is no local rank 40"));
  options.redirects.of_ranks = {};
  options.local_ranks_filter = {12};
  CHECK_THAT(plan_error(options),
             ContainsSubstring("--local-ranks-filter: there is no local rank 12"));
}

TEST_CASE("files, labels, reports and limits come from options or torchrun's variables") {
  Options options = running("train");
  CHECK(plan_of(options).agent.output.log_dir == std::nullopt);
  options.log_dir = "logs";
  CHECK(plan_of(options).agent.output.log_dir == "/home/me/logs");
  options.log_dir = "/dev/null";
  CHECK(plan_of(options).agent.output.log_dir == "");
  options.reports = {"out.json", "out.html"};
  CHECK(plan_of(options).report_file == "out.json");
  CHECK(plan_of(options).html_report_file == "out.html");
  CHECK(plan_of(options).agent.keeps_events);
  options.reports = {"out.xml"};
  CHECK(plan_of(options).report_file == "out.xml");
  CHECK_FALSE(plan_of(options).agent.keeps_events);
  CHECK_THAT(plan_error({.reports = {"a.xml", "b.json"}}),
             ContainsSubstring("give one .html file and one other file at most"));
  CHECK_THAT(plan_error({.reports = {""}}), ContainsSubstring("it is empty"));
  CHECK_THAT(plan_error({.reports = {"/none/out.json"}}),
             ContainsSubstring("--report=/none/out.json: there is no directory /none; create it"));
  CHECK_THAT(plan_error({.reports = {"out"}}, train_host({{"out", FileKind::Directory}})),
             ContainsSubstring("--report=out: it is a directory; give the name of a file"));
  const HostFacts host = train_host({}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7"},
                                         {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "<${rank}>"},
                                         {"TORCHELASTIC_ERROR_FILE", "/e.json"}});
  const AgentSpec agent = plan_of(options, host).agent;
  CHECK(agent.shutdown_timeout == std::chrono::seconds(7));
  CHECK(agent.output.label_template == "<${rank}>");
  options.label = "";
  CHECK(plan_of(options, host).agent.output.label_template == "<${rank}>");
  options.label = "${hostname}: ";
  CHECK(plan_of(options, host).agent.output.label_template == "${hostname}: ");
  CHECK(agent.error_file == "/e.json");
  CHECK(agent.host == "gpu0");
  options.shutdown_timeout = std::chrono::seconds(1);
  CHECK(plan_of(options, host).agent.shutdown_timeout == std::chrono::seconds(1));
  options.shutdown_timeout.reset();
  CHECK_THAT(plan_error(options, train_host({}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "-1"}})),
             ContainsSubstring("TORCH_ELASTIC_SHUTDOWN_TIMEOUT=-1"));
  CHECK(plan_of(running("train")).agent.shutdown_timeout == std::chrono::seconds(30));
}

TEST_CASE("signals are accepted by name, and those that cannot be handled cause a warning") {
  CHECK(plan_of(running("train")).agent.termination_signals ==
        std::vector<int>{SIGTERM, SIGINT, SIGHUP, SIGQUIT});
  Options options = running("train");
  options.signals_to_handle = Words{"SIGUSR1", "TERM", "SIGUSR1", "SIGKILL", "SIGNONE"};
  const Plan plan = plan_of(options);
  CHECK(plan.agent.termination_signals == std::vector<int>{SIGUSR1, SIGTERM});
  REQUIRE(plan.warnings.size() == 2);
  CHECK_THAT(plan.warnings[0], ContainsSubstring("SIGKILL cannot be handled"));
  CHECK_THAT(plan.warnings[1], ContainsSubstring("SIGNONE is not a signal"));
}

TEST_CASE("workers inherit the whole environment and get torchrun's defaults") {
  const auto value = [](const Plan& plan, std::string_view name) {
    HostFacts facts;
    facts.environment = plan.agent.worker.environment;
    return variable(facts, name);
  };
  Options options = running("train");
  CHECK(value(plan_of(options), "OMP_NUM_THREADS") == std::nullopt);
  CHECK(value(plan_of(options), "TORCH_NCCL_ASYNC_ERROR_HANDLING") == "1");
  options.nproc_per_node = 2;
  CHECK(value(plan_of(options), "OMP_NUM_THREADS") == "1");
  CHECK(plan_of(options).notes.size() == 1);
  const HostFacts host = train_host(
      {}, {{"OMP_NUM_THREADS", "4"}, {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"}, {"MINE", ""}});
  const Plan plan = plan_of(options, host);
  CHECK(value(plan, "OMP_NUM_THREADS") == "4");
  CHECK(value(plan, "TORCH_NCCL_ASYNC_ERROR_HANDLING") == "3");
  CHECK(value(plan, "MINE") == "");
  CHECK(plan.notes.empty());
  CHECK(value(plan, "TORCHELASTIC_SIGNALS_TO_HANDLE") == "SIGTERM,SIGINT,SIGHUP,SIGQUIT");
  options.signals_to_handle = {"SIGUSR1", "SIGTERM"};
  CHECK(value(plan_of(options, host), "TORCHELASTIC_SIGNALS_TO_HANDLE") == "SIGUSR1,SIGTERM");
}

TEST_CASE("virtual local ranks require one device per worker") {
  Options options = running("train");
  options.nproc_per_node = 3;
  options.virtual_local_rank = true;
  CHECK(plan_of(options).agent.worker.virtual_local_rank);
  CHECK(plan_of(options, train_host({}, {{"CUDA_VISIBLE_DEVICES", "4,5,6"}}))
            .agent.worker.virtual_local_rank);
  CHECK_THAT(plan_error(options, train_host({}, {{"CUDA_VISIBLE_DEVICES", "4,5"}})),
             ContainsSubstring("names 2 devices for 3 workers"));
  const std::vector<EnvironmentEntry> hip{{"CUDA_VISIBLE_DEVICES", "4,5,6"},
                                          {"HIP_VISIBLE_DEVICES", "0,1"}};
  CHECK_THAT(plan_error(options, train_host({}, hip)),
             ContainsSubstring("HIP_VISIBLE_DEVICES=\"0,1\" names 2 devices for 3 workers"));
}

TEST_CASE("Gloo's short addresses are enabled for every worker unless the user has set them") {
  const auto value = [](const Plan& plan, std::string_view name) -> std::string {
    for (const auto& entry : plan.agent.worker.environment)
      if (entry.first == name) return entry.second;
    return "not set";
  };
  const Options options = running("train");
  CHECK(value(plan_of(options), "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER") == "1");
  CHECK(value(plan_of(options), "GLOO_ENABLE_STORE_V2_API") == "1");
  const auto chosen =
      plan_of(options, train_host({}, {{"GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER", "0"}}));
  CHECK(value(chosen, "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER") == "0");
  CHECK(value(chosen, "GLOO_ENABLE_STORE_V2_API") == "1");
}

TEST_CASE("under the name torchrun workers inherit standard input unless --stdin is given") {
  Options options = running("train");
  CHECK(plan_of(options).agent.worker.stdin_source == StdinSource::DevNull);
  options.invoked_as = "torchrun";
  CHECK(plan_of(options).agent.worker.stdin_source == StdinSource::Inherited);
  options.stdin_source = StdinSource::DevNull;
  CHECK(plan_of(options).agent.worker.stdin_source == StdinSource::DevNull);
}

TEST_CASE("drun waits for leftover processes, or keeps them under the name torchrun") {
  Options options = running("train");
  CHECK(plan_of(options).agent.leftovers == LeftoverPolicy::Wait);
  options.invoked_as = "torchrun";
  CHECK(plan_of(options).agent.leftovers == LeftoverPolicy::Keep);
  options.leftovers = LeftoverPolicy::Kill;
  CHECK(plan_of(options).agent.leftovers == LeftoverPolicy::Kill);
}

TEST_CASE("torchrun's variable limits the wait for processes that survive SIGKILL") {
  const auto timeout = [](const std::string& value) {
    return plan_of(running("train"),
                   train_host({}, {{"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT", value}}))
        .agent.unkillable_timeout;
  };
  CHECK(timeout("2.5") == std::chrono::milliseconds(2500));
  for (const std::string value : {"", "0", "-1", "soon"})
    CHECK(timeout(value) == AgentSpec{}.unkillable_timeout);
}

TEST_CASE("the name torchrun changes the exit codes unless --exit-code is given") {
  Options options = running("train");
  CHECK(plan_of(options).exit_codes == ExitCodeStyle::Drun);
  options.invoked_as = "torchrun";
  CHECK(plan_of(options).exit_codes == ExitCodeStyle::Torchrun);
  options.exit_code = ExitCodeStyle::Drun;
  CHECK(plan_of(options).exit_codes == ExitCodeStyle::Drun);
}

TEST_CASE("hang detection is off by default, and missing output evidence causes a warning") {
  Options options = running("train");
  CHECK(plan_of(options).agent.hang_timeout.count() == 0);
  options.hang_timeout = std::chrono::seconds(60);
  const Plan plan = plan_of(options);
  CHECK(plan.agent.hang_timeout == std::chrono::seconds(60));
  CHECK(plan.warnings.empty());
  options.output = OutputMode::Raw;
  CHECK(plan_of(options).warnings.size() == 1);
  options.output = OutputMode::Lines;
  options.nproc_per_node = 2;
  options.local_ranks_filter = std::vector<int>{0};
  CHECK(plan_of(options).warnings.size() == 1);
  options.hang_timeout = std::chrono::milliseconds(999);
  CHECK_THAT(plan_error(options), ContainsSubstring("--hang-timeout"));
}

}  // namespace drun
