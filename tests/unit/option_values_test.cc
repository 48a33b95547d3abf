#include "launcher/cli/option_values.h"

#include "tests/support/catch.h"

namespace drun {

TEST_CASE("numbers of nodes and workers are positive integers within limits") {
  CHECK(*parse_nodes("4") == NodeRange{4, 4});
  CHECK(*parse_nodes("1:4") == NodeRange{1, 4});
  const auto bad =
      GENERATE("", "0", "-1", "0:2", "3:2", "1:2:3", "a", "1:", ":1", "1.5", "1048577");
  CAPTURE(bad);
  CHECK_FALSE(parse_nodes(bad));
  CHECK(*parse_workers("auto") == WorkerCount(Device::Auto));
  CHECK(*parse_workers("CPU") == WorkerCount(Device::Cpu));
  CHECK(*parse_workers("64") == WorkerCount(64));
  CHECK_FALSE(parse_workers("0"));
  CHECK_FALSE(parse_workers("65537"));
  CHECK_FALSE(parse_workers("tpu"));
}

TEST_CASE("streams are one digit for all ranks, or one digit per rank") {
  CHECK(parse_streams("0")->all == 0);
  CHECK(parse_streams("3")->all == 3);
  CHECK(parse_streams("0:1,127:3")->of_ranks == std::map<int, int>{{0, 1}, {127, 3}});
  CHECK(parse_streams("1:1,1:2")->of_ranks == std::map<int, int>{{1, 2}});
  const auto bad = GENERATE("", "4", "-1", "a", "0:4", "0:1:2", "0:1,", "0:", ":1", "0:1,2");
  CAPTURE(bad);
  CHECK_FALSE(parse_streams(bad));
}

TEST_CASE("ports, ranks, counts and seconds are checked against their limits") {
  CHECK(*parse_port("0") == 0);
  CHECK(*parse_port("65535") == 65535);
  CHECK_FALSE(parse_port("65536"));
  CHECK_FALSE(parse_port("99999999999999999999"));
  CHECK_FALSE(parse_rank("-1"));
  for (const char* const text : {"-1", "99999999999999"})
    CHECK(parse_count(text).error().message ==
          "expected a count, a whole number from 0 to 2147483647");
  CHECK(parse_seconds("1e20").error().message ==
        "expected seconds, from 0 to 1000000000, such as 30 or 0.5");
  CHECK(parse_seconds("0")->count() == 0);
  CHECK(parse_seconds("0.0001")->count() == 1);
  CHECK(parse_seconds("1e3")->count() == 1000000);
  const auto bad = GENERATE("", "-1", "nan", "inf", "1e300", "5s");
  CAPTURE(bad);
  CHECK_FALSE(parse_seconds(bad));
  CHECK_FALSE(parse_interval(bad));
  CHECK_FALSE(parse_interval("0"));
}

TEST_CASE("pairs need a key and a value, and a value may contain an equals sign") {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  CHECK(*parse_pairs("") == Pairs{});
  CHECK(*parse_pairs("a=1, b=c=d") == Pairs{{"a", "1"}, {"b", "c=d"}});
  const auto bad = GENERATE("a", "a=", "=1", "a=1,,b=2", "a=1,");
  CAPTURE(bad);
  CHECK_FALSE(parse_pairs(bad));
}

TEST_CASE("a doubled comma stands for a comma in a list of words") {
  using Words = std::vector<std::string>;
  CHECK(*parse_words("") == Words{});
  CHECK(*parse_words("a,b") == Words{"a", "b"});
  CHECK(*parse_words("a,,b,c") == Words{"a,b", "c"});
}

TEST_CASE("the values of --bind-to and of torchrun's NUMA option are separate") {
  CHECK(*parse_word<kBindToWords>("none") == BindTo::None);
  CHECK(*parse_word<kBindToWords>("CORE") == BindTo::Core);
  CHECK(*parse_word<kBindToWords>("socket") == BindTo::Socket);
  CHECK(*parse_word<kBindToWords>("numa") == BindTo::Numa);
  CHECK(*parse_word<kBindToWords>("gpu") == BindTo::GpuNode);
  CHECK(*parse_word<kNumaBindingWords>("node") == BindTo::GpuNode);
  CHECK(*parse_word<kNumaBindingWords>("socket") == BindTo::GpuSocket);
  CHECK(*parse_word<kNumaBindingWords>("exclusive") == BindTo::GpuExclusive);
  CHECK(*parse_word<kNumaBindingWords>("core-complex") == BindTo::GpuCoreComplex);
  CHECK(parse_word<kBindToWords>("cores").error().message ==
        "expected one of none, core, socket, numa, gpu, package");
  CHECK_FALSE(parse_word<kNumaBindingWords>("core"));
  CHECK_FALSE(parse_word<kMemoryPolicyWords>("bind"));
}

TEST_CASE("threads are a number or auto, and ranks are a list") {
  CHECK(*parse_omp_threads(" auto ") == OmpThreads(AutoThreads{}));
  CHECK(*parse_omp_threads("12") == OmpThreads(12));
  for (const char* text : {"0", "-1", "", "many", "1.5"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_omp_threads(text));
    CHECK_FALSE(parse_positive(text));
    CHECK_FALSE(parse_global_ranks(std::string(text) + ",x"));
  }
  CHECK(*parse_global_ranks("0, 3,100000") == std::vector<int>{0, 3, 100000});
  CHECK_FALSE(parse_global_ranks(""));
}

TEST_CASE("a command is split as in a shell, without expansion") {
  using Words = std::vector<std::string>;
  const auto [text, words] = GENERATE(table<std::string, Words>({
      {"gdb", {"gdb"}},
      {"  gdb\t-batch \n --args ", {"gdb", "-batch", "--args"}},
      {"a 'b c' \"d e\"", {"a", "b c", "d e"}},
      {"a b'c 'd\" e\"f", {"a", "bc d ef"}},
      {"a '' \"\"", {"a", "", ""}},
      {R"(a b\ c \' \")", {"a", "b c", "'", "\""}},
      {R"(a '\n' "\n\"\\")", {"a", "\\n", "\\n\"\\"}},
      {"a $HOME ${rank} *", {"a", "$HOME", "${rank}", "*"}},
      {R"(a "\$x" '"')", {"a", "$x", "\""}},
  }));
  CAPTURE(text);
  const auto parsed = parse_command(text);
  REQUIRE(parsed);
  CHECK(*parsed == words);
}

TEST_CASE("an empty or unterminated command is rejected") {
  for (const char* text : {"", "  ", "''", "a 'b", "a \"b", "a \\", "'' a"}) {
    CAPTURE(text);
    const auto parsed = parse_command(text);
    REQUIRE_FALSE(parsed);
    CHECK_THAT(parsed.error().message, ContainsSubstring("not closed") ||
                                           ContainsSubstring("such as") ||
                                           ContainsSubstring("backslash"));
  }
}

}  // namespace drun
