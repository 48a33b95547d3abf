// The messages between the agent and the preloaded interpreter, and the choice of workers that the
// interpreter starts.
#include "agent/preload/protocol.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace drun::agent::preload {
namespace {

using std::literals::operator""s;

const Start kStart{.program = {.python = "python3", .is_module = false, .name = "a.py"},
                   .environment = {{"OMP_NUM_THREADS", "2"}}};

Command worker(std::vector<EnvironmentEntry> environment = {{"OMP_NUM_THREADS", "2"}}) {
  return {.argv = {"python3", "-u", "a.py", "x"}, .environment = std::move(environment)};
}

}  // namespace

TEST_CASE("preloading applies to scripts and modules run with python -u") {
  CHECK(python_program({"/x/python3.11", "-u", "a.py", "-m"}) ==
        PythonProgram{.python = "/x/python3.11", .is_module = false, .name = "a.py"});
  CHECK(python_program({"python", "-u", "-m", "package", "x"}) ==
        PythonProgram{.python = "python", .is_module = true, .name = "package"});
  for (const std::vector<std::string>& argv : std::vector<std::vector<std::string>>{
           {},
           {"python3"},
           {"python3", "-u"},
           {"python3", "-u", "-m"},
           {"python3", "-u", "-c", "1"},
           {"python3", "-u", "-"},
           {"python3", "-u", ""},
           {"python3", "-O", "a.py"},
           {"sort", "-u", "file"},
           {"/python3/sort", "-u", "file"},
       })
    CHECK_FALSE(python_program(argv));
}

TEST_CASE("the interpreter starts a worker with the same program, Python and variables") {
  CHECK_FALSE(mismatch(kStart, worker()));
  CHECK_FALSE(mismatch(kStart, worker({{"OMP_NUM_THREADS", "2"},
                                       {"RANK", "1"},
                                       {"CUDA_VISIBLE_DEVICES", "1"},
                                       {"TORCHELASTIC_ERROR_FILE", "/x"},
                                       {"DRUN_HEARTBEAT_FILE", "/y"}})));
}

TEST_CASE("the reason for a plain start names the difference") {
  Command other = worker();
  other.argv = {"python3.12", "-u", "a.py"};
  CHECK_THAT(mismatch(kStart, other).value_or(""), ContainsSubstring("python3.12"));
  other.argv = {"python3", "-u", "b.py"};
  CHECK_THAT(mismatch(kStart, other).value_or(""), ContainsSubstring("b.py"));
  other.argv = {"gdb", "--args", "python3", "-u", "a.py"};
  CHECK(mismatch(kStart, other));
  CHECK_THAT(mismatch(kStart, worker({})).value_or(""),
             ContainsSubstring("OMP_NUM_THREADS is not set for it and \"2\""));
  CHECK_THAT(mismatch(kStart, worker({{"OMP_NUM_THREADS", "3"}})).value_or(""),
             ContainsSubstring("OMP_NUM_THREADS is \"3\" for it and \"2\""));
  CHECK_THAT(
      mismatch(kStart, worker({{"OMP_NUM_THREADS", "2"}, {"PYTHONPATH", "/x"}})).value_or(""),
      ContainsSubstring("PYTHONPATH is \"/x\" for it and not set"));
}

TEST_CASE("an inherited variable also counts as the interpreter's") {
  const std::vector<std::string> inherited{"LD_PRELOAD=a", "OMP_NUM_THREADS=8"};
  Command command = worker({{"OMP_NUM_THREADS", "2"}, {"LD_PRELOAD", "a"}});
  command.inherited = inherited;
  CHECK_FALSE(mismatch(kStart, command));
  command.environment.back().second = "b";
  CHECK(mismatch(kStart, command));
}

TEST_CASE("a request contains placement, words and variables") {
  const std::vector<std::string> inherited{"A=1", "B=2"};
  const WorkerPlacement place{
      .cpus = {0, 5}, .memory_nodes = {1}, .memory = MemoryPolicy::Strict, .devices = {}};
  Command command{.argv = {"python3", "-u", "a.py", ""},
                  .inherited = inherited,
                  .environment = {{"B", "x=y"}},
                  .placement = &place};
  CHECK(request(command, 7) == "7\0000,5\0strict\0001\0004\0python3\0-u\0a.py\0\0A=1\0B=x=y\0"s);
  command.placement = nullptr;
  CHECK(request(command, 7).starts_with("7\0\0none\0\0004\0"s));
}

TEST_CASE("only valid messages from the interpreter are accepted") {
  using Kind = Message::Kind;
  CHECK((parse_message("ready\0001.25\0"s) == Message{Kind::Ready, "1.25"}));
  CHECK((parse_message("failed\0torch\0"s) == Message{Kind::ImportFailed, "torch"}));
  CHECK((parse_message("unsafe\0a thread\0"s) == Message{Kind::Unsafe, "a thread"}));
  CHECK((parse_message("refused\0fork\0"s) == Message{Kind::Refused, "fork"}));
  CHECK((parse_message("forked\00042\0"s) == Message{.kind = Kind::Forked, .pid = 42}));
  for (const std::string& bytes :
       {""s, "ready"s, "ready\0"s, "ready\0x"s, "ready\0x\0y\0"s, "forked\0\0"s, "forked\0-1\0"s,
        "forked\0000\0"s, "forked\00012x\0"s, "forked\00099999999999\0"s, "other\0x\0"s, "\0\0"s,
        "unsafe\0"s + std::string(kMostMessageBytes, 'x') + "\0"s})
    CHECK((parse_message(bytes) == Message{}));
}

TEST_CASE("only valid reports on a worker's channel are accepted") {
  CHECK(std::get<MemoryNotPlaced>(parse_channel_message("memory 1").value()).error_number == 1);
  const auto cpus = std::get<NotBound>(parse_channel_message("cpus 22").value());
  CHECK((cpus.error_number == 22 && !cpus.is_memory));
  const auto strict = std::get<NotBound>(parse_channel_message("strict 1").value());
  CHECK((strict.error_number == 1 && strict.is_memory));
  for (const char* const bytes : {"", "memory", "memory ", "memory x", "memory -1", "other 1"})
    CHECK_FALSE(parse_channel_message(bytes));
}

}  // namespace drun::agent::preload
