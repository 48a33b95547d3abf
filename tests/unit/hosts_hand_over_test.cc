// Tests the messages between launcher and agent, and how a node uses the endpoints.
#include "launcher/remote/agent_protocol.h"

#include <random>

#include "launcher/plan/rendezvous.h"
#include "launcher/remote/meeting.h"
#include "launcher/remote/message_fields.h"
#include "tests/support/catch.h"
#include "tests/support/plans.h"
#include "tests/support/random_bytes.h"

namespace drun::hosts {
namespace {

using test::random_bytes;

// Gives every field of a message another value than before.
class Changer {
 public:
  void change(std::string& text) { text += "x" + random_bytes(random_); }
  void change(bool& flag) { flag = !flag; }
  template <std::integral Number>
  void change(Number& number) {
    ++number;
  }
  template <typename Enum>
  requires std::is_enum_v<Enum>
  void change(Enum& value) { value = value == last(value) ? Enum() : last(value); }
  template <typename Count, typename Period>
  void change(std::chrono::duration<Count, Period>& time) {
    time += std::chrono::duration<Count, Period>(7);
  }
  void change(WallTime& time) { time += std::chrono::seconds(7); }
  void change(std::optional<Secret>& secret) {
    secret = *Secret::make(std::string(Secret::kLeastBytes, '\xfe'), "DRUN_SECRET");
  }
  template <typename T>
  void change(std::optional<T>& value) {
    change(value.emplace());
  }
  template <typename T, std::size_t kSize>
  void change(std::array<T, kSize>& values) {
    for (T& each : values) change(each);
  }
  template <typename T>
  void change(std::vector<T>& values) {
    change(values.emplace_back());
  }
  void change(std::map<std::string, FileKind>& files) {
    files.emplace("x" + random_bytes(random_), FileKind::Directory);
  }
  template <typename T>
  requires requires(T& value) { fields(value); }
  void change(T& value) {
    std::apply([&](auto&... each) { (change(each), ...); }, fields(value));
  }

 private:
  std::mt19937 random_{Catch::rngSeed()};
};

template <typename T>
Result<T> parse_as(std::string_view text) {
  Result<Message> message = parse(text);
  if (!message) return message.error();
  REQUIRE(std::holds_alternative<T>(*message));
  return std::get<T>(*std::move(message));
}

template <typename T>
T changed() {
  T message;
  Changer().change(message);
  return message;
}

// A spec that an agent accepts, with all fields changed.
NodeSpec changed_spec() {
  NodeSpec spec = changed<NodeSpec>();
  AgentSpec& agent = spec.plan.agent;
  agent.join.node_count = 9;
  agent.join.own_seats = {0};
  agent.join.seat = 0;
  const int workers = agent.join.local_world_size;
  agent.output.streams.resize(static_cast<std::size_t>(workers));
  agent.worker.placements.resize(static_cast<std::size_t>(workers));
  agent.worker.programs.front().workers = workers;
  agent.worker.argv = agent.worker.programs.front().argv = {"train", "--lr"};
  agent.join.roles.front().workers = workers;
  return spec;
}

template <typename T>
void check_round_trip(const T& message) {
  const std::string text = to_text(message);
  CHECK(text.find('\n') == text.npos);
  const Result<T> read = parse_as<T>(text);
  INFO((read ? "" : read.error().message));
  REQUIRE(read);
  CHECK(to_text(*read) == text);
  if constexpr (std::equality_comparable<T>) CHECK(*read == message);
}

std::string defect(const std::string& text) {
  const Result<Message> read = parse(text);
  REQUIRE_FALSE(read);
  CHECK(read.error().code == ErrorCode::Refused);
  return read.error().message;
}

}  // namespace

TEST_CASE("every field of a message has its value after decoding, whatever bytes a text has") {
  check_round_trip(changed<Start>());
  check_round_trip(changed<Lookups>());
  check_round_trip(changed<LookupAnswers>());
  check_round_trip(changed<HostReport>());
  check_round_trip(changed_spec());
  check_round_trip(changed<Hello>());
  check_round_trip(changed<Go>());
  check_round_trip(changed<End>());
  std::string all_bytes;
  for (int byte = 0; byte < 256; ++byte) all_bytes += static_cast<char>(byte);
  check_round_trip(End{.text = all_bytes});
}

TEST_CASE("the test of messages changes every field of a spec") {
  const NodeSpec before;
  const NodeSpec after = changed_spec();
  const auto differ = [](const auto& one, const auto& other) {
    const auto other_fields = fields(other);
    return std::apply(
        [&](const auto&... each) {
          return std::apply([&](const auto&... its) { return (!(each == its) && ...); },
                            other_fields);
        },
        fields(one));
  };
  CHECK(differ(before.plan, after.plan));
  CHECK(differ(before.plan.agent, after.plan.agent));
  CHECK(differ(before.plan.agent.join, after.plan.agent.join));
  CHECK(differ(before.plan.agent.worker, after.plan.agent.worker));
  CHECK(differ(before.plan.agent.output, after.plan.agent.output));
}

TEST_CASE("a malformed message is rejected with the position of the defect") {
  CHECK_THAT(defect(""), ContainsSubstring("\"\" is unknown"));
  CHECK_THAT(defect("hello {}"), ContainsSubstring("\"hello\" is malformed at /;"));
  CHECK_THAT(defect("hello [\"\",0]"), ContainsSubstring("malformed at /;"));
  CHECK_THAT(defect(R"(hello ["",0,[1,2,["a",3]],""])"), ContainsSubstring("malformed at /2/2/1/"));
  CHECK_THAT(defect(R"(hello ["",1e99,[1,2,[]],""])"), ContainsSubstring("/1/"));
  CHECK_THAT(defect(R"(hello ["",99999999999,[1,2,[]],""])"), ContainsSubstring("/1/"));
  CHECK_THAT(defect("hello " + std::string(kMostLineBytes, ' ')),
             ContainsSubstring("has over 4 MiB"));
  CHECK_THAT(defect(R"(found [[["/bin/p",4]],null,""])"), ContainsSubstring("/0/0/1/"));
}

TEST_CASE("a start of another protocol version is not a start") {
  const std::string start = to_text(Start{});
  CHECK(start.starts_with("start " + std::to_string(kProtocol) + " "));
  CHECK_FALSE(parse("start 6 []"));
  CHECK_FALSE(parse("start 70 []"));
  CHECK_FALSE(parse(R"({"protocol":6,"nonce":""})"));
}

TEST_CASE("an agent rejects a spec whose parts do not fit together") {
  REQUIRE(parse(to_text(changed_spec())));
  const auto defect_after = [](const auto& damage) {
    NodeSpec spec = changed_spec();
    damage(spec.plan.agent);
    return defect(to_text(spec));
  };
  using Agent = AgentSpec;
  CHECK_THAT(defect_after([](Agent& agent) { agent.join.local_world_size = 0; }),
             ContainsSubstring("number of workers"));
  CHECK_THAT(defect_after([](Agent& agent) { agent.output.streams.pop_back(); }),
             ContainsSubstring("the output has other workers"));
  CHECK_THAT(defect_after([](Agent& agent) { agent.worker.placements.pop_back(); }),
             ContainsSubstring("the placements"));
  CHECK_THAT(defect_after([](Agent& agent) { agent.worker.programs[0].workers = 1; }),
             ContainsSubstring("the programs"));
  CHECK_THAT(defect_after([](Agent& agent) { agent.join.roles[0].workers = -1; }),
             ContainsSubstring("the roles"));
  CHECK_THAT(defect_after([](Agent& agent) { agent.worker.argv.clear(); }),
             ContainsSubstring("a command is empty"));
  CHECK_THAT(defect_after([](Agent& agent) { agent.join.node_rank = 9; }),
             ContainsSubstring("node rank"));
  CHECK_THAT(defect_after([](Agent& agent) { agent.join.own_seats = {1}; }),
             ContainsSubstring("an endpoint is missing"));
  CHECK_THAT(defect_after([](Agent& agent) { agent.termination_signals = {65}; }),
             ContainsSubstring("a signal"));
}

TEST_CASE("a launcher rejects impossible facts") {
  const auto defect_after = [](const auto& damage) {
    HostReport report;
    damage(report.facts);
    return defect(to_text(report));
  };
  CHECK_THAT(defect_after([](HostFacts& facts) { facts.usable_cpus = 1 << 30; }),
             ContainsSubstring("CPUs"));
  CHECK_THAT(defect_after([](HostFacts& facts) { facts.gpus = -1; }), ContainsSubstring("GPUs"));
  CHECK_THAT(defect_after([](HostFacts& facts) {
               facts.environment = {{"PATH", std::string(200'000, 'x')}};
             }),
             ContainsSubstring("a variable is too long"));
}

TEST_CASE("the workers' environment is sent as a change of the agent's environment") {
  const std::vector<EnvironmentEntry> own{{"HOME", "/h"}, {"A", "1"}, {"DRUN_SECRET", "s"}};
  NodeSpec spec;
  auto& environment = spec.plan.agent.worker.environment;
  environment = {{"HOME", "/h"}, {"A", "2"}, {"B", ""}};
  remove_own_variables(spec, own);
  CHECK(environment == std::vector<EnvironmentEntry>{{"A", "2"}, {"B", ""}});
  CHECK(spec.removed_variables == std::vector<std::string>{"DRUN_SECRET"});
  add_own_variables(spec, own);
  CHECK(environment == std::vector<EnvironmentEntry>{{"HOME", "/h"}, {"A", "2"}, {"B", ""}});
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

TEST_CASE("a go with too many endpoints or an impossible port is rejected") {
  check_round_trip(Go{});
  check_round_trip(
      Go{.places = {{.port = 4711, .master_port = 1, .addresses = {"10.0.0.1", "n"}}, {}},
         .is_one_machine = true});
  CHECK_FALSE(parse(to_text(Go{.places = {{.port = 70000}}})));
  CHECK_FALSE(parse(to_text(Go{.places = {{.port = 1, .master_port = -1}}})));
  Go many;
  many.places.resize(kMostPlaces + 1);
  CHECK_FALSE(parse(to_text(many)));
  for (const char* line : {"", "signal 15", "gone", "go ", "go []", "go {}", "go [[1],true]"})
    CHECK_FALSE(parse(line));
}

TEST_CASE("random bytes after a word are parsed safely") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 1000; ++i) (void)parse("go " + random_bytes(random));
}

TEST_CASE("a member uses the port and addresses of the go line") {
  JoinSpec join = join_of_alias();
  // Loopback addresses of another machine are not used.
  const Go go{
      .places = {{.port = 4711, .master_port = 0, .addresses = {"127.0.0.1", "10.0.0.1", "n"}}}};
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
