#include "agent/spawn/command.h"

#include <algorithm>

#include "tests/support/catch.h"

namespace drun::agent {
namespace {

std::vector<std::string> strings(char* const* array) {
  std::vector<std::string> list;
  for (; *array != nullptr; ++array) list.emplace_back(*array);
  return list;
}

}  // namespace

TEST_CASE("a worker's own variables override inherited ones") {
  const std::vector<std::string> inherited =
      to_lines({{"A", "1"}, {"RANK", "9"}, {"RANKS", "x=y"}});
  const Command command{
      .argv = {"p"}, .inherited = inherited, .environment = {{"RANK", "3"}, {"B", ""}}};
  const ExecImage image(command, "/p");
  CHECK(strings(image.environment()) ==
        std::vector<std::string>{"A=1", "RANKS=x=y", "RANK=3", "B="});
}

TEST_CASE("inherited environment entries are shared, not copied") {
  const std::vector<std::string> inherited{"A=1"};
  const Command command{.argv = {"p"}, .inherited = inherited};
  const ExecImage image(command, "/p");
  CHECK(image.environment()[0] == inherited[0].c_str());
}

TEST_CASE("a script without #! is passed to /bin/sh by its path") {
  const Command command{.argv = {"script", "a", ""}};
  const std::string path = "/bin/script";
  ExecImage image(command, path);
  CHECK(strings(image.argv()) == std::vector<std::string>{"script", "a", ""});
  CHECK(strings(image.shell_argv()) == std::vector<std::string>{"/bin/sh", "/bin/script", "a", ""});
}

TEST_CASE("a variable lookup returns the value that the worker will see") {
  const std::vector<std::string> inherited{"PATH=/inherited", "PATHS=no", "EMPTY="};
  const Command own{.inherited = inherited, .environment = {{"PATH", "/own"}}};
  CHECK(find_variable(own, "PATH") == "/own");
  const Command none{.inherited = inherited};
  CHECK(find_variable(none, "PATH") == "/inherited");
  CHECK(find_variable(none, "EMPTY") == "");
  CHECK_FALSE(find_variable(none, "PAT"));
}

}  // namespace drun::agent
