#include "launcher/plan/plan.h"

#include <nlohmann/json.hpp>

#include "launcher/base/words.h"
#include "tests/support/catch.h"

namespace drun {
namespace {

Plan small_plan() {
  Plan plan;
  plan.agent.host = "gpu0";
  plan.agent.join.run_id = "job";
  plan.agent.join.local_world_size = 2;
  plan.agent.join.endpoint = {"gpu0", 29500};
  plan.agent.join.master_addr = "gpu0";
  plan.agent.join.master_port = 29500;
  plan.agent.worker.argv = {"./train", "--name=it's", "${local_rank}"};
  plan.agent.output.streams.resize(2);
  plan.agent.output.streams[1][1] = {.to_file = true, .to_console = false};
  return plan;
}

}  // namespace

TEST_CASE("words are quoted for a shell") {
  CHECK(shell_quoted({"a", "-b=c", "/x/y.z"}) == "a -b=c /x/y.z");
  CHECK(shell_quoted({"", "a b", "it's", "$x", "~"}) == R"('' 'a b' 'it'\''s' '$x' '~')");
}

TEST_CASE("the plan is shown as text") {
  Plan plan = small_plan();
  plan.notes = {"n"};
  plan.warnings = {"w"};
  const std::string text = plan_text(plan);
  for (const char* line :
       {"run id       job\n", "node         0 of 1, host gpu0\n",
        "workers      2 here, ranks 0 to 1\n",
        "endpoint     gpu0:29500 (this node listens), join timeout 900 s\n",
        "command      ./train '--name=it'\\''s' '${local_rank}'\n",
        "             local rank 0: stdout console, stderr console\n",
        "             local rank 1: stdout console, stderr file\n", "             RANK=0\n",
        "             WORLD_SIZE=2\n", "             MASTER_PORT=29500\n", "note         n\n",
        "warning      w\n"}) {
    CHECK_THAT(text, ContainsSubstring(line));
  }
}

TEST_CASE("values that are known only after the rendezvous are shown as a question mark") {
  Plan plan = small_plan();
  plan.agent.join.node_count = 2;
  plan.agent.join.node_rank = 1;
  plan.agent.join.is_coordinator = false;
  const nlohmann::json json = nlohmann::json::parse(plan_json(plan));
  CHECK(json["environment"]["RANK"] == "?");
  CHECK(json["environment"]["WORLD_SIZE"] == "?");
  CHECK(json["environment"]["GROUP_RANK"] == "1");
  CHECK(json["environment"]["LOCAL_WORLD_SIZE"] == "2");
  CHECK_THAT(plan_text(plan), ContainsSubstring("2 here, ranks after those of node 0"));
}

TEST_CASE("with hang detection the plan shows the variables that workers get for it") {
  Plan plan = small_plan();
  const auto environment = [&plan] {
    return nlohmann::json::parse(plan_json(plan))["environment"];
  };
  CHECK_FALSE(environment().contains("NCCL_RAS_ADDR"));
  plan.agent.hang_timeout = std::chrono::seconds(60);
  CHECK(environment()["NCCL_RAS_ADDR"] == "127.0.0.1:?");
  CHECK(environment().contains("DRUN_HEARTBEAT_FILE"));
  plan.agent.worker.environment = {{"NCCL_RAS_ENABLE", "0"}};
  CHECK_FALSE(environment().contains("NCCL_RAS_ADDR"));
}

TEST_CASE("the plan as JSON has every field of its schema") {
  Plan plan = small_plan();
  plan.agent.termination_signals = {15};
  plan.report_file = "r.json";
  plan.cannot_start = CannotStart{.status = {2}, .message = "no"};
  const nlohmann::json json = nlohmann::json::parse(plan_json(plan));
  CHECK(json["schema"] == "drun.plan/1");
  CHECK(json["run_id"] == "job");
  CHECK(json["nodes"] == 1);
  CHECK(json["node_rank"] == 0);
  CHECK(json["workers_per_node"] == 2);
  CHECK(json["rendezvous"] == nlohmann::json{{"endpoint", "gpu0:29500"},
                                             {"is_coordinator", true},
                                             {"secret", nullptr},
                                             {"store", "agent"},
                                             {"join_timeout_s", 900.0},
                                             {"heartbeat_timeout_s", 10.0},
                                             {"store_memory_bytes", 1 << 30}});
  CHECK(json["command"] == nlohmann::json{"./train", "--name=it's", "${local_rank}"});
  CHECK(json["output"]["log_dir"].is_null());
  CHECK(json["output"]["streams"][1]["stderr"] == "file");
  CHECK(json["stdin"] == "none");
  CHECK(json["shutdown_timeout_s"] == 30.0);
  CHECK(json["leftovers"] == "wait");
  CHECK(json["termination_signals"] == nlohmann::json{15});
  CHECK(json["report"] == "r.json");
  CHECK(json["cannot_start"] == "no");
  CHECK(json["max_restarts"] == 0);
  CHECK(json["role"] == "default");
}

}  // namespace drun
