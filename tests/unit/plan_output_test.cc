// The output plan: gathered lines, timestamps, and progress while nodes join.
#include "launcher/plan/plan.h"
#include "tests/support/catch.h"
#include "tests/support/plans.h"

namespace drun {
namespace {

using test::plan_error;
using test::plan_of;
using test::running;
using test::train_host;

}  // namespace

TEST_CASE("gathered lines are labeled by default, and the coordinator writes the files") {
  Options options = running("train");
  options.gather_logs = true;
  options.log_dir = "/logs";
  options.nnodes = NodeRange{2, 2};
  options.master_addr = "gpu0";
  options.node_rank = 0;
  const AgentSpec first = plan_of(options).agent;
  CHECK(first.join.gathers_lines);
  CHECK(first.output.gathers);
  CHECK(first.output.mode == OutputMode::Labeled);
  CHECK(first.output.label_template == "[${host}:${rank}]: ");
  CHECK(first.output.log_dir == "/logs");
  const StreamPlan kept{.to_file = true, .is_labeled = true};
  CHECK(first.output.streams[0] == std::array{kept, kept});
  options.node_rank = 1;
  CHECK(plan_of(options).agent.output.log_dir == std::nullopt);
  options.log_dir = "/dev/null";
  const AgentSpec second = plan_of(options).agent;
  CHECK(second.output.log_dir == "");
  CHECK_FALSE(second.output.streams[0][0].to_file);
  options.output = OutputMode::Json;
  options.sources["--output"] = "--output";
  CHECK(plan_of(options).agent.output.mode == OutputMode::Json);
}

TEST_CASE("invalid combinations with --gather-logs and --timestamps are usage errors") {
  Options options = running("train");
  options.timestamps = true;
  CHECK(plan_of(options).agent.output.has_timestamps);
  options.output = OutputMode::Raw;
  CHECK_THAT(plan_error(options),
             ContainsSubstring("--timestamps: it cannot be combined with --output=raw"));
  options.timestamps = false;
  options.gather_logs = true;
  options.sources["--output"] = "--output";
  CHECK_THAT(plan_error(options),
             ContainsSubstring("--gather-logs: it cannot be combined with --output=raw"));
  options.output = OutputMode::Lines;
  options.duplicate_stdout_filters = {"loss"};
  CHECK_THAT(plan_error(options), ContainsSubstring("--duplicate-stdout-filters"));
}

TEST_CASE("the coordinator shows who has joined if its messages go to a terminal") {
  const int node_rank = GENERATE(0, 1);
  Options options = running("train");
  options.nnodes = NodeRange{2, 2};
  options.master_addr = std::string("gpu0");
  options.node_rank = node_rank;
  HostFacts host = train_host();
  CHECK_FALSE(plan_of(options, host).agent.join.shows_progress);
  host.has_terminal = true;
  CHECK(plan_of(options, host).agent.join.shows_progress == (node_rank == 0));
}

}  // namespace drun
