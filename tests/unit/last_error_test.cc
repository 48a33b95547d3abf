#include "agent/output/stderr_record.h"

#include <random>

#include "tests/support/catch.h"

namespace drun::agent {
namespace {

using namespace std::chrono_literals;

constexpr WallTime kStart{std::chrono::hours(24 * 365 * 50)};
const std::string kError =
    "Traceback (most recent call last):\n"
    "  File \"train.py\", line 3, in <module>\n"
    "    step()\n"
    "ValueError: bad batch\n";

std::string noise(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i)
    text += "\ngpu0:1:2 [0] NCCL INFO comm " + std::to_string(i) + " destroyed";
  return text + "\n";
}

std::string error_in(const std::string& text, WallTime now = kStart) {
  LastError error;
  error.take(text, kStart);
  return error.before(20, now);
}

}  // namespace

TEST_CASE("an error counts if the last lines do not have it") {
  CHECK(error_in(kError + noise(25)) == kError);
  CHECK(error_in(kError + noise(10)).empty());
  CHECK(error_in(noise(100)).empty());
  CHECK(error_in("").empty());
}

TEST_CASE("an error counts for a time and a number of lines") {
  CHECK(error_in(kError + noise(1900)) == kError);
  CHECK(error_in(kError + noise(2001)).empty());
  CHECK(error_in(kError + noise(25), kStart + 60s) == kError);
  CHECK(error_in(kError + noise(25), kStart + 61s).empty());
}

TEST_CASE("all forms of errors are found") {
  for (const std::string line : {
           "RuntimeError: CUDA error: out of memory",
           "  what():  bad loss",
           "terminate called after throwing an instance of 'std::runtime_error'",
           "a.out: a.c:5: main: Assertion `n > 0' failed.",
           "/x/Indexing.cu:15: gather: block: [0,0,0], thread: [0,0,0] Assertion `i < n` failed.",
           "F1127 07:16:02.272876 1234 file.cc:15] Check failed: a == b",
           "[F1127 07:16:02.272876963 file.cpp:15] no",
           "CUDA error 700 at kernel.cu:7",
           "FATAL: no data",
           "panic: runtime error: index out of range [5] with length 3",
           "thread 'main' panicked at src/main.rs:2:5:",
           "[rank3]: KeyError: 'x'",
       }) {
    CAPTURE(line);
    CHECK(error_in("before\n" + line + "\n" + noise(25)) == line + "\n");
  }
  for (const std::string line :
       {"W1127 07:16:02.272876 1234 file.cc:15] Check failed: a == b", "step 1: loss: 0.5",
        "the Assertion `x` was true", "2026-11-27 error: no", "[1/2] Error: x"}) {
    CAPTURE(line);
    CHECK(error_in("before\n" + line + "\n" + noise(25)).empty());
  }
}

TEST_CASE("a traceback is found behind a progress bar, with a rank mark, and in any pieces") {
  std::string marked = "50%|###   |\r99%|#### |[rank0]: Traceback (most recent call last):\n";
  marked += "[rank0]:   File \"train.py\", line 3, in <module>\n[rank0]:     step()\n";
  marked += "[W1127 07:16:02.272876963 x.cpp:15] between\n[rank0]: ValueError: bad batch\n";
  const std::string found =
      "Traceback (most recent call last):\n[rank0]:   File \"train.py\", line 3, in <module>\n"
      "[rank0]:     step()\n[rank0]: ValueError: bad batch\n";
  const std::string text = std::string(20'000, '\r') + marked + noise(25);
  CHECK(error_in(text) == found);
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    LastError error;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = 1 + random() % (i < 25 ? 40 : 9000);
      error.take(std::string_view(text).substr(at, size), kStart);
      at += size;
    }
    CHECK(error.before(20, kStart) == found);
  }
}

TEST_CASE("exceptions that are chained stay together, and another one replaces them") {
  const std::string chained =
      kError + "\nDuring handling of the above exception, another exception occurred:\n\n" +
      "Traceback (most recent call last):\n  File \"a.py\", line 9, in f\nKeyError: 'k'\n";
  const std::string found = error_in(chained + noise(25));
  CHECK_THAT(found,
             ContainsSubstring("ValueError: bad batch") && ContainsSubstring("KeyError: 'k'"));
  CHECK(error_in(chained + noise(2) + kError + noise(25)) == kError);
}

TEST_CASE("exceptions that Python ignored do not replace the error") {
  const std::string ignored = "Exception ignored in: <function A.__del__ at 0x7f>\n";
  const std::string other = "Traceback (most recent call last):\n  File \"b.py\"\nOSError: x\n";
  CHECK(error_in(kError + ignored + other + noise(25)) == kError);
  CHECK(error_in(kError + ignored + "BrokenPipeError: [Errno 32] Broken pipe\n" + noise(25)) ==
        kError);
  CHECK(error_in(kError + other + ignored + other + noise(25)) == kError);  // of Cython
  CHECK(error_in(ignored + other + noise(25)).empty());  // the first lines of the stream
  CHECK(error_in(ignored + other + kError + noise(25)) == kError);
}

TEST_CASE("PyTorch's C++ frames are not among the lines that explain an error") {
  for (const std::string mark : {"", "[rank3]: ", "[rank3]: [rank3]: "}) {
    std::string frames;
    for (int i = 0; i < 30; ++i) frames += mark + "frame #" + std::to_string(i) + ": c10::Error\n";
    const std::string reason = mark + "Last error:\n";
    CHECK(error_in(kError + frames + reason + noise(25)) == kError + reason);
  }
}

TEST_CASE("the lines that explain an error follow it, up to an empty one") {
  const std::string text =
      "torch.distributed.DistBackendError: NCCL error in: x.cpp:3\n"
      "ncclSystemError: System call failed.\nLast error:\nsocket closed\n";
  CHECK(error_in(text + "\nmore\n" + noise(25)) == text);
}

TEST_CASE("Python's stack of the thread that got the signal is kept, not those of all others") {
  std::string text = "Fatal Python error: Segmentation fault\n\n";
  for (int i = 0; i < 30; ++i)
    text += "Thread 0x00007f0 (most recent call first):\n  File \"q\"\n\n";
  text += "Current thread 0x00007f1 (most recent call first):\n  File \"train.py\", line 5 in f\n";
  CHECK(error_in(text + noise(25)) ==
        "Fatal Python error: Segmentation fault\n"
        "Current thread 0x00007f1 (most recent call first):\n  File \"train.py\", line 5 in f\n");
}

TEST_CASE("a C++ exception behind one of Python is kept beside it") {
  const std::string other = "terminate called after throwing an instance of 'E'\n  what():  x\n";
  CHECK(error_in(kError + noise(3) + other + noise(25)) == kError + other);
}

TEST_CASE("the memory for an error is bounded, and the end of a long one is kept") {
  std::string text = "Traceback (most recent call last):\n";
  for (int i = 0; i < 3000; ++i)
    text += "  File \"" + std::string(static_cast<std::size_t>(i) % 3000, 'x') + "\"\n";
  text += "  last call\nRecursionError: " + std::string(100'000, 'y') + "\n";
  for (int i = 0; i < 100; ++i) text += std::string(2000, 'z') + "\n";
  const std::string found = error_in(text);
  CHECK(found.size() <= LastError::kMostErrorBlockBytes);
  CHECK(found.starts_with("Traceback"));
  CHECK_THAT(found, ContainsSubstring("RecursionError: yyy"));
}

}  // namespace drun::agent
