#include "launcher/cli/option_values.h"

#include "tests/support/catch.h"

namespace drun {

TEST_CASE("memory sizes accept the common suffixes") {
  const auto [text, bytes] =
      GENERATE(table<std::string, std::size_t>({{"1048576", 1048576},
                                                {"1048577b", 1048577},
                                                {"1MiB", 1 << 20},
                                                {"1m", 1 << 20},
                                                {"2048K", 2 << 20},
                                                {"3GB", std::size_t{3} << 30},
                                                {"1T", std::size_t{1} << 40},
                                                {"1024TiB", std::size_t{1} << 50}}));
  CAPTURE(text);
  REQUIRE(parse_memory_size(text).has_value());
  CHECK(*parse_memory_size(text) == bytes);
}

TEST_CASE("malformed, too small and too large memory sizes are rejected") {
  const std::string text = GENERATE("", "x", "-1G", "1.5G", "1 G", "1Gi", "1Gx", "1GiBs", "1i",
                                    "1048575", "1025T", "99999999999999999999", "9999999999999T");
  CAPTURE(text);
  REQUIRE_FALSE(parse_memory_size(text).has_value());
  CHECK_THAT(parse_memory_size(text).error().message, ContainsSubstring("such as 512MiB or 2G"));
}

TEST_CASE("a memory size is shown in the largest unit that divides it") {
  CHECK(memory_size_text(std::size_t{1} << 30) == "1GiB");
  CHECK(memory_size_text(std::size_t{1536} << 20) == "1536MiB");
  CHECK(memory_size_text(1048577) == "1048577 bytes");
}

}  // namespace drun
