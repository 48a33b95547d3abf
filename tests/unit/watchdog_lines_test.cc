#include "agent/output/stderr_record.h"

#include "tests/support/catch.h"

namespace drun::agent {
namespace {

const std::string kHead = "[rank1]:[E1127 07:18:45.983086335 ProcessGroupNCCL.cpp:1628] ";
const std::string kDump =
    kHead +
    "[PG ID 0 PG GUID 0(default_pg) Rank 1] ProcessGroupNCCL preparing to dump debug info. "
    "Include stack trace: 1, only active collectives: 0\n";
const std::string kTimeout =
    "[rank0]:[E1127 07:19:35.556233936 ProcessGroupNCCL.cpp:689] [Rank 0] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=21, OpType=ALLREDUCE, NumelIn=1000, "
    "NumelOut=1000, Timeout(ms)=60000) ran for 60069 milliseconds before timing out.\n";
const std::string kStack =
    kHead +
    "Stack trace of the failed collective: \n#0 all_reduce from distributed_c10d.py:3068\n"
    "#1 main from t.py:52\n\n";

constexpr WallTime kThen{std::chrono::seconds(100)};
constexpr WallTime kLater{std::chrono::seconds(160)};

std::size_t others_in(WatchdogLines& lines, std::string_view text, std::size_t piece_bytes) {
  std::size_t others = 0;
  for (; !text.empty(); text.remove_prefix(std::min(piece_bytes, text.size())))
    others += lines.take(text.substr(0, piece_bytes), kThen);
  return others;
}

}  // namespace

TEST_CASE("lines of PyTorch's watchdog are distinguished from a program's, in pieces of any size") {
  const std::string program = "step 1\n[rank1] loss 3\n[Epoch 2]\r[Epoch 3]\n#2\n\n[W]\n";
  const std::string text = program + kDump + program + kStack + "step 4\n" + kTimeout;
  for (const std::size_t piece_bytes : {7U, 64U, 100'000U}) {
    WatchdogLines lines;
    CAPTURE(piece_bytes);
    CHECK(others_in(lines, kDump, piece_bytes) == 0);
    const std::size_t others = others_in(lines, text, piece_bytes);
    CHECK(others == 2 * program.size() + 7);
  }
  WatchdogLines older;
  CHECK(older.take("[E ProcessGroupNCCL.cpp:475] [Rank 0] Watchdog caught\n", kThen) == 0);
  const std::string other = "[rank0]:[W1127 07:18:45.1 socket.cpp:755] [c10d] a client socket\n";
  CHECK(older.take(other, kThen) == other.size());
}

TEST_CASE("a progress bar counts at once, and hides no line of the watchdog behind it") {
  WatchdogLines lines;
  CHECK(lines.take("\r 10%|#  |", kThen) == 10);
  CHECK(lines.take("[##  ]", kThen) == 6);
  CHECK(lines.take(kDump, kThen) == 0);
  CHECK(lines.take("\r 20%|## |", kThen) == 10);
  const std::string line = "[rank1] and " + std::string(200, '.');
  CHECK(lines.take(line.substr(0, 5), kThen) == 0);
  CHECK(lines.take(line.substr(5), kThen) == line.size());
}

TEST_CASE("the first timeout that the watchdog reports is kept, with its time") {
  WatchdogLines lines;
  lines.take(kDump, kThen);
  CHECK_FALSE(lines.first_timeout());
  lines.take(kTimeout, kThen);
  lines.take(kTimeout, kLater);
  REQUIRE(lines.first_timeout());
  CHECK(lines.first_timeout()->read_at == kThen);
  CHECK_THAT(lines.first_timeout()->line, ContainsSubstring("SeqNum=21, OpType=ALLREDUCE"));
  lines.take(std::string(100'000, '['), kThen);
  lines.take(kHead + std::string(100'000, 'x'), kThen);
}

}  // namespace drun::agent
