#include "launcher/engines/host_list.h"

#include <random>
#include <set>
#include <string>

#include "tests/support/catch.h"

namespace drun::engines {

TEST_CASE("a list of numbers counts each number once") {
  const auto [text, count] = GENERATE(table<std::string, int>({{"0", 1},
                                                               {"7", 1},
                                                               {"0,1,5", 3},
                                                               {"0-3,6", 5},
                                                               {"0-3", 4},
                                                               {"2-2", 1},
                                                               {"0-3,2-5", 6},
                                                               {"5,0-3,5", 5},
                                                               {" 0 , 1 ", 2},
                                                               {"00-03", 4},
                                                               {"GPU-1b2c,GPU-3d", 2},
                                                               {"GPU-1b2c,GPU-1b2c", 1},
                                                               {"gpu0", 1},
                                                               {"0-1048575", 1048576}}));
  INFO(text);
  CHECK(size_of_list(text) == count);
}

TEST_CASE("a malformed list of numbers has no size") {
  const std::string text =
      GENERATE("", " ", ",", "0,", ",0", "3-1", "4-", "-4", "0--3", "0-3-5", "0-1048577", "1.5",
               "99999999999999999999", "0;1", "0-1048576,GPU-1");
  INFO(text);
  CHECK_FALSE(size_of_list(text));
}

TEST_CASE("ranges and single numbers describe the same list") {
  const unsigned seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    std::set<int> numbers;
    std::string text;
    for (auto parts = 1 + random() % 6; parts > 0; --parts) {
      const int first = static_cast<int>(random() % 40);
      const int last = first + static_cast<int>(random() % 5);
      const bool is_range = random() % 2 == 0 || first != last;
      text += (text.empty() ? "" : ",") + std::to_string(first) +
              (is_range ? "-" + std::to_string(last) : "");
      for (int number = first; number <= last; ++number) numbers.insert(number);
    }
    CAPTURE(text);
    REQUIRE(size_of_list(text) == static_cast<int>(numbers.size()));
    std::string one_by_one;
    for (const int number : numbers)
      one_by_one += (one_by_one.empty() ? "" : ",") + std::to_string(number);
    REQUIRE(size_of_list(one_by_one) == static_cast<int>(numbers.size()));
  }
}

TEST_CASE("random texts do not break the list parser") {
  std::mt19937 random(7);
  const std::string letters = "0123456789--,,, aG";
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (auto size = random() % 12; size > 0; --size) text += letters[random() % letters.size()];
    const auto count = size_of_list(text);
    if (count) REQUIRE(*count >= 1);
    if (count && *count > 1) REQUIRE(is_list(text));
  }
}

}  // namespace drun::engines
