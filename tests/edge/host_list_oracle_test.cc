// Compares the expansion of host lists with ClusterShell's.
#include <algorithm>
#include <random>

#include "launcher/engines/host_list.h"
#include "tests/support/catch.h"
#include "tests/support/process.h"

namespace drun::testing {
namespace {

using Words = std::vector<std::string>;

// Reads one list a line; prints a line of names, or "error".
const std::string kOracle =
    "import sys\n"
    "from ClusterShell.NodeSet import NodeSet\n"
    "for line in sys.stdin:\n"
    "    try: print(*sorted(NodeSet(line.strip())))\n"
    "    except Exception: print('error')\n";

class Lists {
 public:
  explicit Lists(unsigned seed) : random_(seed) {}

  std::string next() {
    std::string list = item();
    for (int more = pick(0, 3); more > 0; --more) list += "," + item();
    return list;
  }

 private:
  int pick(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }
  std::string letters() { return std::string(static_cast<std::size_t>(pick(1, 3)), 'n'); }
  std::string item() {
    std::string text = letters();
    for (int groups = pick(0, 2); groups > 0; --groups) {
      text += "[" + range();
      for (int more = pick(0, 2); more > 0; --more) text += "," + range();
      text += "]";
      if (groups > 1 || pick(0, 1) == 1) text += pick(0, 1) == 1 ? "-x" : "y";
    }
    return text;
  }
  std::string range() {
    const int low = pick(0, 120);
    const int high = low + pick(0, 12);
    const auto width = static_cast<std::size_t>(pick(1, 4));
    if (pick(0, 2) == 0) return padded(low, width);
    const bool has_step = pick(0, 3) == 0;
    return padded(low, width) + "-" + padded(high, width) +
           (has_step ? "/" + std::to_string(pick(1, 5)) : "");
  }
  static std::string padded(int number, std::size_t width) {
    const std::string digits = std::to_string(number);
    return std::string(width > digits.size() ? width - digits.size() : 0, '0') + digits;
  }

  std::mt19937 random_;
};

std::string joined(Words names) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::string line;
  for (const std::string& name : names) line += (line.empty() ? "" : " ") + name;
  return line;
}

}  // namespace

TEST_CASE("host lists expand as in ClusterShell") {
  // Debian's Python, even if PATH has another python3 first.
  const Words python = {"/usr/bin/python3", "-c"};
  if (run({.argv = {python[0], python[1], "import ClusterShell.NodeSet"}}, 20s).code != 0) {
    WARN("skipped: no ClusterShell for /usr/bin/python3 (python3-clustershell)");
    return;
  }
  const unsigned seed = std::random_device()();
  CAPTURE(seed);
  Lists lists(seed);
  Words asked;
  std::string text;
  for (int i = 0; i < 1500; ++i) {
    asked.push_back(lists.next());
    text += asked.back() + "\n";
  }
  const Ended oracle = run({.argv = {python[0], python[1], kOracle}, .stdin_text = text}, 40s);
  INFO(oracle.err);
  REQUIRE(oracle.code == 0);
  std::size_t begin = 0;
  int errors = 0;
  for (const std::string& list : asked) {
    const std::size_t end = oracle.out.find('\n', begin);
    REQUIRE(end != std::string::npos);
    const std::string answer = oracle.out.substr(begin, end - begin);
    begin = end + 1;
    const Result<Words> expanded = engines::expand_host_list(list);
    CAPTURE(list, answer);
    if (answer == "error") {
      ++errors;  // 9-011: ClusterShell requires equal widths; Slurm uses the width of the lower
                 // bound
      continue;
    }
    REQUIRE(expanded);
    CHECK(joined(*expanded) == answer);
  }
  CHECK(errors < 300);
}

}  // namespace drun::testing
