#include "launcher/report/status_text.h"

#include "tests/support/catch.h"

namespace drun {
namespace {

std::string job(const std::string& nodes) {
  return R"({"schema":"drun.job/1","run_id":"night","nodes":[)" + nodes + "]}";
}
std::string node(int rank, const std::string& state) {
  return R"({"node_rank":)" + std::to_string(rank) + R"(,"host":"gpu)" + std::to_string(rank) +
         R"(","state":")" + state + R"("})";
}

}  // namespace

TEST_CASE("a picture overwrites the one before, line by line") {
  CHECK(repaint("one\ntwo\n", {80, 24}) == "\x1b[Hone\x1b[0m\x1b[K\r\ntwo\x1b[0m\x1b[K\x1b[J");
  CHECK(repaint("", {80, 24}) == "\x1b[H\x1b[J");
}

TEST_CASE("a picture fits the terminal") {
  CHECK(repaint("abcdef\n", {4, 24}) == "\x1b[Habcd\x1b[0m\x1b[K\x1b[J");
  CHECK(repaint("\x1b[32mabcdef\n", {4, 24}) == "\x1b[H\x1b[32mabcd\x1b[0m\x1b[K\x1b[J");
  CHECK(repaint("\xc3\xa4\xc3\xa4\xc3\xa4\n", {2, 24}) ==
        "\x1b[H\xc3\xa4\xc3\xa4\x1b[0m\x1b[K\x1b[J");
  CHECK(repaint("1\n2\n3\n4\n", {80, 3}) ==
        "\x1b[H1\x1b[0m\x1b[K\r\n2\x1b[0m\x1b[K\r\n... 2 more lines\x1b[K\x1b[J");
}

TEST_CASE("the states of a job's nodes are a row of letters each") {
  StateHistory history;
  CHECK(history.text(80, false).empty());
  history.add(job(node(0, "joining") + "," + node(1, "joining")));
  history.add(job(node(0, "running") + "," + node(1, "running")));
  history.add(job(node(0, "running") + "," + node(1, "silent")));
  history.add("no status");
  CHECK(history.text(80, false) ==
        "\n  states in the last seconds:  j joining  r running  ? silent\n"
        "  node 0  gpu0  jrr\n"
        "  node 1  gpu1  jr?\n");
  for (int i = 0; i < 1000; ++i) history.add(job(node(0, "running") + "," + node(1, "running")));
  for (const std::size_t columns : {40U, 80U, 200U}) {
    const std::string text = history.text(columns, false);
    const std::size_t row = text.find("  node 0");
    CHECK(text.find('\n', row) - row == columns);
  }
  CHECK_THAT(history.text(80, true), ContainsSubstring("\x1b[32mrrr"));
}

TEST_CASE("another node in the same row begins a new row of letters") {
  StateHistory history;
  history.add(job(node(0, "running")));
  history.add(job(node(7, "running")));
  CHECK_THAT(history.text(80, false), ContainsSubstring("node 7  gpu7  r\n"));
}

}  // namespace drun
