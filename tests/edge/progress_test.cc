#include "agent/output/progress.h"

#include <fcntl.h>
#include <pty.h>

#include "tests/support/catch.h"
#include "tests/support/output_rig.h"

namespace drun::agent {
namespace {

struct Terminal {
  Terminal() {
    int fds[2];
    winsize size{};
    size.ws_row = 24;
    size.ws_col = 30;
    REQUIRE(::openpty(&fds[0], &fds[1], nullptr, nullptr, &size) == 0);
    outer = UniqueFd(fds[0]);
    inner = UniqueFd(fds[1]);
    ::fcntl(outer.get(), F_SETFL, O_NONBLOCK);
  }
  // Returns everything written to the terminal so far.
  const std::string& text() {
    char bytes[256];
    for (ssize_t got = 0; (got = ::read(outer.get(), bytes, sizeof(bytes))) > 0;)
      text_.append(bytes, static_cast<std::size_t>(got));
    return text_;
  }

  Progress::Draw draw() const {
    return [fd = inner.get()](std::string_view bytes) {
      REQUIRE(::write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    };
  }

  UniqueFd outer;
  UniqueFd inner;

 private:
  std::string text_;
};

const std::string kErase = "\r\x1b[K";

}  // namespace

TEST_CASE(
    "a terminal shows a line that is rewritten, and that is erased before a log line and at the "
    "end") {
  Terminal terminal;
  asio::io_context io(1);
  Progress progress(io, terminal.inner.get(), terminal.draw());
  int calls = 0;
  progress.start([&calls] { return std::optional("state " + std::to_string(++calls)); });
  CHECK(progress.is_shown());
  CHECK(terminal.text().empty());
  REQUIRE(test::run_until(io, [&] { return terminal.text().ends_with("state 2"); }));
  CHECK(terminal.text() == kErase + "state 1" + kErase + "state 2");
  std::string logged;
  const Log log =
      progress.around(Log([&logged](LogLevel, std::string_view text) { logged = text; }));
  log.info("news");
  CHECK(logged == "news");
  CHECK(terminal.text().ends_with("state 2" + kErase));
  progress.stop();
  CHECK(terminal.text().ends_with("state 2" + kErase));
  io.restart();
  CHECK(io.run_for(std::chrono::seconds(3)) <= 1);  // the canceled timer
}

TEST_CASE("a line is cut to the terminal's width, and control characters are replaced") {
  Terminal terminal;
  asio::io_context io(1);
  Progress progress(io, terminal.inner.get(), terminal.draw());
  progress.start([] { return std::optional("a\nb\x1b[2J" + std::string(100, 'x')); });
  REQUIRE(test::run_until(io, [&] { return !terminal.text().empty(); }));
  CHECK(terminal.text() == kErase + "a?b?[2J" + std::string(19, 'x') + "...");
}

TEST_CASE("a line is not cut inside a character") {
  Terminal terminal;
  asio::io_context io(1);
  Progress progress(io, terminal.inner.get(), terminal.draw());
  progress.start([] { return std::optional(std::string(25, 'x') + "\u00e4" + "yyyy"); });
  REQUIRE(test::run_until(io, [&] { return !terminal.text().empty(); }));
  CHECK(terminal.text() == kErase + std::string(25, 'x') + "...");
}

TEST_CASE("nothing is shown if the output is not a terminal") {
  test::PipeEnds pipe = test::make_plain_pipe();
  asio::io_context io(1);
  Progress progress(io, pipe.write_end.get(), [](std::string_view) { FAIL("drawn"); });
  progress.start([] { return std::optional<std::string>("news"); });
  CHECK_FALSE(progress.is_shown());
  CHECK(io.run() == 0);
  progress.stop();
  pipe.write_end.reset();
  char byte = 0;
  CHECK(::read(pipe.read_end.get(), &byte, 1) == 0);
}

}  // namespace drun::agent
