#include "agent/output/console_lines.h"

#include "tests/support/catch.h"

namespace drun::agent {

TEST_CASE("label templates are filled in as in torchrun") {
  const LineOrigin origin{
      .node_rank = 1, .host = "n1", .rank = 11, .local_rank = 3, .role = "trainer"};
  const auto [text, filled] = GENERATE(table<std::string, std::string>({
      {"[${role_name}${local_rank}]:", "[trainer3]:"},
      {"$role_name $rank", "trainer 11"},
      {"${node_rank}@${host}", "1@n1"},
      {"${hostname}:$rank: ", "n1:11: "},
      {"plain", "plain"},
      {"", ""},
      {"$$", "$"},
      {"$$rank", "$rank"},
      {"$$$rank", "$11"},
      {"${unknown} $other", "${unknown} $other"},
      {"$ranks", "$ranks"},
      {"${rank}s", "11s"},
      {"$", "$"},
      {"a$ b", "a$ b"},
      {"${", "${"},
      {"${rank", "${rank"},
      {"${}", "${}"},
      {"${ rank }", "${ rank }"},
      {"$9", "$9"},
      {"${1}", "${1}"},
      {"$rank$rank", "1111"},
  }));
  CHECK(fill_label(text, origin) == filled);
}

}  // namespace drun::agent
