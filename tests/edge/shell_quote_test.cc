#include "launcher/base/words.h"

#include <random>

#include "launcher/base/version.h"
#include "launcher/hosts/remote_command.h"
#include "tests/support/catch.h"
#include "tests/support/process.h"

namespace drun::hosts {
namespace {

using testing::Launch;

// Returns the words as a shell parses them.
std::string through_shell(const std::vector<std::string>& words) {
  std::string command = "printf '%s\\0'";
  for (const std::string& word : words) command += " " + shell_quoted(word);
  return testing::run(Launch{.argv = {"sh", "-c", command}}).out;
}

}  // namespace

TEST_CASE("quoted words pass through a shell unchanged") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  std::vector<std::string> words = {
      "",    "a b", "it's", "''",      "$HOME", "`id`",     "\\", "a\nb",  "!x",  "*",   "~",
      "a=b", "=ls", "-n",   "--a=b c", "#c",    "\xff\xfe", "\"", "$(id)", "a;b", "a&b", "{a,b}"};
  for (int i = 0; i < 300; ++i) {
    std::string word(random() % 30, '\0');
    for (char& c : word) c = static_cast<char>(1 + random() % 255);
    words.push_back(word);
  }
  std::string expected;
  for (const std::string& word : words) expected += word + '\0';
  CHECK(through_shell(words) == expected);
}

TEST_CASE("words without special characters are not quoted") {
  CHECK(shell_quoted("/usr/bin/drun") == "/usr/bin/drun");
  CHECK(shell_quoted("--nnodes=2") == "--nnodes=2");
  CHECK(shell_quoted("me@node01") == "me@node01");
  CHECK(shell_quoted("A=1") == "'A=1'");
}

TEST_CASE(
    "the remote command runs drun from the given path, else from PATH, else fails with a message") {
  const testing::TemporaryDirectory directory;
  const std::string place = directory.file("it's here");
  const auto run = [&](const std::string& path) {
    return testing::run(Launch{.argv = {"/bin/sh", "-c", remote_command(place, false)},
                               .environment = {{"PATH", path}}});
  };
  const std::string path = directory.path() + ":/usr/bin:/bin";
  const testing::Ended missing = run(path);
  CHECK(missing.code == 127);
  CHECK(missing.err == "drun: not found at " + place + " or on PATH on this host; install it\n");
  testing::write_file(directory.file("drun"), "#!/bin/sh\necho from PATH \"$@\"\n", true);
  CHECK(run(path).out == "from PATH --from-stdin\n");
  testing::write_file(place, "#!/bin/sh\necho \"$0\" \"$@\"\n", true);
  CHECK(run(path).out == place + " --from-stdin\n");
}

TEST_CASE("the remote command that may copy drun skips other versions of it") {
  const testing::TemporaryDirectory directory;
  const std::string place = directory.file("it's here");
  const auto run = [&] {
    return testing::run(Launch{
        .argv = {"/bin/sh", "-c",
                 "echo '@drun refuse for a test' | { " + remote_command(place, true) + "; }"},
        .environment = {{"PATH", directory.path() + ":/usr/bin:/bin"}}});
  };
  const auto write_drun = [&](const std::string& path, const std::string& version) {
    testing::write_file(path,
                        "#!/bin/sh\n[ \"$1\" != --version ] || exec echo '" + version +
                            " (GNU)'\necho \"$0\" \"$@\"\n",
                        true);
  };
  const std::string right = std::string("drun ") + kVersion;
  CHECK(run().code == 127);
  CHECK(run().out.starts_with("@drun want "));
  write_drun(directory.file("drun"), "drun 0.0.1");
  write_drun(place, "another program");
  const testing::Ended other = run();
  CHECK(other.code == 127);
  CHECK(other.out.ends_with(" drun 0.0.1 (GNU)\n"));
  CHECK(other.err == "drun: not found at " + place + " or on PATH on this host in version " +
                         kVersion + ", and not copied: for a test\n");
  write_drun(directory.file("drun"), right);
  CHECK(run().out == directory.file("drun") + " --from-stdin\n");
  write_drun(place, right);
  CHECK(run().out == place + " --from-stdin\n");
}

}  // namespace drun::hosts
