#include "launcher/cli/options.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <map>

#include "launcher/cli/completion.h"
#include "launcher/cli/option_table.h"
#include "tests/support/catch.h"
#include "tests/support/plans.h"
#include "tests/support/variables.h"

namespace drun {
namespace {

using test::Variables;
using test::Words;

Result<Command> parse(Words words, const Variables& variables = {},
                      const std::string& name = "/usr/bin/drun") {
  HostFacts host;
  host.environment.assign(variables.begin(), variables.end());
  return test::parse_line(std::move(words), host, name);
}

Options unsourced(const Words& words, const Variables& variables = {},
                  const std::string& name = "drun") {
  Options options = std::get<Options>(test::value_of(parse(words, variables, name)));
  options.sources.clear();  // tested separately
  return options;
}

std::string line_error(const Words& words, const Variables& variables = {}) {
  return test::usage_error(parse(words, variables));
}

// A temporary file that is removed in the destructor.
class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text) {
    char path[] = "/tmp/drun_options_XXXXXX";
    const int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    close(fd);
    path_ = path;
    std::ofstream(path_) << text;
  }
  ~ConfigFile() { std::remove(path_.c_str()); }
  ConfigFile(const ConfigFile&) = delete;
  ConfigFile& operator=(const ConfigFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// One option with a value, and the change it makes.
struct Case {
  std::string name;
  std::string value;
  std::function<void(Options&)> expect;
};

using std::chrono::milliseconds;

const std::vector<Case> kCases{
    {"nnodes", "2:4",
     [](Options& o) {
       o.nnodes = {2, 4};
     }},
    {"nproc-per-node", "gpu", [](Options& o) { o.nproc_per_node = Device::Gpu; }},
    {"nproc-per-node", "8", [](Options& o) { o.nproc_per_node = 8; }},
    {"node-rank", "3", [](Options& o) { o.node_rank = 3; }},
    {"master-addr", "gpu0", [](Options& o) { o.master_addr = "gpu0"; }},
    {"master-port", "1234", [](Options& o) { o.master_port = 1234; }},
    {"max-restarts", "3", [](Options& o) { o.max_restarts = 3; }},
    {"max-restarts", "3/1h",
     [](Options& o) {
       o.max_restarts = 3;
       o.restart.window = std::chrono::hours(1);
     }},
    {"restart-on", "1,SIGKILL",
     [](Options& o) {
       o.restart.only_on = ExitKinds{{1}, {9}};
     }},
    {"no-restart-on", "2", [](Options& o) { o.restart.never_on.codes = {2}; }},
    {"restart-backoff", "2:600",
     [](Options& o) {
       o.has_restart_backoff = true;
       o.restart.pause = milliseconds(2000);
       o.restart.most_pause = milliseconds(600'000);
     }},
    {"max-restarts", "5/progress",
     [](Options& o) {
       o.max_restarts = 5;
       o.restart.per_progress = true;
     }},
    {"checkpoint-dir", "ckpt", [](Options& o) { o.checkpoint_directory = "ckpt"; }},
    {"max-same-failures", "0", [](Options& o) { o.max_same_failures = 0; }},
    {"startup-time", "90", [](Options& o) { o.restart.startup_time = milliseconds(90'000); }},
    {"time-limit", "2-12", [](Options& o) { o.time_limit = std::chrono::hours(60); }},
    {"signal-before", "60:SIGUSR1",
     [](Options& o) {
       o.signal_before = SignalBefore{milliseconds(60'000), 10};
     }},
    {"rank-order", "natural", [](Options& o) { o.rank_order = RankOrder::Natural; }},
    {"exclude-after", "2", [](Options& o) { o.exclude_after = 2; }},
    {"min-uptime", "0", [](Options& o) { o.min_uptime = milliseconds(0); }},
    {"heartbeat-timeout", "2.5", [](Options& o) { o.heartbeat_timeout = milliseconds(2500); }},
    {"rdzv-id", "a b", [](Options& o) { o.rdzv_id = "a b"; }},
    {"rdzv-backend", "c10d", [](Options& o) { o.rdzv_backend = "c10d"; }},
    {"rdzv-endpoint", "h:1", [](Options& o) { o.rdzv_endpoint = "h:1"; }},
    {"rdzv-conf", "a=1,b=2",
     [](Options& o) {
       o.rdzv_conf = {{"a", "1"}, {"b", "2"}};
     }},
    {"role", "trainer", [](Options& o) { o.role = "trainer"; }},
    {"local-addr", "10.0.0.2", [](Options& o) { o.local_addr = "10.0.0.2"; }},
    {"log-dir", "/logs", [](Options& o) { o.log_dir = "/logs"; }},
    {"redirects", "3", [](Options& o) { o.redirects.all = 3; }},
    {"tee", "0:1,12:2",
     [](Options& o) {
       o.tee.of_ranks = {{0, 1}, {12, 2}};
     }},
    {"local-ranks-filter", "0,2",
     [](Options& o) {
       o.local_ranks_filter = {0, 2};
     }},
    {"duplicate-stdout-filters", "a,b,,c",
     [](Options& o) {
       o.duplicate_stdout_filters = {"a", "b,c"};
     }},
    {"duplicate-stderr-filters", "x", [](Options& o) { o.duplicate_stderr_filters = {"x"}; }},
    {"signals-to-handle", "SIGTERM,SIGUSR1",
     [](Options& o) {
       o.signals_to_handle = {"SIGTERM", "SIGUSR1"};
     }},
    {"shutdown-timeout", "1.5", [](Options& o) { o.shutdown_timeout = milliseconds(1500); }},
    {"leftovers", "keep", [](Options& o) { o.leftovers = LeftoverPolicy::Keep; }},
    {"monitor-interval", "0.1", [](Options&) {}},
    {"start-method", "fork", [](Options&) {}},
    {"event-log-handler", "console", [](Options&) {}},
    {"bind-to", "gpu", [](Options& o) { o.bind_to = BindTo::GpuNode; }},
    {"bind-memory", "strict", [](Options& o) { o.bind_memory = MemoryPolicy::Strict; }},
    {"gpus-per-worker", "2", [](Options& o) { o.gpus_per_worker = 2; }},
    {"omp-threads", "auto", [](Options& o) { o.omp_threads = AutoThreads{}; }},
    {"omp-threads", "4", [](Options& o) { o.omp_threads = 4; }},
    {"wrap", "gdb 'a b'",
     [](Options& o) {
       o.wrap = {"gdb", "a b"};
     }},
    {"wrap-ranks", "0,12",
     [](Options& o) {
       o.wrap_ranks = {0, 12};
     }},
    {"report", "out.json", [](Options& o) { o.reports = {"out.json"}; }},
    {"exit-code", "torchrun", [](Options& o) { o.exit_code = ExitCodeStyle::Torchrun; }},
    {"metrics-port", "0.0.0.0:9464",
     [](Options& o) {
       o.metrics = Endpoint{"0.0.0.0", 9464};
     }},
    {"events", "/tmp/e", [](Options& o) { o.events = "/tmp/e"; }},
    {"engine", "none", [](Options& o) { o.engine = EngineChoice::None; }},
    {"store", "worker", [](Options& o) { o.store = StoreHost::Worker; }},
    {"output", "labelled", [](Options& o) { o.output = OutputMode::Labeled; }},
    {"output", "json", [](Options& o) { o.output = OutputMode::Json; }},
    {"preload", "torch,a.b",
     [](Options& o) {
       o.preload = {"torch", "a.b"};
     }},
    {"preload-timeout", "5", [](Options& o) { o.preload_timeout = milliseconds(5000); }},
    {"stdin", "rank0", [](Options& o) { o.stdin_source = StdinSource::Rank0; }},
    {"log-level", "DEBUG", [](Options& o) { o.log_level = LogLevel::Debug; }},
};

struct FlagCase {
  std::string name;
  bool Options::*field;
};
const std::vector<FlagCase> kFlags{
    {"standalone", &Options::standalone},
    {"preflight", &Options::preflight},
    {"exclude-slow", &Options::exclude_slow},
    {"module", &Options::module},
    {"no-python", &Options::no_python},
    {"run-path", &Options::run_path},
    {"pass-local-rank", &Options::pass_local_rank},
    {"virtual-local-rank", &Options::virtual_local_rank},
    {"timestamps", &Options::timestamps},
    {"gather-logs", &Options::gather_logs},
};

std::string with_underscores(std::string text) {
  for (char& c : text) c = c == '-' ? '_' : c;
  return text;
}

std::string variable_of(const std::string& name) {
  std::string text = "PET_" + with_underscores(name);
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

Options expected(const Case& each) {
  Options options;
  options.program = "p";
  each.expect(options);
  return options;
}

}  // namespace

TEST_CASE("every option works in both spellings, from its variable and from a file") {
  for (const Case& each : kCases) {
    CAPTURE(each.name, each.value);
    const Options wanted = expected(each);
    CHECK(unsourced({"--" + each.name + "=" + each.value, "p"}) == wanted);
    CHECK(unsourced({"--" + with_underscores(each.name) + "=" + each.value, "p"}) == wanted);
    CHECK(unsourced({"--" + each.name, each.value, "p"}) == wanted);
    CHECK(unsourced({"--" + with_underscores(each.name), each.value, "p"}) == wanted);
    CHECK(unsourced({"p"}, {{variable_of(each.name), each.value}}) == wanted);
    const ConfigFile file(each.name + " = \"" + each.value + "\"\n");
    CHECK(unsourced({"--config", file.path(), "p"}) == wanted);
    const ConfigFile twin(with_underscores(each.name) + " = \"" + each.value + "\"\n");
    CHECK(unsourced({"--config=" + twin.path(), "p"}) == wanted);
  }
}

TEST_CASE("every option has the same effect, or the same error, in each of its spellings") {
  int accepted = 0;
  const std::vector<CommandSyntax> commands = command_syntaxes();
  for (const OptionSyntax& option : commands.front().options) {
    const std::string name(option.name);
    Words values = choices_of(option.type);
    values.insert(values.end(), {"1", "x", ""});
    for (const std::string& value : values) {
      CAPTURE(name, value);
      const bool is_flag = option.value == OptionSyntax::Value::None;
      const Words words = is_flag ? Words{name, "p"} : Words{name + "=" + value, "p"};
      const Result<Command> wanted = parse(words);
      const auto check = [&wanted](const Words& others) {
        CAPTURE(others);
        const Result<Command> found = parse(others);
        REQUIRE(found.has_value() == wanted.has_value());
        CHECK((found ? *found == *wanted : found.error() == wanted.error()));
      };
      check(is_flag ? Words{underscored(name), "p"} : Words{underscored(name) + "=" + value, "p"});
      if (is_flag && option.letter != 0) check({std::string{'-', option.letter}, "p"});
      if (option.value != OptionSyntax::Value::Needed) continue;
      check({name, value, "p"});
      if (option.letter != 0) check({std::string{'-', option.letter}, value, "p"});
      if (option.may_have_one_dash) check({name.substr(1), value, "p"});
      const Options* const options = wanted ? std::get_if<Options>(&*wanted) : nullptr;
      if (options == nullptr) continue;
      CHECK(options->sources == std::map<std::string, std::string>{{name, name}});
      ++accepted;
    }
  }
  CHECK(accepted > 100);
}

TEST_CASE("the first bad value in the order of --help-all is reported") {
  CHECK_THAT(line_error({"--engine=x", "--tee=x", "--nnodes=x", "p"}), StartsWith("--nnodes=x: "));
  CHECK_THAT(line_error({"--tee=x", "p"}, {{"PET_ENGINE", "x"}}), StartsWith("PET_ENGINE=x: "));
}

TEST_CASE("every flag works in both spellings, from its variable and from a file") {
  for (const FlagCase& each : kFlags) {
    CAPTURE(each.name);
    CHECK(unsourced({"--" + each.name, "p"}).*each.field);
    CHECK(unsourced({"--" + with_underscores(each.name), "p"}).*each.field);
    CHECK(unsourced({"p"}, {{variable_of(each.name), "1"}}).*each.field);
    CHECK_FALSE(unsourced({"p"}, {{variable_of(each.name), "0"}}).*each.field);
    const ConfigFile file(each.name + " = true\n");
    CHECK(unsourced({"--config=" + file.path(), "p"}).*each.field);
    CHECK_FALSE(unsourced({"--config=" + file.path(), "p"}, {{variable_of(each.name), "0"}}).*
                each.field);
    CHECK_THAT(line_error({"p"}, {{variable_of(each.name), "true"}}),
               ContainsSubstring(variable_of(each.name) + "=true: expected 1 (on) or 0 (off)"));
    CHECK_THAT(line_error({"--" + each.name + "=1", "p"}), ContainsSubstring("takes no value"));
  }
}

TEST_CASE("short options are -r, -t and -m") {
  CHECK(unsourced({"-r3", "p"}).redirects.all == 3);
  CHECK(unsourced({"-t", "0:1,1:2", "p"}).tee.of_ranks == std::map<int, int>{{0, 1}, {1, 2}});
  CHECK(unsourced({"-m", "p"}).module);
}

TEST_CASE("the command line overrides the variable, and the variable overrides the file") {
  const ConfigFile file("nnodes = 2\nrole = \"from file\"\n");
  const Variables variables{{"PET_NNODES", "3"}};
  CHECK(unsourced({"--config=" + file.path(), "p"}).nnodes == NodeRange{2, 2});
  CHECK(unsourced({"--config=" + file.path(), "p"}, variables).nnodes == NodeRange{3, 3});
  CHECK(unsourced({"--nnodes=4", "--config=" + file.path(), "p"}, variables).nnodes ==
        NodeRange{4, 4});
  CHECK(unsourced({"--config=" + file.path(), "p"}, variables).role == "from file");
}

TEST_CASE("the source of each given value is recorded") {
  const ConfigFile file("role = \"r\"\n");
  const Result<Command> command =
      parse({"--nnod=2", "--config=" + file.path(), "p"}, {{"PET_NODE_RANK", "1"}});
  REQUIRE(command);
  const auto& sources = std::get<Options>(*command).sources;
  CHECK(sources.at("--nnodes") == "--nnodes");
  CHECK(sources.at("--node-rank") == "PET_NODE_RANK");
  CHECK(sources.at("--role") == file.path());
  CHECK(sources.count("--rdzv-id") == 0);
}

TEST_CASE("a variable that the command line overrides is not parsed") {
  CHECK(unsourced({"--nnodes=4", "p"}, {{"PET_NNODES", "bad"}}).nnodes == NodeRange{4, 4});
}

TEST_CASE("an empty variable counts as unset") {
  CHECK_FALSE(unsourced({"p"}, {{"PET_NNODES", ""}}).nnodes);
}

TEST_CASE("the last of repeated options counts") {
  CHECK(unsourced({"--nnodes=1", "--nnodes=2", "p"}).nnodes == NodeRange{2, 2});
}

TEST_CASE("values that are empty or begin with a dash are kept unchanged") {
  CHECK(unsourced({"--rdzv-id=", "p"}).rdzv_id == "");
  CHECK(unsourced({"--role=--nnodes=3", "p"}).role == "--nnodes=3");
  CHECK(unsourced({"--role=[a,b]", "p"}).role == "[a,b]");
  CHECK(unsourced({"--role=\"q\"", "p"}).role == "\"q\"");
  CHECK_FALSE(unsourced({"--role=--nnodes=3", "p"}).nnodes);
}

TEST_CASE("a configuration file may contain lists and comments") {
  const ConfigFile file("# mine\nlocal-ranks-filter = [0, 2]\nnnodes = 2\n");
  const Options options = unsourced({"--config", file.path(), "p"});
  CHECK(options.local_ranks_filter == std::vector<int>{0, 2});
  CHECK(options.nnodes == NodeRange{2, 2});
}

TEST_CASE("the message for a bad value names its source") {
  const std::string reason =
      "expected a number of nodes, such as 4, or MIN:MAX, each from 1 to 1048576";
  CHECK(line_error({"--nnodes=0", "p"}) == "--nnodes=0: " + reason);
  CHECK(line_error({"--nn", "0", "p"}) == "--nnodes=0: " + reason);
  CHECK(line_error({"p"}, {{"PET_NNODES", "x"}}) == "PET_NNODES=x: " + reason);
  const ConfigFile file("# mine\nnnodes = 0\n");
  CHECK(line_error({"--config", file.path(), "p"}) == file.path() + ":2: nnodes = 0: " + reason);
  CHECK_THAT(line_error({"--config=/nonexistent/x.toml", "p"}),
             ContainsSubstring("--config=/nonexistent/x.toml: cannot read the file"));
}

TEST_CASE("the message for a malformed configuration file names the line") {
  const auto error_of = [](const std::string& text) {
    const ConfigFile file(text);
    const std::string error = line_error({"--config", file.path(), "p"});
    REQUIRE(error.starts_with(file.path()));
    return error.substr(file.path().size());
  };
  CHECK_THAT(error_of("role = \"r\"\nnnodse = 2\n"),
             StartsWith(":2: \"nnodse\" is not an option; "));
  CHECK_THAT(error_of("r = \"3\"\n"), StartsWith(":1: \"r\" is not an option; "));
  CHECK_THAT(error_of("dry-run = \"json\"\n"), StartsWith(":1: \"dry-run\" is not an option; "));
  CHECK_THAT(error_of("role = 1:4\n"), StartsWith(":1: role: this is not a value; "));
  CHECK_THAT(error_of("nnodes = []\n"), StartsWith(":1: nnodes = []: no value"));
  CHECK_THAT(error_of("node-rank = 1\nnode_rank = 1\n"), StartsWith(":2: node_rank: set twice"));
  CHECK_THAT(error_of("preflight = 2\n"), StartsWith(":1: preflight = 2: expected true or false"));
  CHECK_THAT(error_of("preflight = [true, true]\n"), ContainsSubstring("expected true or false"));
  CHECK_THAT(line_error({"--config=/tmp", "p"}), StartsWith("--config=/tmp: cannot read the file"));
  const ConfigFile large(std::string((1 << 20) + 1, '#'));
  CHECK_THAT(line_error({"--config", large.path(), "p"}), ContainsSubstring("over 1 MiB"));
}

TEST_CASE("numbers, strings and lists in a file mean the same as on the command line") {
  const ConfigFile file(
      "monitor-interval = 0.25\nnode_rank = 0x1\nrole = \"a#b, [c]\"\nredirects = [\"0:1\", "
      "\"1:2\"]\n"
      "preflight = false\nexport = [\"A\", \"B=1\"]\n");
  const Options options = unsourced({"--config", file.path(), "p"});
  CHECK(options == unsourced({"--monitor-interval=0.25", "--node-rank=1", "--role=a#b, [c]",
                              "--redirects=0:1,1:2", "--export=A", "--export=B=1", "p"}));
}

TEST_CASE("a list of words in a file has its elements as they are") {
  const ConfigFile file(
      "wrap = [\"gdb\", \"-ex\", \"print a, b\"]\nssh-args = [\"-p\", \"22\"]\n"
      "duplicate-stdout-filters = [\"a,b\", \"c\"]\npreload = \"torch,numpy\"\n");
  const Options options = unsourced({"--config", file.path(), "p"});
  CHECK(options.wrap == Words{"gdb", "-ex", "print a, b"});
  CHECK(options.hosts.ssh_args == Words{"-p", "22"});
  CHECK(options.duplicate_stdout_filters == Words{"a,b", "c"});
  CHECK(options.preload == Words{"torch", "numpy"});
}

TEST_CASE("options from a file are passed to the agents on other hosts") {
  const ConfigFile file("hosts = [\"a\", \"b\"]\nmax-restarts = 3\npreflight = true\n");
  const auto plan = test::host_plan_of({"--config", file.path(), "./p"}, test::desk_with());
  const JoinSpec join = test::node_plan_of(plan, 1, test::desk_with()).agent.join;
  CHECK(join.max_restarts == 3);
  CHECK(join.preflight);
}

TEST_CASE("only the default logs specs are accepted") {
  CHECK(unsourced({"--logs-specs=default", "p"}).program == "p");
  CHECK_THAT(line_error({"--logs-specs=mine", "p"}), ContainsSubstring("--logs-specs=mine"));
}

TEST_CASE("the option --dry-run takes a value only after an equals sign") {
  CHECK(unsourced({"--dry-run", "json"}).dry_run == DryRun::Text);
  CHECK(unsourced({"--dry-run=json", "p"}).dry_run == DryRun::Json);
  CHECK(unsourced({"--dry-run=text", "p"}).dry_run == DryRun::Text);
  CHECK_THAT(line_error({"--dry-run=yaml", "p"}), ContainsSubstring("expected one of text, json"));
}

TEST_CASE("the option --explain has no environment variable") {
  CHECK(unsourced({"--explain", "p"}).explain);
  CHECK_FALSE(unsourced({"p"}, {{"PET_EXPLAIN", "1"}}).explain);
}

TEST_CASE("the program's arguments are kept unchanged") {
  const Options options = unsourced({"--nnodes=2", "a.py", "--nproc-per-node=9", "--r=1", "-h"});
  CHECK(options.program == "a.py");
  CHECK(options.program_arguments == Words{"--nproc-per-node=9", "--r=1", "-h"});
  CHECK_FALSE(options.nproc_per_node);
}

TEST_CASE("a double dash after the program is dropped only under the name torchrun") {
  CHECK(unsourced({"a.py", "--", "--r=16"}).program_arguments == Words{"--", "--r=16"});
  CHECK(unsourced({"a.py", "--", "--r=16"}, {}, "/opt/torchrun").program_arguments ==
        Words{"--r=16"});
  CHECK(unsourced({"a.py", "x", "--"}, {}, "torchrun").program_arguments == Words{"x", "--"});
}

TEST_CASE("LOGLEVEL is the default log level, and unknown values are ignored") {
  CHECK(unsourced({"p"}, {{"LOGLEVEL", "WARNING"}}).log_level == LogLevel::Warning);
  CHECK(unsourced({"--log-level=error", "p"}, {{"LOGLEVEL", "DEBUG"}}).log_level ==
        LogLevel::Error);
  CHECK_FALSE(unsourced({"p"}, {{"LOGLEVEL", "verbose"}}).log_level);
}

TEST_CASE("without arguments drun prints a short usage; without a program, an error") {
  const Result<Command> bare = parse({});
  REQUIRE(bare);
  CHECK(std::get<ShowText>(*bare).exit_code == 2);
  CHECK_THAT(std::get<ShowText>(*bare).text, ContainsSubstring("usage: drun"));
  CHECK_THAT(line_error({"--nnodes=2"}), ContainsSubstring("no program to start"));
  CHECK_THAT(line_error({"--"}), ContainsSubstring("no program to start"));
  CHECK_THAT(line_error({""}), ContainsSubstring("no program to start"));
}

namespace {

std::string help_of(std::vector<std::string> words) {
  const Result<Command> command = parse(std::move(words));
  REQUIRE(command);
  const ShowText& help = std::get<ShowText>(*command);
  CHECK(help.exit_code == 0);
  return help.text;
}

// Returns the number of lines.
int check_columns(const std::string& text) {
  int lines = 0;
  for (std::size_t begin = 0; begin < text.size(); ++lines) {
    const std::size_t end = text.find('\n', begin);
    REQUIRE(end != std::string::npos);
    CAPTURE(text.substr(begin, end - begin));
    CHECK(end - begin <= 80);
    begin = end + 1;
  }
  return lines;
}

}  // namespace

TEST_CASE("the text of --help-all lists every option, in 80 columns") {
  const std::string help = help_of({"--help-all"});
  check_columns(help);
  for (const Case& each : kCases) CHECK_THAT(help, ContainsSubstring("--" + each.name + " "));
  for (const FlagCase& each : kFlags) CHECK_THAT(help, ContainsSubstring("--" + each.name + " "));
  CHECK_THAT(std::get<ShowText>(*parse({"--version"})).text,
             ContainsSubstring("drun ") && ContainsSubstring(" (commit "));
}

TEST_CASE("the text of --help has 25 to 40 lines, and every option in it exists") {
  const std::string help = help_of({"--help"});
  const int lines = check_columns(help);
  CHECK(lines >= 25);
  CHECK(lines <= 40);
  CHECK(help_of({"-h"}) == help);
  const std::string all = help_of({"--help-all"});
  for (std::size_t at = help.find("--"); at != help.npos; at = help.find("--", at + 2)) {
    const std::string name = help.substr(at, help.find_first_of(" =,\n", at) - at);
    if (name == "--epochs") continue;  // an option of the example's program
    CHECK_THAT(all, ContainsSubstring(name + " ") || ContainsSubstring(name + "["));
  }
  const ShowText torchrun = std::get<ShowText>(*parse({"--help"}, {}, "torchrun"));
  CHECK_THAT(torchrun.text, ContainsSubstring("Usage: torchrun [options]"));
  CHECK(torchrun.text.find("drun status") == std::string::npos);
}

TEST_CASE("drun help explains topics and subcommands") {
  const std::string topics = help_of({"help"});
  check_columns(topics);
  for (const char* topic :
       {"job", "ssh", "ci", "elastic", "program", "output", "placement", "security", "shutdown"}) {
    CAPTURE(topic);
    CHECK_THAT(topics, ContainsSubstring(std::string("\n  ") + topic + " "));
    const std::string text = help_of({"help", topic});
    check_columns(text);
    CHECK_THAT(text, ContainsSubstring("\n  ") && ContainsSubstring("--"));
  }
  for (const char* command : {"status", "stacks", "report", "store", "doctor"})
    CHECK(help_of({"help", command}) == help_of({command, "--help"}));
  CHECK(help_of({"help", "hosts"}) == help_of({"help", "ssh"}));
  CHECK(help_of({"help", "--bind-to"}) == help_of({"help", "placement"}));
  CHECK_THAT(help_of({"help", "help"}), ContainsSubstring("Usage: drun help [TOPIC]"));
  CHECK(help_of({"help", "--help"}) == help_of({"help", "help"}));
  CHECK_THAT(line_error({"help", "me"}), ContainsSubstring("unknown topic \"me\""));
  CHECK(unsourced({"--", "help"}).program == "help");
  CHECK(unsourced({"help"}, {}, "torchrun").program == "help");
}

TEST_CASE("drun report accepts its options before and after the files") {
  const ReportCommand page{.files = {"a", "b"}, .output = "x.html"};
  CHECK(std::get<ReportCommand>(*parse({"report", "a", "-o", "x.html", "b"})) == page);
  CHECK(std::get<ReportCommand>(*parse({"report", "--output=x.html", "a", "b"})) == page);
  CHECK(std::get<ReportCommand>(*parse({"report", "-o", "-", "a"})).output == "-");
  const ReportCommand text{.files = {"-", "--text"}, .is_text = true};
  CHECK(std::get<ReportCommand>(*parse({"report", "--text", "-", "--", "--text"})) == text);
  CHECK_THAT(line_error({"report"}), ContainsSubstring("no event files"));
  CHECK_FALSE(parse({"report", "a", "--watch"}));
  CHECK_FALSE(parse({"report", "a", "-o"}));
  CHECK(unsourced({"--", "report"}).program == "report");
  CHECK(unsourced({"report"}, {}, "torchrun").program == "report");
}

TEST_CASE("drun logs accepts its options among the job and the ranks, also as letters") {
  const LogsCommand logs{
      .first = "night", .ranks = {{0, 3}, {7, 7}}, .is_following = true, .tail = 5};
  CHECK(std::get<LogsCommand>(*parse({"logs", "night", "-fn", "5", "7", "0-3"})) == logs);
  CHECK(std::get<LogsCommand>(*parse({"logs", "-n5", "night", "7", "-f", "--", "0-3"})) == logs);
  CHECK(std::get<LogsCommand>(*parse({"logs", "-gn", "n"})).pattern == "n");
  CHECK_THAT(line_error({"logs", "night", "x"}), ContainsSubstring("\"x\" is not a list"));
}

TEST_CASE("drun status accepts its options before and after the job") {
  CHECK(std::get<StatusCommand>(*parse({"status"})) == StatusCommand{});
  const StacksCommand stacks{.job = "night", .is_json = true};
  CHECK(std::get<StacksCommand>(*parse({"stacks", "night", "--json"})) == stacks);
  CHECK(std::get<StacksCommand>(*parse({"stacks"})) == StacksCommand{});
  CHECK_FALSE(parse({"stacks", "a", "b"}));
  CHECK_FALSE(parse({"stacks", "--watch"}));
  CHECK(std::get<StatusCommand>(*parse({"status", "--node"})).is_node);
  const StatusCommand wanted{.job = "night", .is_json = true, .is_live = true};
  CHECK(std::get<StatusCommand>(*parse({"status", "night", "--json", "--watch"})) == wanted);
  CHECK(std::get<StatusCommand>(*parse({"status", "--watch", "night", "--json"})) == wanted);
  CHECK(unsourced({"--", "status"}).program == "status");
  CHECK(unsourced({"status"}, {}, "torchrun").program == "status");
  CHECK_THAT(line_error({"status", "a", "b"}), ContainsSubstring("drun -- status"));
  CHECK_THAT(line_error({"status", "--port=1"}), ContainsSubstring("--port"));
}

TEST_CASE("messages name the helper command") {
  const auto name = [](Words argv) { return command_name(argv); };
  CHECK(name({"/usr/bin/drun", "status", "--x"}) == "drun status");
  CHECK(name({"drun", "help", "x"}) == "drun help");
  CHECK(name({"drun", "--x", "status"}) == "drun");
  CHECK(name({"torchrun", "status"}) == "torchrun");
  CHECK(name({}) == "drun");
  CHECK(line_error({"status", "--zzzzzz"}) == "unknown option --zzzzzz; --help lists the options");
}

TEST_CASE("drun list accepts no job") {
  CHECK(std::get<ListCommand>(*parse({"list"})) == ListCommand{});
  CHECK(std::get<ListCommand>(*parse({"list", "--json"})).is_json);
  CHECK(unsourced({"--", "list"}).program == "list");
  CHECK(unsourced({"list"}, {}, "torchrun").program == "list");
  CHECK_THAT(line_error({"list", "night"}), ContainsSubstring("drun -- list"));
  CHECK_FALSE(parse({"list", "--watch"}));
}

TEST_CASE("drun stop accepts its timeout before and after the jobs") {
  const StopCommand plain{.jobs = {"night"}, .timeout = std::nullopt};
  CHECK(std::get<StopCommand>(*parse({"stop", "night"})) == plain);
  const StopCommand timed{.jobs = {"night", "4711"}, .timeout = std::chrono::milliseconds(1500)};
  CHECK(std::get<StopCommand>(*parse({"stop", "night", "--timeout=1.5", "4711"})) == timed);
  CHECK(std::get<StopCommand>(*parse({"stop", "--timeout", "1.5", "night", "4711"})) == timed);
  CHECK(std::get<StopCommand>(*parse({"stop", "night", "4711", "--time", "1.5"})) == timed);
  CHECK(std::get<StopCommand>(*parse({"stop", "--timeout=0", "a"})).timeout->count() == 0);
  CHECK(std::get<StopCommand>(*parse({"stop", "--", "--a"})).jobs == Words{"--a"});
  CHECK(unsourced({"--", "stop"}).program == "stop");
  CHECK(unsourced({"stop"}, {}, "torchrun").program == "stop");
  CHECK_THAT(line_error({"stop"}), ContainsSubstring("no job"));
  CHECK_THAT(line_error({"stop", "a", "--timeout=-1"}), ContainsSubstring("--timeout=-1"));
  CHECK_FALSE(parse({"stop", "a", "--timeout"}));
  CHECK_FALSE(parse({"stop", "a", "--force"}));
}

TEST_CASE("drun logs accepts a job, ranks and options in any order") {
  CHECK(std::get<LogsCommand>(*parse({"logs"})) == LogsCommand{});
  const LogsCommand wanted{.first = "night",
                           .ranks = {{0, 3}, {8, 8}},
                           .is_following = true,
                           .pattern = "a b",
                           .tail = 5,
                           .has_stdout = false};
  CHECK(std::get<LogsCommand>(*parse({"logs", "night", "8", "0-1,2,3", "--follow", "--grep=a b",
                                      "--tail=5", "--stderr"})) == wanted);
  CHECK(std::get<LogsCommand>(*parse(
            {"logs", "-f", "-g", "a b", "-n", "5", "night", "--stderr", "0-3,8"})) == wanted);
  CHECK(std::get<LogsCommand>(*parse({"logs", "--stdout", "--stderr"})) == LogsCommand{});
  CHECK(std::get<LogsCommand>(*parse({"logs", "0-3"})).first == "0-3");
  CHECK(unsourced({"--", "logs"}).program == "logs");
  CHECK_THAT(line_error({"logs", "night", "3-1"}), ContainsSubstring("\"3-1\" is not a list of"));
  CHECK_THAT(line_error({"logs", "night", "one"}), ContainsSubstring("is not a list of ranks"));
  CHECK_THAT(line_error({"logs", "--grep=a("}),
             ContainsSubstring("--grep=a(") && ContainsSubstring("regular expression"));
  CHECK_FALSE(parse({"logs", "--tail=-1"}));
  CHECK_FALSE(parse({"logs", "--tail"}));
}

TEST_CASE("drun store serves a store, but not under the name torchrun") {
  CHECK(std::get<StoreCommand>(*parse({"store"})) == StoreCommand{});
  CHECK(std::get<StoreCommand>(*parse({"store", "--port", "0", "--loopback"})) ==
        StoreCommand{.port = 0, .is_loopback_only = true});
  CHECK(unsourced({"--", "store"}).program == "store");
  CHECK(unsourced({"./store"}).program == "./store");
  CHECK(unsourced({"store"}, {}, "torchrun").program == "store");
  CHECK_THAT(line_error({"store", "x"}), ContainsSubstring("drun -- store"));
  CHECK_THAT(line_error({"store", "--port=70000"}), ContainsSubstring("--port=70000"));
  CHECK_THAT(std::get<ShowText>(*parse({"store", "--help"})).text, ContainsSubstring("--loopback"));
}

}  // namespace drun
