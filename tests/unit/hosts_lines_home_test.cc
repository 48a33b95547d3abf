// Tests where the log files of a job over ssh are written.
#include "launcher/hosts/host_plan.h"

#include "launcher/plan/plan.h"
#include "tests/support/catch.h"
#include "tests/support/plans.h"

namespace drun::hosts {
namespace {

using test::Words;

Result<HostPlan> two_hosts_plan(Words words) {
  words.insert(words.begin(), "--hosts=a,b");
  words.emplace_back("./train");
  HostFacts host;
  host.random_id = "id";
  host.working_directory = "/home/me";
  return make_host_plan(test::options_of(std::move(words)), host, "/opt/drun");
}

AgentSpec first_agent(const HostPlan& plan) {
  return test::node_plan_of(plan, 0, test::desk_with()).agent;
}

}  // namespace

TEST_CASE("with a log directory the log files of all hosts are written only on this machine") {
  const auto plan = two_hosts_plan({"--log-dir=logs"});
  REQUIRE(plan);
  REQUIRE(plan->lines);
  CHECK(plan->lines->log_dir == "/home/me/logs");
  CHECK(plan->lines->mode == OutputMode::Labeled);
  CHECK(plan->lines->label_template == "[${host}:${rank}]: ");
  CHECK(plan->keeps_all_lines);
  const OutputSpec output = first_agent(*plan).output;
  CHECK_FALSE(output.log_dir);
  CHECK(output.gathers_by_channel);
  CHECK(output.streams[0][0].to_file);
  CHECK_THAT(
      host_plan_text(*plan),
      ContainsSubstring("log files    /home/me/logs, on this machine, one directory per rank\n"));
  CHECK_THAT(host_plan_json(*plan), ContainsSubstring("\"log_dir\": \"/home/me/logs\""));
}

TEST_CASE("without a log directory lines are not sent as frames") {
  for (const Words& words : {Words{}, Words{"--gather-logs"}, Words{"--log-dir=/dev/null"},
                             Words{"--tee=3"}, Words{"--gather-logs", "--log-dir=/dev/null"}}) {
    const auto plan = two_hosts_plan(words);
    REQUIRE(plan);
    CHECK_FALSE(plan->lines);
    CHECK_FALSE(first_agent(*plan).output.gathers);
    CHECK_FALSE(first_agent(*plan).join.gathers_lines);
  }
}

TEST_CASE("with --gather-logs redirected or teed output is gathered without a log directory") {
  const auto plan = two_hosts_plan({"--gather-logs", "--tee=1"});
  REQUIRE(plan);
  REQUIRE(plan->lines);
  CHECK_FALSE(plan->lines->log_dir);
  CHECK_FALSE(plan->keeps_all_lines);
  const AgentSpec agent = first_agent(*plan);
  CHECK(agent.output.gathers_by_channel);
  CHECK(agent.output.streams[0][0].to_file);
  CHECK_FALSE(agent.output.streams[0][1].to_file);
  CHECK_FALSE(agent.join.gathers_lines);
}

TEST_CASE("each host keeps its own log files with --no-gather-logs or with output filters") {
  for (const Words& words :
       {Words{"--log-dir=logs", "--no-gather-logs"},
        Words{"--log-dir=logs", "--tee=3", "--duplicate-stdout-filters=loss"}}) {
    const auto plan = two_hosts_plan(words);
    REQUIRE(plan);
    CHECK_FALSE(plan->lines);
    CHECK(first_agent(*plan).output.log_dir == "/job/logs");
  }
}

TEST_CASE("conflicting log file options are errors") {
  const auto both = two_hosts_plan({"--log-dir=logs", "--gather-logs", "--no-gather-logs"});
  REQUIRE_FALSE(both);
  CHECK_THAT(both.error().message, ContainsSubstring("they conflict"));
  const auto filters = two_hosts_plan({"--gather-logs", "--duplicate-stderr-filters=loss"});
  REQUIRE_FALSE(filters);
  CHECK_THAT(filters.error().message, ContainsSubstring("cannot be combined with --gather-logs"));
}

TEST_CASE("gathered lines have the format that they would have on their host") {
  const auto json = two_hosts_plan({"--log-dir=/logs", "--output=json", "--timestamps"});
  REQUIRE(json);
  CHECK(json->lines->mode == OutputMode::Json);
  CHECK(json->lines->has_timestamps);
  CHECK(json->lines->log_dir == "/logs");
  // A variable that is set with -x applies only to workers.
  const auto label =
      two_hosts_plan({"--log-dir=/logs", "-x", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=<${rank}>"});
  REQUIRE(label);
  CHECK(label->lines->label_template == json->lines->label_template);
  const auto own = two_hosts_plan({"--log-dir=/logs", "--log-line-prefix-template=<${rank}>"});
  REQUIRE(own);
  CHECK(own->lines->label_template == "<${rank}>");
  CHECK(own->nodes[1].label == "<${rank}>");
}

TEST_CASE("rank 0 gets the launcher's standard input with --stdin=rank0") {
  const auto plan = two_hosts_plan({"--stdin=rank0"});
  REQUIRE(plan);
  CHECK(plan->gives_stdin);
  CHECK(first_agent(*plan).worker.stdin_source == StdinSource::Rank0);
  CHECK_THAT(host_plan_text(*plan),
             ContainsSubstring("stdin        this drun's, sent to rank 0\n"));
  CHECK_FALSE(two_hosts_plan({})->gives_stdin);
}

}  // namespace drun::hosts
