#include "rendezvous/tls/secret.h"

#include "launcher/plan/plan.h"
#include "rendezvous/server/member_addresses.h"
#include "tests/support/catch.h"

namespace drun {
namespace {

const std::string kSecret = "0123456789abcdef";

HostFacts host_with_secret(std::vector<EnvironmentEntry> environment) {
  HostFacts host;
  host.hostname = "gpu0";
  host.environment = std::move(environment);
  host.environment.emplace_back("PATH", "/bin");
  host.addresses = {"127.0.0.1", "10.0.0.5", "fe80::1%eth0", "10.0.0.5"};
  host.probe = [](const std::string&) { return FileKind::Executable; };
  host.secret_file = [](const std::string& path) { return Secret::make(kSecret + "-file", path); };
  return host;
}

Options options_with(std::optional<std::string> secret_file) {
  Options options;
  options.program = "/bin/train";
  options.secret_file = std::move(secret_file);
  return options;
}

bool is_in_environment(const Plan& plan) {
  for (const auto& [name, value] : plan.agent.worker.environment) {
    if (name == "DRUN_SECRET") return true;
  }
  return false;
}

}  // namespace

TEST_CASE("trailing line ends are not part of a secret, and all bytes before them are") {
  for (const std::string end : {"", "\n", "\r\n", "\n\n"}) {
    const auto secret = Secret::make(" 0123456789abcde" + end, "f");
    REQUIRE(secret);
    CHECK(secret->bytes() == " 0123456789abcde");
  }
}

TEST_CASE("a secret that is too short or too long is rejected without revealing it") {
  const auto [bytes, words] = GENERATE(table<std::string, std::string>({
      {"", "the secret is empty"},
      {"\n", "the secret is empty"},
      {"hunter2hunter2!\n", "a secret of 15 bytes can be guessed; at least 16 are needed"},
      {std::string(4097, 'x'), "at most 4096 bytes"},
  }));
  const auto secret = Secret::make(bytes, "/home/me/secret");
  REQUIRE_FALSE(secret);
  CHECK(secret.error().code == ErrorCode::Usage);
  CHECK_THAT(secret.error().message, ContainsSubstring("/home/me/secret: ") &&
                                         ContainsSubstring(words) &&
                                         ContainsSubstring("openssl rand -hex 32 > FILE"));
  CHECK(secret.error().message.find("hunter2") == std::string::npos);
}

TEST_CASE("the secret comes from the file, then from the variable, and may be absent") {
  const auto plan = [](std::optional<std::string> file, std::vector<EnvironmentEntry> environment) {
    auto made = make_plan(options_with(std::move(file)), host_with_secret(std::move(environment)));
    REQUIRE(made);
    return *made;
  };
  CHECK(plan("f", {{"DRUN_SECRET", kSecret}}).agent.join.secret->bytes() == kSecret + "-file");
  CHECK(plan({}, {{"DRUN_SECRET", kSecret}}).agent.join.secret->bytes() == kSecret);
  CHECK_FALSE(plan({}, {}).agent.join.secret);
  CHECK(plan({}, {}).agent.join.addresses.empty());
  CHECK(plan("f", {}).agent.join.addresses ==
        std::vector<std::string>{"127.0.0.1", "10.0.0.5", "fe80::1"});
}

TEST_CASE("an empty DRUN_SECRET is rejected because the job would run unprotected") {
  const auto plan = make_plan(options_with({}), host_with_secret({{"DRUN_SECRET", ""}}));
  REQUIRE_FALSE(plan);
  CHECK_THAT(plan.error().message, ContainsSubstring("DRUN_SECRET: the secret is empty"));
}

TEST_CASE("workers get DRUN_SECRET only if requested") {
  Options options = options_with(GENERATE(std::optional<std::string>(), "f"));
  options.pass_secret = GENERATE(false, true);
  const auto plan = make_plan(options, host_with_secret({{"DRUN_SECRET", kSecret}}));
  REQUIRE(plan);
  CHECK(is_in_environment(*plan) == options.pass_secret);
}

TEST_CASE("the plan shows the source of the secret but not its value") {
  const auto plan = make_plan(options_with({}), host_with_secret({{"DRUN_SECRET", kSecret}}));
  REQUIRE(plan);
  CHECK_THAT(plan_text(*plan), ContainsSubstring("secret       from DRUN_SECRET\n"));
  CHECK_THAT(plan_json(*plan), ContainsSubstring("\"secret\": \"DRUN_SECRET\""));
  CHECK(plan_text(*plan).find(kSecret) == std::string::npos);
  CHECK(plan_json(*plan).find(kSecret) == std::string::npos);
  const auto without = make_plan(options_with({}), host_with_secret({}));
  REQUIRE(without);
  CHECK(plan_text(*without).find("secret") == std::string::npos);
  CHECK_THAT(plan_json(*without), ContainsSubstring("\"secret\": null"));
}

TEST_CASE("an address belongs to the members while at least one member has it") {
  rendezvous::MemberAddresses addresses;
  addresses.add(1, {"10.0.0.1", "10.0.0.1", ""});
  addresses.add(2, {"10.0.0.1", "fd00::2"});
  CHECK(addresses.has("10.0.0.1"));
  CHECK_FALSE(addresses.has(""));
  CHECK_FALSE(addresses.has("10.0.0.2"));
  addresses.remove(2);
  CHECK(addresses.has("10.0.0.1"));
  CHECK_FALSE(addresses.has("fd00::2"));
  addresses.add(1, {"10.0.0.3"});  // replaces its addresses
  CHECK_FALSE(addresses.has("10.0.0.1"));
  addresses.remove(1);
  addresses.remove(1);
  CHECK_FALSE(addresses.has("10.0.0.3"));
}

TEST_CASE("the address of a lost member is blocked for a while unless another member has it") {
  using namespace std::chrono_literals;
  const rendezvous::MemberAddresses::Time now{1h};
  rendezvous::MemberAddresses addresses;
  addresses.add(1, {"10.0.0.1", "fd00::1"});
  addresses.add(2, {"10.0.0.2"});
  CHECK_FALSE(addresses.is_barred("10.0.0.1", now));
  addresses.lose(1, now + 40s);
  CHECK(addresses.is_barred("10.0.0.1", now + 39s));
  CHECK(addresses.is_barred("fd00::1", now));
  CHECK_FALSE(addresses.is_barred("10.0.0.2", now));
  CHECK_FALSE(addresses.is_barred("10.0.0.1", now + 40s));
  addresses.add(3, {"10.0.0.1"});  // its agent has returned
  CHECK_FALSE(addresses.is_barred("10.0.0.1", now));
  CHECK(addresses.is_barred("fd00::1", now));
  addresses.lose(3, now + 50s);
  CHECK(addresses.is_barred("10.0.0.1", now + 49s));
  // Memory is bounded: the earliest lost address is forgotten first.
  for (std::uint64_t i = 0; i < rendezvous::MemberAddresses::kMostLost - 1; ++i) {
    addresses.add(10 + i, {"host" + std::to_string(i)});
    addresses.lose(10 + i, now + 60s);
  }
  CHECK_FALSE(addresses.is_barred("fd00::1", now));
  CHECK(addresses.is_barred("10.0.0.1", now));
}

}  // namespace drun
