#include "agent/http/answers.h"

#include "agent/http/metrics.h"

namespace drun::agent::web {
namespace {

Answer readiness(NodePhase phase) {
  return {.code = phase == NodePhase::Running ? 200U : 503U,
          .body = std::string(word_of(phase)) + "\n"};
}

}  // namespace

Answer answer(std::string_view method, std::string_view target,
              const std::function<NodeStatus()>& status) {
  if (method != "GET" && method != "HEAD") return {.code = 405, .body = "only GET and HEAD\n"};
  const std::string_view page = target.substr(0, target.find('?'));
  if (page == "/livez") return {.body = "alive\n"};
  if (page == "/readyz") return readiness(status().phase);
  if (page == "/status")
    return {.type = "application/json", .body = status_json(without_arguments(status()))};
  if (page == "/metrics") {
    return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_text(status())};
  }
  return {.code = 404, .body = "there are /metrics, /status, /livez and /readyz\n"};
}

}  // namespace drun::agent::web
