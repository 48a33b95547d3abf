#include "agent/output/console.h"

#include <fcntl.h>
#include <pty.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <optional>

#include "tests/support/catch.h"
#include "tests/support/output_rig.h"
#include "tests/support/process.h"

namespace drun::agent {
namespace {

struct ConsoleRig {
  explicit ConsoleRig(int fd) {
    std::signal(SIGPIPE, SIG_IGN);
    console.emplace(
        io, Log([this](LogLevel, std::string_view text) { log.emplace_back(text); }), fd, "stdout",
        Console::Listener{.on_room = [this] { ++rooms; }, .on_empty = [this] { ++empties; }});
  }
  void put(std::string_view bytes) {
    lines.take(bytes, console->queue());
    console->flush();
  }
  // Writes lines until the console is congested; returns their text.
  std::string fill() {
    std::string text;
    for (int i = 0; !console->is_congested() && i < 1000000; ++i) {
      const std::string line = "line " + std::to_string(i) + std::string(80, '.') + "\n";
      text += line;
      put(line);
    }
    CHECK(console->is_congested());
    return text;
  }

  asio::io_context io{1};
  std::vector<std::string> log;
  int rooms = 0;
  int empties = 0;
  LineBuffer lines{1, ""};
  std::optional<Console> console;
};

// While it exists, files with mode 0 cannot be opened, even when the test runs as root.
class NoPrivilege {
 public:
  explicit NoPrivilege(bool is_wanted) {
    if (is_wanted) ::setfsuid(65534);
  }
  ~NoPrivilege() { ::setfsuid(::geteuid()); }
};

struct Ends {
  UniqueFd reader;
  UniqueFd writer;
};

Ends make_ends(const std::string& kind) {
  int fds[2];
  if (kind == "pipe") {
    REQUIRE(::pipe2(fds, O_CLOEXEC) == 0);
  } else if (kind == "socket") {
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  } else {
    REQUIRE(::openpty(&fds[0], &fds[1], nullptr, nullptr, nullptr) == 0);
    termios settings{};
    REQUIRE(::tcgetattr(fds[1], &settings) == 0);
    ::cfmakeraw(&settings);  // the terminal passes bytes on unchanged
    REQUIRE(::tcsetattr(fds[1], TCSANOW, &settings) == 0);
  }
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

}  // namespace

TEST_CASE("a console that is not read congests, then takes everything in order") {
  const std::string kind = GENERATE("pipe", "socket", "terminal");
  const bool can_be_reopened = GENERATE(true, false);
  CAPTURE(kind, can_be_reopened);
  Ends ends = make_ends(kind);
  if (!can_be_reopened && kind != "socket") REQUIRE(::fchmod(ends.writer.get(), 0) == 0);
  std::optional<NoPrivilege> no_privilege(!can_be_reopened);
  ConsoleRig rig(ends.writer.get());
  no_privilege.reset();
  CHECK(rig.console->is_terminal() == (kind == "terminal"));
  const std::string text = rig.fill();
  CHECK(rig.console->queue().size_bytes() < kHighWaterBytes + 200);
  CHECK_FALSE(test::is_non_blocking(ends.writer.get()));
  const int empties_before = rig.empties;
  test::Collector reader(rig.io, std::move(ends.reader));
  reader.start();
  REQUIRE(test::run_until(rig.io, [&] { return reader.text().size() >= text.size(); }));
  CHECK(reader.text() == text);
  CHECK(rig.rooms == 1);
  CHECK_FALSE(rig.console->is_congested());
  CHECK(test::run_until(rig.io, [&] { return rig.empties == empties_before + 1; }));
  CHECK(rig.console->is_empty());
  CHECK_FALSE(test::is_non_blocking(ends.writer.get()));
  CHECK(rig.log.empty());
}

TEST_CASE("a file is written in order by its thread") {
  const test::TemporaryDirectory directory;
  const UniqueFd file(::open((directory / "out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ConsoleRig rig(file.get());
  std::string text;
  for (int i = 0; i < 100; ++i) {
    const std::string line(10000, static_cast<char>('a' + i % 26));
    text += line + "\n";
    rig.put(line + "\n");
  }
  REQUIRE(test::run_until(rig.io, [&] { return rig.console->is_empty(); }));
  CHECK(testing::read_file(directory / "out") == text);
  CHECK_FALSE(rig.console->is_congested());
  CHECK_FALSE(rig.console->is_terminal());
}

TEST_CASE("a console whose reader has exited is logged once and then discards its input") {
  const std::string kind = GENERATE("pipe", "socket", "terminal");
  CAPTURE(kind);
  Ends ends = make_ends(kind);
  ConsoleRig rig(ends.writer.get());
  const bool goes_while_waiting = GENERATE(false, true);
  if (goes_while_waiting) rig.fill();
  ends.reader.reset();
  rig.put("to no reader\n");
  REQUIRE(test::run_until(rig.io, [&] { return rig.console->is_gone(); }));
  rig.put("to no reader either\n");
  CHECK(rig.console->is_empty());
  CHECK_FALSE(rig.console->is_congested());
  REQUIRE(rig.log.size() == 1);
  CHECK_THAT(rig.log[0], ContainsSubstring("stream=stdout"));
}

TEST_CASE("a closed descriptor makes the console gone") {
  ConsoleRig rig(::dup(-1));
  CHECK(rig.console->is_gone());
  rig.put("to no reader\n");
  CHECK(rig.log.size() == 1);
}

TEST_CASE("lines of two consoles on one pipe stay whole") {
  test::PipeEnds pipe = test::make_plain_pipe();
  ConsoleRig one(pipe.write_end.get());
  ConsoleRig other(pipe.write_end.get());
  std::size_t size = one.fill().size();
  size += other.fill().size();
  test::Collector reader(one.io, std::move(pipe.read_end));
  reader.start();
  REQUIRE(test::run_until(one.io, [&] {
    other.io.poll();
    return reader.text().size() == size;
  }));
  for (const std::string& line : test::split_lines(reader.text())) {
    const bool is_whole = line.starts_with("line ") && line.ends_with(std::string(80, '.')) &&
                          line.find("line", 1) == line.npos;
    CHECK(is_whole);
  }
}

TEST_CASE("a stopped console lets the loop end") {
  test::PipeEnds pipe = test::make_plain_pipe();
  ConsoleRig rig(pipe.write_end.get());
  rig.fill();
  const int empties_before = rig.empties;
  rig.console->stop();
  CHECK(rig.rooms == 1);
  CHECK(rig.empties == empties_before + 1);
  rig.io.run_for(std::chrono::seconds(10));
  CHECK(rig.io.stopped());
}

}  // namespace drun::agent
