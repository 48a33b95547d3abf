#include "launcher/remote/agent_protocol.h"

#include <random>

#include "launcher/plan/rendezvous.h"
#include "launcher/remote/meeting.h"
#include "tests/support/catch.h"
#include "tests/support/plans.h"
#include "tests/support/random_bytes.h"

namespace drun::hosts {
namespace {

using test::random_bytes;

// `line` without its newline.
std::string body(const std::string& line) {
  REQUIRE(line.ends_with('\n'));
  return line.substr(0, line.size() - 1);
}

}  // namespace

TEST_CASE("starts, hellos and ends with any bytes are decoded unchanged") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 200; ++i) {
    Start start{.nonce = random_bytes(random),
                .arguments = {random_bytes(random), random_bytes(random)},
                .environment = {{random_bytes(random), random_bytes(random)}},
                .directory = random_bytes(random),
                .host = random_bytes(random),
                .cpus = {0, i},
                .interface = random_bytes(random),
                .scratch = random_bytes(random),
                .label = random_bytes(random),
                .is_placed_later = i % 5 == 0,
                .seat = i % 4 - 1,
                .has_own_address = i % 7 == 0,
                .secret = random_bytes(random),
                .report_file = random_bytes(random),
                .sends_lines = i % 2 == 0,
                .keeps_all = i % 3 == 0,
                .log_directory = random_bytes(random),
                .columns = 132,
                .has_color = true,
                .utc_offset_s = -3600};
    const std::string line = to_line(start);
    CHECK(line.find('\n') == line.size() - 1);
    const Result<Start> read = parse_start(body(line));
    REQUIRE(read);
    CHECK(*read == start);
    const Hello hello{
        .version = random_bytes(random),
        .problem = random_bytes(random),
        .exit_code = 3,
        .place = {.port = i, .master_port = 2 * i, .addresses = {random_bytes(random), "10.0.0.1"}},
        .machine = random_bytes(random)};
    CHECK(*parse_hello(to_text(hello)) == hello);
    const End end{.exit_code = 41,
                  .text = random_bytes(random),
                  .report = random_bytes(random),
                  .could_not_reach = i % 2 == 0,
                  .events = random_bytes(random)};
    CHECK(*parse_end(to_text(end)) == end);
  }
}

TEST_CASE("a start without a secret has no secret field") {
  CHECK(to_line(Start{}).find("secret") == std::string::npos);
  CHECK(to_line(Start{.secret = "s"}).find("secret") != std::string::npos);
}

TEST_CASE("an invalid first line is rejected with the reason") {
  const auto reason = [](const std::string& line) {
    const Result<Start> start = parse_start(line);
    REQUIRE_FALSE(start);
    return start.error().message;
  };
  CHECK_THAT(reason(""), ContainsSubstring("no JSON object"));
  CHECK_THAT(reason("[1]"), ContainsSubstring("no JSON object"));
  CHECK_THAT(reason("{}"), ContainsSubstring("no proper \"protocol\""));
  CHECK_THAT(reason(R"({"protocol":"1"})"), ContainsSubstring("no proper \"protocol\""));
  CHECK_THAT(reason(R"({"protocol":1,"nonce":"","arguments":[1]})"),
             ContainsSubstring("\"arguments\""));
  CHECK_THAT(reason(R"({"protocol":1,"nonce":"","arguments":[],"environment":[["A"]]})"),
             ContainsSubstring("\"environment\""));
  CHECK_THAT(reason(std::string(kMostLineBytes + 1, ' ')), ContainsSubstring("no JSON object"));
  CHECK_FALSE(parse_hello(R"({"protocol":1e99})"));
}

namespace {

using test::Words;

// A member whose endpoint is a name that does not resolve here.
JoinSpec join_of_alias() {
  JoinSpec join;
  join.node_count = 2;
  join.endpoint = {"alias", 0};
  join.master_addr = "alias";
  return join;
}

}  // namespace

TEST_CASE("a host reports its sshd address first, then its global addresses, then its name") {
  const OwnAddresses own{.ssh_connection = "10.0.0.7 50022 10.9.0.1 22",
                         .interfaces = {{"lo", "127.0.0.1"},
                                        {"lo", "::1"},
                                        {"docker0", "172.17.0.1"},
                                        {"virbr0", "192.168.122.1"},
                                        {"eth0", "10.0.0.1"},
                                        {"eth0", "fe80::1%eth0"},
                                        {"eth0", "2001:db8::1"},
                                        {"eth1", "169.254.3.4"},
                                        {"ib0", "10.1.0.1"}},
                         .host_name = "node1"};
  CHECK(addresses_to_report(own) == Words{"10.9.0.1", "10.0.0.1", "10.1.0.1", "2001:db8::1",
                                          "172.17.0.1", "192.168.122.1", "node1"});
}

TEST_CASE("without an sshd address beyond loopback a host reports its interface addresses") {
  for (const char* connection : {"", "127.0.0.1 1 127.0.0.1 22", "::1 1 ::1 22", "nonsense", "a b"})
    CHECK(addresses_to_report({.ssh_connection = connection,
                               .interfaces = {{"eth0", "10.0.0.1"}},
                               .host_name = "localhost"}) == Words{"10.0.0.1"});
  CHECK(addresses_to_report({.ssh_connection = "::ffff:10.0.0.7 1 ::ffff:10.0.0.1 22",
                             .interfaces = {},
                             .host_name = ""}) == Words{"10.0.0.1"});
}

TEST_CASE("the number of reported addresses is limited, and the name is always among them") {
  OwnAddresses own{.ssh_connection = "", .interfaces = {}, .host_name = "node1"};
  for (int i = 0; i < 40; ++i) own.interfaces.emplace_back("e", "10.0.0." + std::to_string(i + 1));
  const Words reported = addresses_to_report(own);
  CHECK(reported.size() == kMostAddresses);
  CHECK(reported.back() == "node1");
}

TEST_CASE("a reported address is used only if other machines can reach it") {
  CHECK(usable_addresses({"10.0.0.1", "10.0.0.1", "127.0.0.1", "0.0.0.0", "224.0.0.1", "node1",
                          "-x", "a b", "localhost", "::1", "fe80::1", "::ffff:10.0.0.1", "fd00::1",
                          std::string(300, 'a'), ""}) == Words{"10.0.0.1", "node1", "fd00::1"});
}

TEST_CASE("a go line is decoded unchanged, and any other line is rejected") {
  CHECK(to_line(Go{}) == "go");
  CHECK(*parse_go("go") == Go{});
  const Go go{.places = {{.port = 4711, .master_port = 1, .addresses = {"10.0.0.1", "n"}}, {}},
              .is_one_machine = true};
  CHECK(*parse_go(to_line(go)) == go);
  for (const char* line :
       {"", "signal 15", "gone", "go ", "go []", "go {}", R"(go {"places":[],"is_one_machine":1})",
        R"(go {"places":[1],"is_one_machine":true})",
        R"(go {"places":[{"port":70000,"master_port":0,"addresses":[]}],"is_one_machine":true})",
        R"(go {"places":[{"port":1,"master_port":-1,"addresses":[]}],"is_one_machine":true})"})
    CHECK_FALSE(parse_go(line));
  Go many;
  many.places.resize(kMostPlaces + 1);
  CHECK_FALSE(parse_go(to_line(many)));
}

TEST_CASE("random bytes after a go are parsed safely") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 1000; ++i) (void)parse_go("go " + random_bytes(random));
}

TEST_CASE("a member uses the port and addresses of the go line") {
  JoinSpec join = join_of_alias();
  const Go go{.places = {{.port = 4711, .master_port = 0, .addresses = {"10.0.0.1", "n"}}}};
  settle_places(join, go, false);
  CHECK(to_string(join.endpoint) == "alias:4711");
  CHECK(join.master_port == 4711);
  CHECK(join.reach_timeout == kReachTimeout);
  REQUIRE(find_addresses(join.book, join.endpoint) != nullptr);
  CHECK(find_addresses(join.book, join.endpoint)->addresses == Words{"10.0.0.1", "n"});
  CHECK_FALSE(find_addresses(join.book, join.endpoint)->has_loopback);
}

TEST_CASE("an address that the user gives is the only one tried") {
  JoinSpec join = join_of_alias();
  settle_places(join, {.places = {{.port = 4711, .master_port = 0, .addresses = {"10.0.0.1"}}}},
                true);
  CHECK(to_string(join.endpoint) == "alias:4711");
  CHECK(join.book.empty());
}

TEST_CASE("loopback is tried only if all nodes are on one machine") {
  JoinSpec join = join_of_alias();
  settle_places(join,
                {.places = {{.port = 1, .master_port = 0, .addresses = {"10.0.0.1"}}},
                 .is_one_machine = true},
                false);
  REQUIRE(join.book.size() == 1);
  CHECK(join.book[0].addresses == Words{"127.0.0.1", "10.0.0.1"});
  CHECK(join.book[0].has_loopback);
}

TEST_CASE("each seat has its own port and addresses, and a missing seat has none") {
  JoinSpec join = join_of_alias();
  join.seats = {{"a", 0}, {"b", 0}, {"c", 0}};
  join.endpoint = join.seats.front();
  settle_places(join,
                {.places = {{.port = 1, .master_port = 0, .addresses = {"10.0.0.1"}},
                            {},
                            {.port = 3, .master_port = 0, .addresses = {"10.0.0.3"}}}},
                false);
  CHECK(to_string(join.seats) == "a:1,b:" + std::to_string(kMeetingPort) + ",c:3");
  CHECK(join.endpoint == join.seats.front());
  CHECK(find_addresses(join.book, join.seats[1]) == nullptr);
  CHECK(find_addresses(join.book, join.seats[2])->addresses == Words{"10.0.0.3"});
}

TEST_CASE("a store in rank 0 has its own port") {
  JoinSpec join = join_of_alias();
  join.store_host = StoreHost::Worker;
  settle_places(join, {.places = {{.port = 4711, .master_port = 4712, .addresses = {"10.0.0.1"}}}},
                false);
  CHECK(join.endpoint.port == 4711);
  CHECK(join.master_port == 4712);
}

}  // namespace drun::hosts
