// Tests both ends of a remote agent's channel: consoles that write frames, and the launcher's
// handling of them.
#include "agent/output/host_channel.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "launcher/remote/host_output.h"
#include "tests/support/catch.h"
#include "tests/support/event_loop.h"
#include "tests/support/taken_apart.h"

namespace drun::hosts {
namespace {

using agent::Console;
using agent::FrameType;

struct Ends {
  explicit Ends(bool is_socket) {
    int fds[2];
    if (is_socket)
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    else
      REQUIRE(::pipe2(fds, O_CLOEXEC) == 0);
    reader = UniqueFd(fds[0]);
    writer = UniqueFd(fds[1]);
    REQUIRE(::fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0);
  }
  std::string read_all() const {
    std::string all;
    std::array<char, 65536> buffer{};
    for (;;) {
      const ssize_t got = ::read(reader.get(), buffer.data(), buffer.size());
      if (got <= 0) return all;
      all.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }
  UniqueFd reader;
  UniqueFd writer;
};

Console::Listener nothing() {
  return {.on_room = [] {}, .on_empty = [] {}};
}

// The launcher's side of one host, with pipes as consoles.
struct ReceiverRig {
  std::string shown_out() { return out_ends.read_all(); }
  std::string shown_err() { return err_ends.read_all(); }

  asio::io_context io{1};
  Ends out_ends{false};
  Ends err_ends{false};
  Console out{io, {}, out_ends.writer.get(), "stdout", nothing()};
  Console err{io, {}, err_ends.writer.get(), "stderr", nothing()};
  std::string events;
  HostReceiver receiver{
      HostConsoles{.out = out, .err = err},
      "b",
      1,
      {.on_report = {},
       .on_answers = {},
       .on_hello = [this](const Hello&) { events += "hello "; },
       .on_end = [this](const End& end) { events += "end " + std::to_string(end.exit_code) + " "; },
       .on_room = [this](std::size_t bytes) { events += "room " + std::to_string(bytes) + " "; }}};
};

}  // namespace

TEST_CASE("a channel that is stopped within a frame can still complete that frame") {
  std::signal(SIGPIPE, SIG_IGN);
  const bool is_socket = GENERATE(false, true);
  const Ends ends(is_socket);
  asio::io_context io{1};
  Console channel(io, {}, ends.writer.get(), "channel", nothing());
  channel.as_channel();
  Console out(channel, FrameType::Out);
  Console err(channel, FrameType::Err);
  agent::LineBuffer lines(1, "");
  std::string bytes = agent::preamble(test::kNonce);
  REQUIRE(::write(ends.writer.get(), bytes.data(), bytes.size()) ==
          static_cast<ssize_t>(bytes.size()));
  for (int i = 0; !out.is_congested(); ++i) {
    Console& console = i % 2 == 0 ? out : err;
    lines.take(std::string(5000, static_cast<char>('a' + i % 26)) + "\n", console.queue());
    console.flush();
    REQUIRE(i < 100000);
  }
  CHECK(err.is_congested());
  CHECK_FALSE(out.is_empty());
  out.stop();
  CHECK(err.is_gone());
  std::string came = ends.read_all();
  const std::string last =
      channel.unfinished_frame() + agent::to_frame(FrameType::Control, "the end");
  REQUIRE(::write(ends.writer.get(), last.data(), last.size()) ==
          static_cast<ssize_t>(last.size()));
  came += ends.read_all();
  const test::Parts parts = test::taken_apart(came, 1000);
  CHECK(parts.stray.empty());
  REQUIRE(parts.frames.size() > 2);
  CHECK(parts.frames.back() == test::Taken{FrameType::Control, "the end"});
  for (std::size_t i = 0; i + 1 < parts.frames.size(); ++i) {
    CHECK(parts.frames[i].type == (i % 2 == 0 ? FrameType::Out : FrameType::Err));
    CHECK(parts.frames[i].payload.size() == 5001);
  }
}

TEST_CASE(
    "login text is the failure reason before Hello, and is shown with the host name afterwards") {
  std::signal(SIGPIPE, SIG_IGN);
  ReceiverRig rig;
  rig.receiver.take_stray(false, "Welcome");
  rig.receiver.take_stray(true, "beware\n");
  CHECK(rig.shown_err().empty());
  rig.receiver.take({FrameType::Control, to_text(Hello{})});
  CHECK(rig.shown_err() == "b: Welcome\nb: beware\n");
  rig.receiver.take_stray(true, "one\ntw");
  rig.receiver.take({FrameType::Err, "[b:1]: text\n"});
  rig.receiver.take({FrameType::Out, "[b:1]: more\n"});
  rig.receiver.take({FrameType::Control, "room 9"});
  rig.receiver.take({FrameType::Control, "nonsense"});
  rig.receiver.take({FrameType::Control, to_text(End{.exit_code = 3})});
  rig.receiver.take_stray(false, to_text(End{.exit_code = 7}));
  CHECK(rig.receiver.end().empty());
  CHECK(rig.shown_out() == "[b:1]: more\n");
  const std::string err = rig.shown_err();
  CHECK_THAT(err, StartsWith("b: one\n[b:1]: text\n"));
  CHECK_THAT(err, ContainsSubstring("b: tw\n") && ContainsSubstring("b: end [7"));
  CHECK(rig.events == "hello room 9 end 3 ");
}

TEST_CASE("a login that prints more than the limit loses no text") {
  std::signal(SIGPIPE, SIG_IGN);
  ReceiverRig rig;
  std::string shown;
  for (int i = 0; i < 3000; ++i) {
    rig.receiver.take_stray(true, "line " + std::to_string(i) + "\n");
    shown += rig.shown_err();
  }
  const std::string words = rig.receiver.end();
  shown += rig.shown_err();
  CHECK(words.size() <= kMostWordsBytes);
  CHECK(rig.events.empty());
  // The retained text is the reason that the start report shows.
  std::string all = shown;
  for (std::size_t at = 0; at < words.size(); at = words.find('\n', at) + 1)
    all += "b: " + words.substr(at, words.find('\n', at) + 1 - at);
  std::string expected;
  for (int i = 0; i < 3000; ++i) expected += "b: line " + std::to_string(i) + "\n";
  CHECK(all == expected);
}

}  // namespace drun::hosts
