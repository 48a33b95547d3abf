#include "agent/output/worker_stream.h"

#include "tests/support/catch.h"

namespace drun::agent {

using TailLines = std::vector<std::string>;

TEST_CASE("a tail holds the end of a stream for any size of pieces") {
  const std::size_t piece = GENERATE(1u, 7u, 100u, 4096u, 32767u, 32768u, 32769u, 100000u);
  CAPTURE(piece);
  std::string text;
  for (int i = 0; i < 30000; ++i) text += "line " + std::to_string(i) + "\n";
  Tail tail;
  for (std::size_t at = 0; at < text.size(); at += piece)
    tail.take(std::string_view(text).substr(at, piece));
  CHECK(tail.bytes() == std::string_view(text).substr(text.size() - kTailBytes));
  const TailLines lines = last_lines(tail.bytes());
  REQUIRE(lines.size() == kTailLines);
  CHECK(lines.front() == "line 29980");
  CHECK(lines.back() == "line 29999");
}

TEST_CASE("the last lines are shown as on a terminal") {
  CHECK(last_lines("") == TailLines{});
  CHECK(last_lines("\n\n") == TailLines{});
  CHECK(last_lines("one") == TailLines{"one"});
  CHECK(last_lines("\none\n\ntwo\n\n") == TailLines{"", "one", "", "two"});
  CHECK(last_lines("dos\r\nlines\r\n") == TailLines{"dos", "lines"});
  CHECK(last_lines("\r 10%\r 20%\nend") == TailLines{" 20%", "end"});
}

TEST_CASE("PyTorch's C++ frames behind an error do not push it out of the last lines") {
  std::string text =
      "terminate called after throwing an instance of 'c10::DistBackendError'\n"
      "  what():  CUDA error: uncorrectable ECC error encountered\n"
      "Exception raised from c10_cuda_check_implementation:\n";
  for (int i = 0; i < 30; ++i) text += "frame #" + std::to_string(i) + ": c10::Error (libc10.so)\n";
  const TailLines lines = last_lines(text + "\nAborted\nframe #0: clone (libc.so.6)\n");
  REQUIRE(lines.size() == 5);
  CHECK(lines[1] == "  what():  CUDA error: uncorrectable ECC error encountered");
  CHECK(lines[4] == "Aborted");
  // PyTorch's hook for exceptions marks each line, once for each init_process_group().
  for (const std::string mark : {"[rank12]: ", "[rank3]: [rank3]: "}) {
    text = mark + "RuntimeError: CUDA error: x\n";
    for (int i = 0; i < 30; ++i) {
      text += mark + "frame #" + std::to_string(i) + ": c10::Error (a)\n";
      // With TORCH_SHOW_CPP_STACKTRACES=1.
      text += mark + "#" + std::to_string(i) + " c10::Error::Error() from /x/libc10.so:714418\n";
    }
    CHECK(last_lines(text) == TailLines{mark + "RuntimeError: CUDA error: x"});
  }
  text = "#1 from 3:\n#x from 3:1\n# from /x:2\n#2 of 3:4\n";
  CHECK(last_lines(text).size() == 4);
}

TEST_CASE("lines of a tail are truncated at the limit") {
  const TailLines lines =
      last_lines(std::string(10000, 'x') + "\n" + std::string(kTailLineBytes, 'y'));
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].size() == kTailLineBytes);
  CHECK(lines[0].ends_with("x..."));
  CHECK(lines[1] == std::string(kTailLineBytes, 'y'));
}

}  // namespace drun::agent
