#include "agent/output/console_lines.h"

#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "tests/support/catch.h"

namespace drun::agent {
namespace {

std::string take_all(LineQueue& queue) {
  const std::string all(queue.bytes());
  queue.consume(all.size());
  return all;
}

const std::vector<std::string> kTexts = {
    "",
    "one\n",
    "one\ntwo\n\nfour",
    "\n\n",
    "dos\r\nlines\r\n",
    "\r 10%\r 20%\r100%\nafter\n",
    "10%\r20%\r100%\r\nafter",
    std::string("\0binary\n\xff\xfe\n", 11),
};

}  // namespace

TEST_CASE("without labels the output equals the input at any split") {
  for (const std::string& text : kTexts) {
    for (std::size_t first = 0; first <= text.size(); ++first) {
      for (std::size_t second = first; second <= text.size(); ++second) {
        LineQueue queue;
        LineBuffer lines(1, "");
        lines.take(std::string_view(text).substr(0, first), queue);
        lines.take(std::string_view(text).substr(first, second - first), queue);
        lines.show_held(queue);
        CHECK(queue.bytes() == text.substr(0, second));
        lines.take(std::string_view(text).substr(second), queue);
        lines.end_of_stream(queue);
        CHECK(queue.bytes() == text);
      }
    }
  }
}

TEST_CASE("a label precedes every line and follows every carriage return at any split") {
  const auto [text, labeled] = GENERATE(table<std::string, std::string>({
      {"", ""},
      {"one\n", "[0]:one\n"},
      {"one\ntwo\n\nfour", "[0]:one\n[0]:two\n[0]:\n[0]:four\n"},
      {"\n\n", "[0]:\n[0]:\n"},
      {"dos\r\nlines\r\n", "[0]:dos\r\n[0]:lines\r\n"},
      {"\r 10%\r 20%\nafter\n", "\r[0]: 10%\r[0]: 20%\n[0]:after\n"},
      {"10%\r20%\r100%\r\nafter", "[0]:10%\r[0]:20%\r[0]:100%\r\n[0]:after\n"},
      {"bar\r", "[0]:bar\r\n"},
  }));
  for (std::size_t first = 0; first <= text.size(); ++first) {
    for (std::size_t second = first; second <= text.size(); ++second) {
      LineQueue queue;
      LineBuffer lines(1, "[0]:");
      lines.take(std::string_view(text).substr(0, first), queue);
      lines.take(std::string_view(text).substr(first, second - first), queue);
      lines.take(std::string_view(text).substr(second), queue);
      lines.end_of_stream(queue);
      CHECK(queue.bytes() == labeled);
    }
  }
}

TEST_CASE("a prompt is shown, and the line continues unless another stream has ended it") {
  LineQueue queue;
  LineBuffer asking(1, "[0]:");
  LineBuffer other(2, "[1]:");
  asking.take("name? ", queue);
  CHECK(queue.bytes().empty());
  asking.show_held(queue);
  CHECK(take_all(queue) == "[0]:name? ");
  asking.show_held(queue);
  asking.take("me\n", queue);
  CHECK(take_all(queue) == "me\n");
  asking.take("again? ", queue);
  asking.show_held(queue);
  other.take("line\n", queue);
  asking.take("no\n", queue);
  CHECK(take_all(queue) == "[0]:again? \n[1]:line\n[0]:no\n");
}

TEST_CASE("lines of several streams stay whole and in order for pieces of any size") {
  const auto seed = GENERATE(range(0u, 50u));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const std::size_t streams = 1 + random() % 5;
  LineQueue queue;
  std::vector<std::unique_ptr<LineBuffer>> buffers;
  std::vector<std::string> left(streams);
  for (std::size_t stream = 0; stream < streams; ++stream) {
    buffers.push_back(std::make_unique<LineBuffer>(stream + 1, random() % 2 == 0 ? "" : "[x]:"));
    for (int line = 0; line < 40; ++line)
      left[stream] += "@" + std::to_string(stream) + " " + std::to_string(line) +
                      std::string(random() % 20, '.') + "\n";
  }
  for (std::size_t unfinished = streams; unfinished > 0;) {
    const std::size_t stream = random() % streams;
    if (left[stream].empty()) continue;
    const std::size_t size = std::min<std::size_t>(left[stream].size(), 1 + random() % 60);
    buffers[stream]->take(left[stream].substr(0, size), queue);
    left[stream].erase(0, size);
    if (left[stream].empty()) --unfinished;
    queue.consume(random() % (queue.size_bytes() + 1) / 64);  // leaves part of the queue unread
  }
  std::vector<int> next(streams, -1);
  std::string_view out = queue.bytes();
  if (const auto begin = out.find('\n'); begin != out.npos) out.remove_prefix(begin + 1);
  while (!out.empty()) {
    const std::string line(out.substr(0, out.find('\n')));
    out.remove_prefix(line.size() + 1);
    const std::size_t at = line.find('@');
    REQUIRE((at == 0 || line.starts_with("[x]:@")));
    std::size_t stream = 0;
    int number = 0;
    REQUIRE(std::sscanf(line.c_str() + at, "@%zu %d", &stream, &number) == 2);
    REQUIRE(stream < streams);
    CHECK((next[stream] == -1 || number == next[stream]));
    next[stream] = number + 1;
    CHECK(line.find('@', at + 1) == line.npos);
  }
  for (const int count : next) CHECK(count == 40);
}

TEST_CASE("text without a newline is held back until the newline arrives") {
  LineQueue queue;
  LineBuffer first(1, "");
  LineBuffer second(2, "");
  first.take("half", queue);
  CHECK(queue.bytes().empty());
  second.take("whole\n", queue);
  first.take(" and half\n", queue);
  CHECK(queue.bytes() == "whole\nhalf and half\n");
}

TEST_CASE("a progress bar is shown at once") {
  LineQueue queue;
  LineBuffer bar(1, "");
  bar.take("\r 10%", queue);
  CHECK(take_all(queue) == "\r 10%");
  bar.take("\r 20%", queue);
  CHECK(take_all(queue) == "\r 20%");
  bar.take("\n", queue);
  CHECK(take_all(queue) == "\n");
  CHECK_FALSE(queue.is_open());
}

TEST_CASE("progress bars overwrite each other, but lines do not overwrite progress bars") {
  LineQueue queue;
  LineBuffer first(1, "");
  LineBuffer second(2, "");
  first.take("\r 10%", queue);
  second.take("\r 15%", queue);
  CHECK(take_all(queue) == "\r 10%\r 15%");
  first.take("\r 20%", queue);
  CHECK(take_all(queue) == "\r 20%");
  second.take("saving\n", queue);
  CHECK(take_all(queue) == "\nsaving\n");
  first.take("\r 30%", queue);
  CHECK(take_all(queue) == "\r 30%");
}

TEST_CASE("progress bars that end with a carriage return overwrite each other, too") {
  LineQueue queue;
  LineBuffer first(1, "[0]:");
  LineBuffer second(2, "[1]:");
  first.take("10%\r", queue);
  second.take("15%\r", queue);
  CHECK(take_all(queue) == "[0]:10%\r[1]:15%\r");
  first.take("done\n", queue);
  CHECK(take_all(queue) == "\n[0]:done\n");
}

TEST_CASE("a newline that would only end an interrupted line is not repeated") {
  LineQueue queue;
  LineBuffer bar(1, "[0]:");
  LineBuffer other(2, "[1]:");
  bar.take("\r100%", queue);
  other.take("line\n", queue);
  bar.take("\nnext\n", queue);
  CHECK(queue.bytes() == "\r[0]:100%\n[1]:line\n[0]:next\n");
}

TEST_CASE("a line that exceeds the limit is forwarded in pieces without changes") {
  LineQueue queue;
  LineBuffer lines(1, "", 100);
  std::string seen;
  std::string text;
  for (int i = 0; i < 50; ++i) {
    const std::string piece(7, static_cast<char>('a' + i % 26));
    text += piece;
    lines.take(piece, queue);
    seen += take_all(queue);
    CHECK(lines.held_bytes() <= 100);
  }
  lines.take("\nnext\n", queue);
  CHECK(seen + take_all(queue) == text + "\nnext\n");
}

TEST_CASE("another stream's line does not wait for a long line and starts on a new line") {
  LineQueue queue;
  LineBuffer endless(1, "[0]:", 10);
  LineBuffer other(2, "[1]:", 10);
  endless.take("0123456789abc", queue);
  CHECK(take_all(queue) == "[0]:0123456789abc");
  other.take("line\n", queue);
  CHECK(take_all(queue) == "\n[1]:line\n");
  endless.take("de", queue);
  CHECK(take_all(queue).empty());
  endless.take("f\n", queue);
  CHECK(take_all(queue) == "[0]:def\n");
}

TEST_CASE("a last line without newline gets one only when another line follows") {
  LineQueue queue;
  LineBuffer first(1, "");
  LineBuffer second(2, "");
  first.take("no newline", queue);
  first.end_of_stream(queue);
  CHECK(take_all(queue) == "no newline");
  CHECK(queue.is_open());
  second.take("line\n", queue);
  CHECK(take_all(queue) == "\nline\n");
  second.take("end", queue);
  second.end_of_stream(queue);
  queue.end_line();
  CHECK(take_all(queue) == "end\n");
}

TEST_CASE("the last state of a progress bar stays visible after its stream has ended") {
  LineQueue queue;
  LineBuffer first(1, "");
  LineBuffer second(2, "");
  first.take("\r100%", queue);
  first.end_of_stream(queue);
  second.take("\r 50%", queue);
  CHECK(queue.bytes() == "\r100%\n\r 50%");
}

}  // namespace drun::agent
