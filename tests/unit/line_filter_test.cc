#include "agent/output/console_lines.h"

#include "tests/support/catch.h"

namespace drun::agent {

TEST_CASE("a line that contains any of the substrings is selected with its label at any split") {
  const std::string text = "loss 1\nerror: x\nwarn\n\nan error and a warn\nlast error";
  const std::string picked = "[0]:error: x\n[0]:warn\n[0]:an error and a warn\n[0]:last error\n";
  for (std::size_t split = 0; split <= text.size(); ++split) {
    LineFilter filter({"error", "warn"}, "[0]:");
    std::string out;
    filter.take(text.substr(0, split), out);
    filter.take(text.substr(split), out);
    filter.end_of_stream(out);
    CHECK(out == picked);
  }
}

TEST_CASE("the label itself is not searched, and an empty substring selects nothing") {
  LineFilter filter({"default", ""}, "[default0]:");
  std::string out;
  filter.take("hello\ndefault\n", out);
  CHECK(out == "[default0]:default\n");
}

TEST_CASE("a line without an end is matched in pieces instead of being buffered whole") {
  LineFilter filter({"needle"}, "");
  std::string out;
  filter.take(std::string(kLongestHeldBytes, '.') + "needle", out);
  CHECK(out.size() == kLongestHeldBytes + 7);
  filter.take("rest\n", out);
  CHECK(out.size() == kLongestHeldBytes + 7);
}

}  // namespace drun::agent
