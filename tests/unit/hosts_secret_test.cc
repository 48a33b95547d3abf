// Tests the secret that a job on other machines has by default.
#include "launcher/hosts/host_plan.h"
#include "launcher/plan/plan.h"
#include "tests/support/catch.h"
#include "tests/support/plans.h"

namespace drun::hosts {
namespace {

constexpr char kMine[] = "a secret of the user's own";
constexpr char kMade[] = "made for this job, thirty-two bytes";

HostPlan secret_plan(const test::Words& words) {
  HostFacts host;
  host.working_directory = "/home/me";
  host.secret_file = [](const std::string& path) { return Secret::make(kMine, path); };
  host.new_secret = [] { return std::string(kMade); };
  return test::host_plan_of(words, host);
}

}  // namespace

TEST_CASE("several hosts share a secret that is generated for the job, a single host needs none") {
  CHECK(secret_plan({"-H", "a,b", "p"}).secret == kMade);
  CHECK(secret_plan({"-H", "a", "p"}).secret.empty());
}

TEST_CASE("the user's secret is sent to the hosts, but their workers get it only on request") {
  for (const bool is_passed : {false, true}) {
    test::Words words{"-H", "a,b", "--secret-file=/home/me/key", "p"};
    if (is_passed) words.insert(words.begin(), "--pass-secret");
    const HostPlan plan = secret_plan(words);
    CHECK(plan.secret == kMine);
    const AgentSpec agent =
        test::node_plan_of(plan, 1, test::desk_with({{"DRUN_SECRET", "of that host, not used"}}))
            .agent;
    REQUIRE(agent.join.secret);
    CHECK(agent.join.secret->bytes() == kMine);
    CHECK(test::has(agent.worker.environment, {"DRUN_SECRET", kMine}) == is_passed);
    CHECK_FALSE(test::has(agent.worker.environment, {"DRUN_SECRET", "of that host, not used"}));
  }
}

TEST_CASE("a plan for other hosts shows the source of the secret, but not its value") {
  const HostPlan plan = secret_plan({"-H", "a,b", "--secret-file=/home/me/key", "p"});
  for (const std::string& text : {host_plan_text(plan), host_plan_json(plan)}) {
    CHECK_THAT(text, ContainsSubstring("/home/me/key"));
    CHECK(text.find(kMine) == std::string::npos);
  }
  CHECK_THAT(host_plan_text(secret_plan({"-H", "a,b", "p"})), ContainsSubstring("this job's own"));
}

}  // namespace drun::hosts
