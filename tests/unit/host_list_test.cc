#include "launcher/engines/host_list.h"

#include "tests/support/catch.h"
#include "tests/support/results.h"

namespace drun::engines {
namespace {

using Words = std::vector<std::string>;

Words hosts(const std::string& list) {
  INFO(list);
  return test::value_of(expand_host_list(list));
}

std::string list_error(const std::string& list) {
  INFO(list);
  return test::usage_error(expand_host_list(list));
}

}  // namespace

TEST_CASE("host lists in Slurm's notation are expanded") {
  CHECK(hosts("node1") == Words{"node1"});
  CHECK(hosts("a,b,a") == Words{"a", "b", "a"});
  CHECK(hosts("n[08-11]") == Words{"n08", "n09", "n10", "n11"});
  CHECK(hosts("n[8-11]") == Words{"n8", "n9", "n10", "n11"});
  CHECK(hosts("foo[19]") == Words{"foo19"});
  CHECK(hosts("node[01-02,07,1-2]") == Words{"node01", "node02", "node07", "node1", "node2"});
  CHECK(hosts("r[1-2]n[01-02]") == Words{"r1n01", "r1n02", "r2n01", "r2n02"});
  CHECK(hosts("n[1-2]-ib.x.org,login") == Words{"n1-ib.x.org", "n2-ib.x.org", "login"});
  CHECK(hosts("[1-3]") == Words{"1", "2", "3"});
  CHECK(hosts("10.0.0.[8-10]") == Words{"10.0.0.8", "10.0.0.9", "10.0.0.10"});
  CHECK(hosts("n[0-10/5]") == Words{"n0", "n5", "n10"});
  CHECK(hosts("n[0-9/4,3]x") == Words{"n0x", "n4x", "n8x", "n3x"});
}

TEST_CASE("blanks, newlines and commas separate hosts, but commas in brackets do not") {
  CHECK(hosts(" a\nb\tc , d,,e\n") == Words{"a", "b", "c", "d", "e"});
  CHECK(hosts("a[1,3],b") == Words{"a1", "a3", "b"});
}

TEST_CASE("an invalid host list is rejected with the position of the error") {
  CHECK_THAT(list_error(""), ContainsSubstring("names no host"));
  CHECK_THAT(list_error(" ,\n"), ContainsSubstring("names no host"));
  CHECK_THAT(list_error("n[1-3"), ContainsSubstring("a [ without its ], at character 6"));
  CHECK_THAT(list_error("n1-3]"), ContainsSubstring("a ] without its [, at character 5"));
  CHECK_THAT(list_error("n[3-1]"), ContainsSubstring("goes down"));
  CHECK_THAT(list_error("n[]"), ContainsSubstring("no number"));
  CHECK_THAT(list_error("n[1,]"), ContainsSubstring("no number"));
  CHECK_THAT(list_error("n[1-]"), ContainsSubstring("no number"));
  CHECK_THAT(list_error("n[a-b]"), ContainsSubstring("no number"));
  CHECK_THAT(list_error("n[[1]]"), ContainsSubstring("no number"));
  CHECK_THAT(list_error("n[1 -2]"), ContainsSubstring("no range has"));
  CHECK_THAT(list_error("n[0-4/0]"), ContainsSubstring("a step of 0"));
  CHECK_THAT(list_error("@compute"), ContainsSubstring("no host name has"));
  CHECK_THAT(list_error("n[1-9]!n3"), ContainsSubstring("no host name has"));
  CHECK_THAT(list_error("n[1234567890123456789]"), ContainsSubstring("18 digits"));
  CHECK_THAT(list_error(std::string(300, 'n')), ContainsSubstring("255"));
}

TEST_CASE("a host list that expands to too many hosts is rejected") {
  CHECK(hosts("n[1-65536]").size() == kMostHosts);
  CHECK_THAT(list_error("n[0-65536]"), ContainsSubstring("more than 65536"));
  CHECK_THAT(list_error("n[0-999999999999999999]"), ContainsSubstring("more than 65536"));
  CHECK_THAT(list_error("n[1-60000],m[1-60000]"), ContainsSubstring("more than 65536"));
  CHECK_THAT(list_error("n[1-60000,1-60000]"), ContainsSubstring("more than 65536"));
  CHECK_THAT(list_error("a[1-300]b[1-300]"), ContainsSubstring("more than 65536"));
  CHECK_THAT(list_error("a" + std::string(200, 'x') + "[1-60000]"), ContainsSubstring("more than"));
}

}  // namespace drun::engines
