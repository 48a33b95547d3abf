#include "launcher/hosts/host_pool.h"
#include "tests/support/catch.h"
#include "tests/support/results.h"

namespace drun::hosts {
namespace {

using test::usage_error;
using test::value_of;

PoolHost host(const std::string& name, std::optional<int> slots = std::nullopt,
              const std::string& user = "") {
  return {.name = name, .user = user, .slots = slots, .devices = {}};
}

Pool hosts(const std::string& list) { return value_of(parse_hosts(list)); }
Pool file(const std::string& text) { return value_of(parse_host_file(text)); }

}  // namespace

TEST_CASE("hosts on the command line can have ranges, slots and users") {
  CHECK(hosts("a") == Pool{host("a")});
  CHECK(hosts("a:2,b:3") == Pool{host("a", 2), host("b", 3)});
  CHECK(hosts("node[02-04]:4") == Pool{host("node02", 4), host("node03", 4), host("node04", 4)});
  CHECK(hosts("n[1,3]x,login b") == Pool{host("n1x"), host("n3x"), host("login"), host("b")});
  CHECK(hosts("me@a:2,b") == Pool{host("a", 2, "me"), host("b")});
  CHECK(hosts("[fe80::1]:4,[::1],me@[fd00::2%eth0]") ==
        Pool{host("fe80::1", 4), host("::1"), host("fd00::2%eth0", std::nullopt, "me")});
  CHECK(hosts("10.0.0.[1-2]:8") == Pool{host("10.0.0.1", 8), host("10.0.0.2", 8)});
}

TEST_CASE("the slots of a repeated host add up, as in mpirun") {
  CHECK(hosts("a,b,a") == Pool{host("a", 2), host("b")});
  CHECK(hosts("a:2,a:3,a") == Pool{host("a", 6)});
  CHECK(file("a\na\nb slots=2\na\n") == Pool{host("a", 3), host("b", 2)});
}

TEST_CASE("host files of Open MPI, DeepSpeed and Hydra and plain lists are parsed") {
  CHECK(file("# my hosts\n\nworker-1 slots=4\nworker-2 slots=8 # big\n") ==
        Pool{host("worker-1", 4), host("worker-2", 8)});
  CHECK(file("a slots = 2 max_slots=4\r\nb max-slots=2\n") == Pool{host("a", 2), host("b")});
  CHECK(file("a:2\nb:3") == Pool{host("a", 2), host("b", 3)});
  CHECK(file("node[1-2] slots=4\n  me@c\n") ==
        Pool{host("node1", 4), host("node2", 4), host("c", std::nullopt, "me")});
  CHECK(file("a, b, c\n") == Pool{host("a"), host("b"), host("c")});
}

TEST_CASE("an invalid host is rejected with its position and the expected form") {
  CHECK_THAT(usage_error(parse_hosts("")), ContainsSubstring("names no host"));
  CHECK_THAT(usage_error(parse_hosts("a:0")), ContainsSubstring("\"0\" slots; expected a number"));
  CHECK_THAT(usage_error(parse_hosts("a:*")), ContainsSubstring("\"*\" slots"));
  CHECK_THAT(usage_error(parse_hosts("fe80::1")), ContainsSubstring("IPv6 address in brackets"));
  CHECK_THAT(usage_error(parse_hosts("n[1-")), ContainsSubstring("\"n[1-\""));
  CHECK_THAT(usage_error(parse_hosts("me@a,you@a")),
             ContainsSubstring("\"a\" is listed with two users"));
  CHECK_THAT(usage_error(parse_host_file("a\nb gpus=2\n")),
             ContainsSubstring("line 2: \"gpus\" is unknown; write host slots=N"));
  CHECK_THAT(usage_error(parse_host_file("slots=2\n")),
             ContainsSubstring("line 1: slots without a"));
  CHECK_THAT(usage_error(parse_host_file("a:2 slots=2\n")), ContainsSubstring("remove one"));
  CHECK_THAT(usage_error(parse_host_file("# nobody\n")), ContainsSubstring("names no host"));
}

TEST_CASE("host text never becomes an ssh option or shell code") {
  for (const std::string text : {"-oProxyCommand=x", "a,-p", "-l@a", "a@-b", "$(x)", "a;b", "a`b`",
                                 "[-x::1]", "a b|c", "a'b", "a\\b", "~a", "a/b", "me you@a@b"}) {
    INFO(text);
    const Result<Pool> pool = parse_hosts(text);
    if (!pool) continue;
    for (const PoolHost& each : *pool)
      CHECK(each.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == std::string::npos);
  }
  CHECK_FALSE(parse_hosts("-oProxyCommand=x"));
  CHECK_FALSE(parse_hosts("a@-b"));
  CHECK_FALSE(parse_hosts("$(x)"));
}

TEST_CASE("hosts and devices are selected with DeepSpeed's syntax") {
  const Pool pool = hosts("w0:4,w1:4,w2:4,w3");
  CHECK(value_of(included(pool, "w1@w0")) == Pool{host("w0", 4), host("w1", 4)});
  Pool chosen = {host("w0", 4), host("w2", 4)};
  chosen[1].devices = {0, 2};
  CHECK(value_of(included(pool, "w0@w2:2,0")) == chosen);
  CHECK(value_of(included(pool, "w[1-2]")) == Pool{host("w1", 4), host("w2", 4)});
  Pool bare = {host("w3")};
  bare[0].devices = {5};
  CHECK(value_of(included(pool, "w3:5")) == bare);

  Pool left = {host("w0", 4), host("w3")};
  left[0].devices = {0, 3};
  CHECK(value_of(excluded(pool, "w1@w2@w0:1,2")) == left);
  CHECK(value_of(excluded(pool, "w0:0,1,2,3")) == Pool{host("w1", 4), host("w2", 4), host("w3")});

  CHECK_THAT(usage_error(included(pool, "w9")),
             ContainsSubstring("\"w9\" is not one of the hosts"));
  CHECK_THAT(usage_error(included(pool, "w0:4")), ContainsSubstring("4 slots, so no device 4"));
  CHECK_THAT(usage_error(included(pool, "w0:x")), ContainsSubstring("expected devices"));
  CHECK_THAT(usage_error(included(pool, "w0@w0:1")), ContainsSubstring("with and without devices"));
  CHECK_THAT(usage_error(excluded(pool, "w3:0")), ContainsSubstring("add it, such as w3:8"));
  CHECK_THAT(usage_error(excluded(pool, "w[0-3]")), ContainsSubstring("leaves no host"));
}

}  // namespace drun::hosts
