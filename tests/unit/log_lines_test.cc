#include "launcher/commands/log_lines.h"

#include "launcher/cli/option_values.h"
#include "tests/support/catch.h"

namespace drun {
namespace {

// All of `text`, in pieces of `piece` bytes.
std::string printed(LogLines lines, std::string_view text, std::size_t piece) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += piece) lines.take(text.substr(at, piece), out);
  lines.end(out);
  return out;
}

std::string tail_of(const std::string& text, const TailWish& wish) {
  const ReadAt read = [&text](std::uint64_t offset, std::size_t bytes) {
    return text.substr(static_cast<std::size_t>(offset), bytes);
  };
  return text.substr(static_cast<std::size_t>(tail_offset(read, text.size(), wish)));
}

}  // namespace

TEST_CASE("log lines get a label and a line end, however the file is read") {
  for (const std::size_t piece : {1u, 2u, 3u, 100u}) {
    CHECK(printed(LogLines("[1]:", nullptr), "a\n\nbc\nd", piece) ==
          "[1]:a\n[1]:\n[1]:bc\n[1]:d\n");
    CHECK(printed(LogLines("", nullptr), "a\nb\n", piece) == "a\nb\n");
  }
  CHECK(printed(LogLines("x", nullptr), "", 1).empty());
}

TEST_CASE("an unfinished log line waits for its end") {
  LogLines lines("", nullptr);
  std::string out;
  lines.take("a\nb", out);
  CHECK(out == "a\n");
  lines.take("c\n", out);
  CHECK(out == "a\nbc\n");
}

TEST_CASE("a log line without an end is printed in pieces of bounded size") {
  LogLines lines("", nullptr);
  std::string out;
  const std::string block(std::size_t{64} << 10, 'x');
  for (int i = 0; i < 40; ++i) lines.take(block, out);
  CHECK(out.size() > LogLines::kLongestLineBytes);
  CHECK(out.size() < 40 * block.size());
  lines.end(out);
  CHECK(out.size() == 40 * block.size() + 3);
}

TEST_CASE("a pattern selects lines, also of bytes that are not text") {
  const LinePattern loss("loss=(nan|inf)$");
  CHECK(loss.matches("step 3 loss=nan"));
  CHECK_FALSE(loss.matches("step 3 loss=nan!"));
  CHECK(LinePattern("b").matches(std::string_view("a\0b", 3)));
  CHECK(LinePattern("^$").matches(""));
  CHECK(LinePattern("\xff").matches("a\xff"));
  CHECK(printed(LogLines("[0]:", &loss), "loss=1\nloss=inf\nloss=nan", 4) ==
        "[0]:loss=inf\n[0]:loss=nan\n");
  CHECK_FALSE(parse_pattern("("));
}

TEST_CASE("the tail of a log file is its last lines") {
  CHECK(tail_of("a\nb\nc\n", {.lines = 2}) == "b\nc\n");
  CHECK(tail_of("a\nb\nc", {.lines = 2}) == "b\nc");
  CHECK(tail_of("a\nb\n", {.lines = 5}) == "a\nb\n");
  CHECK(tail_of("a\nb\n", {.lines = 0}).empty());
  CHECK(tail_of("", {.lines = 3}).empty());
  CHECK(tail_of("\n\n\n", {.lines = 2}) == "\n\n");
  std::string large;
  for (int i = 0; i < 50000; ++i) large += "line " + std::to_string(i) + "\n";
  CHECK(tail_of(large, {.lines = 1}) == "line 49999\n");
  CHECK(tail_of(large, {.lines = 50000}) == large);
  const std::string last = tail_of(large, {.lines = 30000});
  CHECK(last.starts_with("line 20000\n"));
}

TEST_CASE("with a pattern the tail of a log file is the last lines that match") {
  const LinePattern error("error");
  const std::string text = "error 1\nok\nerror 2\nok\nerror 3\nok\n";
  CHECK(tail_of(text, {.lines = 2, .pattern = &error}) == "error 2\nok\nerror 3\nok\n");
  CHECK(tail_of(text, {.lines = 9, .pattern = &error}) == text);
  CHECK(tail_of("ok\n", {.lines = 1, .pattern = &error}).empty());
  CHECK(tail_of("ok\nerror", {.lines = 1, .pattern = &error}) == "error");
  const std::string long_text =
      std::string(200000, '-') + "\nerror\n" + std::string(90000, '-') + "\n";
  CHECK(tail_of(long_text, {.lines = 1, .pattern = &error}).starts_with("error\n"));
}

}  // namespace drun
