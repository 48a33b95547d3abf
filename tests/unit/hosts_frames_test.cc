// Tests the channel from a remote agent to the launcher: preamble, frames, and workers' lines.
#include "agent/output/host_channel.h"

#include <random>

#include "tests/support/catch.h"
#include "tests/support/random_bytes.h"
#include "tests/support/taken_apart.h"

namespace drun::hosts {
namespace {

using agent::FrameType;
using rendezvous::Lines;
using rendezvous::LinesFrom;
using test::kNonce;
using test::Parts;
using test::taken_apart;

// Output of a worker that imitates drun.
const std::string kForged =
    "\x1e"
    "drun {\"exit_code\":7,\"text\":\"forged\",\"report\":\"\"}\n" +
    agent::to_frame(FrameType::Control, R"({"exit_code":7,"text":"forged","report":""})");

Lines lines_of(std::string text) {
  return {.round = 2,
          .local_rank = 1,
          .is_stderr = true,
          .is_shown = false,
          .is_labeled = true,
          .is_kept = true,
          .goes_on = true,
          .is_end = true,
          .time = WallTime(std::chrono::microseconds(1700000000000001)),
          .text = std::move(text)};
}

}  // namespace

TEST_CASE("frames with any bytes are decoded unchanged from pieces of any size") {
  const std::string ten_zeros(10, '\0');
  const Parts expected{.stray = "Welcome\n",
                       .frames = {{FrameType::Control, "hello"},
                                  {FrameType::Out, kForged},
                                  {FrameType::Err, ten_zeros},
                                  {FrameType::Out, agent::preamble(kNonce)},
                                  {FrameType::Lines, ""},
                                  {FrameType::Control, "end"}}};
  std::string bytes = expected.stray + agent::preamble(kNonce);
  for (const auto& [type, payload] : expected.frames) bytes += agent::to_frame(type, payload);
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece)
    CHECK(taken_apart(bytes, piece) == expected);
}

TEST_CASE("bytes before the preamble are never frames, and none are lost") {
  const std::string mark =
      "\x1e"
      "drun ";
  const std::string almost = agent::preamble(kNonce).substr(0, 20);
  const std::string login = "Last login: today\n" + kForged + almost + almost + mark + mark + "x" +
                            agent::preamble(std::string(32, '0')) + "no newline\x1e";
  const std::string bytes =
      login + agent::preamble(kNonce) + agent::to_frame(FrameType::Control, "hello");
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    CHECK(taken_apart(login, piece) == Parts{.stray = login, .frames = {}});
    CHECK(taken_apart(bytes, piece) ==
          Parts{.stray = login, .frames = {{FrameType::Control, "hello"}}});
  }
}

TEST_CASE("after an invalid frame header the rest of the stream is treated as text") {
  const std::string good = agent::to_frame(FrameType::Control, "hello");
  const std::string begin = agent::preamble(kNonce) + good;
  for (const std::string& bad :
       {std::string("drun: crashed\n"), std::string(5, '\0'), std::string("C\xff\xff\xff\xff", 5),
        std::string("C\x00\x50\x00\x01", 5), std::string("R\0\0\0\1x", 6)}) {
    const std::string bytes = begin + bad + good;
    for (const std::size_t piece : {std::size_t{1}, std::size_t{3}, bytes.size()})
      CHECK(taken_apart(bytes, piece) ==
            Parts{.stray = bad + good, .frames = {{FrameType::Control, "hello"}}});
  }
}

TEST_CASE("a frame that is truncated by the end of the stream is shown only if it holds text") {
  const std::string begin = agent::preamble(kNonce);
  CHECK(taken_apart(begin + agent::to_frame(FrameType::Out, "a line").substr(0, 9), 4).frames ==
        Parts{.stray = "", .frames = {{FrameType::Out, "a li"}}}.frames);
  for (const std::string& frame : {agent::to_frame(FrameType::Control, "0123456789"),
                                   agent::to_frame(FrameType::Lines, "0123456789")}) {
    for (std::size_t size = 1; size < frame.size(); ++size)
      CHECK(taken_apart(begin + frame.substr(0, size), 5) == Parts{});
  }
}

TEST_CASE("workers' lines are decoded unchanged from a frame") {
  const LinesFrom from{.node_rank = 3, .rank = 17, .role = "a role\nwith " + kForged};
  for (const Lines& lines : {lines_of("one\n" + kForged), lines_of(std::string("\0\xff", 2))}) {
    const auto read = agent::decode_lines(agent::encode_lines(from, lines));
    REQUIRE(read);
    CHECK(read->lines == lines);
    CHECK(read->from.node_rank == 3);
    CHECK(read->from.rank == 17);
    CHECK(read->from.role == from.role);
  }
}

TEST_CASE("invalid payloads of lines are rejected and never read beyond their end") {
  const std::string payload =
      agent::encode_lines({.rank = 1, .role = "r"}, lines_of("some text\n"));
  REQUIRE(agent::decode_lines(payload));
  std::mt19937 random(Catch::rngSeed());
  for (std::size_t size = 0; size < payload.size(); ++size) {
    CHECK_FALSE(agent::decode_lines(payload.substr(0, size)));
    std::string changed = payload;
    changed[size] = static_cast<char>(random());
    (void)agent::decode_lines(changed);
  }
  std::string far_role = payload;
  far_role.replace(8, 4, 4, '\xff');
  CHECK_FALSE(agent::decode_lines(far_role));
}

}  // namespace drun::hosts
