// Workers' lines as frames on an agent's standard output.
#include "agent/output/gather/line_frames.h"

#include <random>

#include "launcher/hosts/hand_over.h"
#include "launcher/hosts/marked_lines.h"
#include "tests/support/catch.h"
#include "tests/support/taken_apart.h"

namespace drun::hosts {
namespace {

using agent::FrameHead;
using rendezvous::Lines;
using rendezvous::LinesFrom;
using test::Parts;
using test::taken_apart;

Lines lines_of(std::string text) {
  return {.round = 2,
          .local_rank = 1,
          .is_stderr = true,
          .is_shown = false,
          .is_labelled = true,
          .is_kept = true,
          .goes_on = true,
          .is_end = true,
          .time = WallTime(std::chrono::microseconds(1700000000000001)),
          .text = std::move(text)};
}

}  // namespace

TEST_CASE("frames come out as they went in whatever is in them and wherever the pieces break") {
  const LinesFrom from{.node_rank = 3,
                       .rank = 17,
                       .role =
                           "a role\nwith \x1e"
                           "drun # in it"};
  const Lines first = lines_of("one\n" + std::string(kMark) +
                               "{}\n\x1e"
                               "drun #9 9 9 9\n");
  const Lines second = lines_of(std::string("\0\xff", 2));
  const std::string bytes = "text\n" + agent::to_frame(from, first) + "more" + std::string(kMark) +
                            "line\n" + agent::to_frame(from, second) + "end";
  for (const std::size_t piece : {std::size_t{1}, std::size_t{2}, std::size_t{7}, bytes.size()}) {
    const Parts parts = taken_apart(bytes, piece);
    CHECK(parts.text == "text\nmore<line>end");
    REQUIRE(parts.frames.size() == 2);
    CHECK(parts.frames[0].lines == first);
    CHECK(parts.frames[1].lines == second);
    for (const auto& frame : parts.frames) {
      CHECK(frame.from.node_rank == 3);
      CHECK(frame.from.rank == 17);
      CHECK(frame.from.role == from.role);
    }
  }
}

TEST_CASE("a frame that the stream's end cuts is nothing") {
  const std::string frame = agent::to_frame({.rank = 1}, lines_of("text\n"));
  for (std::size_t size = kMark.size() + 1; size < frame.size(); ++size) {
    const Parts parts = taken_apart(frame.substr(0, size), 5);
    CHECK(parts.text.empty());
    CHECK(parts.frames.empty());
  }
}

TEST_CASE("who takes no frames sees marked lines and text") {
  const std::string frame = agent::to_frame({.rank = 1}, lines_of("text\n"));
  CHECK(taken_apart(frame, 1000, false).text.starts_with("<#"));
}

TEST_CASE("heads that are none are refused") {
  CHECK(agent::parse_frame_head("5 1 2 3") ==
        FrameHead{.payload_bytes = 5, .node_rank = 1, .rank = 2, .role_bytes = 3});
  for (const char* bad : {"", "5", "5 1 2", "5 1 2 6", "5 1 2 3 ", "5 1 2 3 4 5", " 5 1 2 3",
                          "5  1 2 3", "-5 1 2 3", "5 -1 2 3", "1048577 1 2 3", "5 1 9999999999 3",
                          "99999999999999999999999 1 2 3", "5 1 x 3"}) {
    INFO(bad);
    CHECK_FALSE(agent::parse_frame_head(bad));
  }
}

TEST_CASE("payloads that are no lines are refused and none is read beyond its end") {
  const std::string frame = agent::to_frame({.rank = 1, .role = "r"}, lines_of("some text\n"));
  const std::size_t begin = frame.find('\n') + 1;
  const std::string payload = frame.substr(begin, frame.size() - begin - 1);
  const auto head = agent::parse_frame_head(std::string_view(frame).substr(
      agent::kFrameMark.size(), begin - 1 - agent::kFrameMark.size()));
  REQUIRE(head);
  REQUIRE(agent::parse_frame(*head, payload));
  std::mt19937 random(Catch::rngSeed());
  for (std::size_t size = 0; size < payload.size(); ++size) {
    FrameHead shorter = *head;
    shorter.payload_bytes = size;
    CHECK_FALSE(agent::parse_frame(*head, payload.substr(0, size)));
    (void)agent::parse_frame(shorter, payload.substr(0, size));
    std::string changed = payload;
    changed[size] = static_cast<char>(random());
    (void)agent::parse_frame(*head, changed);
  }
  const FrameHead none{.payload_bytes = 0, .role_bytes = 0};
  CHECK_FALSE(agent::parse_frame(none, ""));
}

}  // namespace drun::hosts
