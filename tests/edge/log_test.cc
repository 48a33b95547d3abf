#include "launcher/base/log.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/catch.h"

namespace drun {
namespace {

// Returns the function's output on file descriptor 2.
std::string stderr_of(const std::function<void()>& action) {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  const int saved = dup(STDERR_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  action();
  dup2(saved, STDERR_FILENO);
  close(saved);
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

}  // namespace

TEST_CASE("a log line has name, time, level, node and message") {
  const std::string text = stderr_of(
      [] { console_log({.invoked_as = "drun", .node = "node 1"}).warning("lost a={} 100% %n"); });
  CAPTURE(text);
  CHECK(std::regex_match(
      text, std::regex(R"(drun \d\d:\d\d:\d\d\.\d\d\d warning node 1: lost a=\{\} 100% %n\n)")));
}

TEST_CASE("a single node is not named, and the program name is not used as a format string") {
  const std::string text = stderr_of([] { console_log({.invoked_as = "my%n"}).info("hello"); });
  CAPTURE(text);
  CHECK(std::regex_match(text, std::regex(R"(my%n \d\d:\d\d:\d\d\.\d\d\d info: hello\n)")));
}

TEST_CASE("lines below the level are left out") {
  const auto lines = [](LogLevel level) {
    const std::string text = stderr_of([level] {
      const Log log = console_log({.level = level});
      log.debug("m");
      log.info("m");
      log.warning("m");
      log.error("m");
    });
    return std::count(text.begin(), text.end(), '\n');
  };
  CHECK(lines(LogLevel::Debug) == 4);
  CHECK(lines(LogLevel::Info) == 3);
  CHECK(lines(LogLevel::Warning) == 2);
  CHECK(lines(LogLevel::Error) == 1);
}

TEST_CASE("a redirected log writes the same lines to its new target, and none to stderr") {
  std::vector<std::string> lines;
  const std::string text = stderr_of([&lines] {
    const Log log = console_log({.level = LogLevel::Info,
                                 .is_wanted = [](std::string_view line) { return line != "no"; }})
                        .via([&lines](std::string_view line) { lines.emplace_back(line); });
    log.debug("below the level");
    log.info("no");
    log.info("yes");
  });
  CHECK(text.empty());
  REQUIRE(lines.size() == 1);
  CHECK(std::regex_match(lines[0], std::regex(R"(drun \d\d:\d\d:\d\d\.\d\d\d info: yes)")));
}

}  // namespace drun
