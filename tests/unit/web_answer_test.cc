#include "agent/http/answers.h"

#include <stdexcept>

#include "tests/support/catch.h"
#include "tests/support/messages.h"

namespace drun::agent::web {
namespace {

NodeStatus joining() {
  NodeStatus status;
  status.run_id = "night";
  status.host = "gpu0";
  status.node_count = 4;
  status.up = std::chrono::milliseconds(61'500);
  return status;
}

NodeStatus running() {
  NodeStatus status = joining();
  status.phase = NodePhase::Running;
  status.world = World{.run_id = "night",
                       .round = 2,
                       .restarts = 1,
                       .max_restarts = 3,
                       .node_rank = 2,
                       .node_count = 4,
                       .base_rank = 4,
                       .local_world_size = 2,
                       .world_size = 8,
                       .master_addr = "gpu9"};
  status.pids = {31, 0};
  return status;
}

Answer asked(const NodeStatus& status, std::string_view page, std::string_view method = "GET") {
  return answer(method, page, [&] { return status; });
}

}  // namespace

TEST_CASE("metrics of a joining job contain the known values") {
  const std::string text = metrics_text(joining());
  CHECK_THAT(text, ContainsSubstring("# TYPE drun_info gauge\n"
                                     "drun_info{run_id=\"night\",host=\"gpu0\"} 1\n"));
  CHECK_THAT(text, ContainsSubstring("\ndrun_up_seconds 61.5\n"));
  CHECK_THAT(text, ContainsSubstring("\ndrun_nodes 4\n"));
  CHECK_THAT(text, ContainsSubstring("drun_phase{phase=\"joining\"} 1\n"
                                     "drun_phase{phase=\"running\"} 0\n"));
  CHECK(text.find("drun_world_size") == std::string::npos);
}

TEST_CASE("metrics of a running job contain its workers, its restarts and its last failure") {
  NodeStatus status = running();
  Failure failed;
  failed.rank = 5;
  failed.status = Killed{.signal = 9};
  failed.time = test::kSomeTime;
  status.last_failure = failed;
  const std::string text = metrics_text(status);
  CHECK_THAT(text, ContainsSubstring("drun_worker_running{rank=\"4\",local_rank=\"0\"} 1\n"
                                     "drun_worker_running{rank=\"5\",local_rank=\"1\"} 0\n"));
  CHECK_THAT(text, ContainsSubstring("\ndrun_rounds_total 3\n"));
  CHECK_THAT(text, ContainsSubstring("\ndrun_restarts_total 1\n"));
  CHECK_THAT(text, ContainsSubstring("drun_last_failure_timestamp_seconds{rank=\"5\",exit_code="
                                     "\"137\",ended=\""));
  CHECK_THAT(text, ContainsSubstring("} 1795266187.123\n"));
}

TEST_CASE("names from the user are escaped in metrics") {
  NodeStatus status = joining();
  status.run_id = "a\"b\\c\nd\xff";
  CHECK_THAT(metrics_text(status),
             ContainsSubstring("{run_id=\"a\\\"b\\\\c\\nd\xef\xbf\xbd\",host=\"gpu0\"} 1\n"));
}

TEST_CASE("a node is alive while it joins, and ready while its workers run") {
  CHECK(asked(joining(), "/livez").code == 200);
  CHECK(asked(joining(), "/readyz").code == 503);
  CHECK(asked(joining(), "/readyz").body == "joining\n");
  CHECK(asked(running(), "/readyz?verbose").code == 200);
  CHECK(asked(running(), "/status").type == "application/json");
  CHECK(asked(running(), "/metrics").body == metrics_text(running()));
}

TEST_CASE("status over HTTP shows programs without their arguments") {
  NodeStatus status = running();
  status.command = {"python3", "-u", "train.py", "--token=hf_secret", "secret"};
  status.arguments_at = 3;
  status.programs = {{.role = "a", .argv = {"./serve", "--key", "secret"}},
                     {.role = "b", .argv = {"python3", "-u", "b.py", "secret"}, .arguments_at = 3}};
  const std::string body = asked(status, "/status").body;
  CHECK(body.find("secret") == std::string::npos);
  CHECK_THAT(body, ContainsSubstring(R"("command":["python3","-u","train.py"])") &&
                       ContainsSubstring(R"("command":["./serve"])") &&
                       ContainsSubstring(R"("command":["python3","-u","b.py"])"));
  status.command.resize(3);
  status.programs.clear();
  CHECK(asked(status, "/status").body == status_json(status));
  CHECK_THAT(status_json(status), !ContainsSubstring("secret"));
}

TEST_CASE("unknown pages and methods are rejected without reading the job's status") {
  const auto nobody = []() -> NodeStatus { throw std::logic_error("not to be asked"); };
  CHECK(answer("GET", "/", nobody).code == 404);
  CHECK(answer("GET", "/metricsx", nobody).code == 404);
  CHECK(answer("POST", "/metrics", nobody).code == 405);
  CHECK(answer("GET", "/livez", nobody).code == 200);
}

}  // namespace drun::agent::web
