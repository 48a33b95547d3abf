#include "agent/http/answers.h"

#include <array>
#include <cstdio>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "agent/wall_time.h"

namespace drun::agent::web {
namespace {

using Label = std::pair<std::string_view, std::string>;

std::string as_utf8(const std::string& text) {
  using nlohmann::json;
  return json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace));
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : as_utf8(text)) {
    if (c == '\\' || c == '"') safe += '\\';
    c == '\n' ? safe += "\\n" : safe += c;
  }
  return safe;
}

class Families {
 public:
  void gauge(std::string_view name, std::string_view help) { begin(name, help, "gauge"); }
  void gauge(std::string_view name, std::string_view help, double value) {
    gauge(name, help);
    sample(value);
  }
  void counter(std::string_view name, std::string_view help, double value) {
    begin(name, help, "counter");
    sample(value);
  }

  // Of the family begun last.
  void sample(double value, std::initializer_list<Label> labels = {}) {
    text_ += name_;
    char separator = '{';
    for (const auto& [label, text] : labels) {
      text_.append(1, separator).append(label).append("=\"").append(escaped(text)).append("\"");
      separator = ',';
    }
    std::array<char, 40> number{};
    std::snprintf(number.data(), number.size(), "%s %.15g\n", labels.size() > 0 ? "}" : "", value);
    text_ += number.data();
  }

  std::string take() { return std::move(text_); }

 private:
  void begin(std::string_view name, std::string_view help, std::string_view type) {
    name_ = "drun_" + std::string(name);
    text_ += "# HELP " + name_ + " " + std::string(help) + "\n";
    text_ += "# TYPE " + name_ + " " + std::string(type) + "\n";
  }

  std::string name_;
  std::string text_;
};

void add_phase(Families& families, const NodeStatus& status) {
  families.gauge("phase", "1 for what this node's agent is doing, 0 for the rest.");
  for (const NodePhase phase :
       {NodePhase::Joining, NodePhase::Running, NodePhase::Stopping, NodePhase::Waiting}) {
    families.sample(phase == status.phase ? 1 : 0, {{"phase", word_of(phase)}});
  }
}

void add_world(Families& families, const World& world, const NodeStatus& status) {
  families.gauge("node_rank", "Of this node in the latest round.", world.node_rank);
  families.gauge("world_size", "Workers of all nodes in the latest round.", world.world_size);
  families.counter("rounds_total", "Worlds so far, this one included.", world.round + 1);
  families.counter("restarts_total", "Rounds of the job that a failure ended.", world.restarts);
  families.gauge("max_restarts", "Restarts that the job may have.", world.max_restarts);
  families.gauge("round_up_seconds", "Since the latest round began.", in_seconds(status.round_up));
}

void add_workers(Families& families, const World& world, const NodeStatus& status) {
  families.gauge("worker_running", "1 while that worker of this node runs.");
  for (std::size_t i = 0; i < status.pids.size(); ++i) {
    const int local_rank = static_cast<int>(i);
    families.sample(status.pids[i] == 0 ? 0 : 1,
                    {{"rank", std::to_string(world.base_rank + local_rank)},
                     {"local_rank", std::to_string(local_rank)}});
  }
}

void add_failure(Families& families, const Failure& failure) {
  families.gauge("last_failure_timestamp_seconds", "When a worker of this node failed last.");
  const auto time =
      std::chrono::duration_cast<std::chrono::milliseconds>(failure.time.time_since_epoch());
  families.sample(in_seconds(time), {{"rank", std::to_string(failure.rank)},
                                     {"exit_code", std::to_string(exit_code(failure.status))},
                                     {"ended", to_string(failure.status)}});
}

void add_job(Families& families, const JobFacts& job) {
  families.gauge("job_nodes", "In the world, or waiting for it to begin.", job.joined_nodes);
  families.gauge("job_spares", "Nodes that a running world does without.", job.spares);
  families.gauge("job_nodes_left_out", "Nodes excluded by --exclude-after, at most 16.",
                 static_cast<double>(job.left_out.size()));
  families.gauge("job_workers", "Of the world.", job.world_size);
  families.gauge("job_restarts", "Rounds that a failure ended.", job.restarts);
  families.gauge("job_restarts_left", "Restarts that the job may still have.", job.restarts_left);
  if (!job.round) return;
  families.gauge("job_round", "The number of the latest world, from 0.", *job.round);
}

}  // namespace

std::string metrics_text(const NodeStatus& status) {
  Families families;
  families.gauge("info", "1; which job this is.");
  families.sample(1, {{"run_id", status.run_id}, {"host", status.host}});
  families.gauge("up_seconds", "Since this node's agent started.", in_seconds(status.up));
  add_phase(families, status);
  families.gauge("nodes", "As asked for; those of the latest round once there is one.",
                 status.world ? status.world->node_count : status.node_count);
  if (status.world) {
    add_world(families, *status.world, status);
    add_workers(families, *status.world, status);
  }
  if (status.last_failure) add_failure(families, *status.last_failure);
  if (status.job) add_job(families, *status.job);
  return families.take();
}

// --- The pages

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
