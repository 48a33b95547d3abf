#include "launcher/report/job_text.h"

#include <chrono>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <vector>

#include "launcher/base/words.h"
#include "rendezvous/base/foreign_json.h"

namespace drun {
namespace {

using StatusJson = nlohmann::json;

constexpr std::size_t kMostNodes = 256;

std::string duration(const StatusJson& seconds) {
  const double value = seconds.get<double>();
  if (!std::isfinite(value) || value < 0 || value > 1e9) return "?";
  return in_words(std::chrono::milliseconds(static_cast<long long>(value * 1000)));
}

std::string wanted_nodes(const StatusJson& job) {
  const std::size_t least = count_in(job.at("min_nodes"));
  const std::size_t most = count_in(job.at("max_nodes"));
  return least == most ? counted(most, "node")
                       : std::to_string(least) + " to " + counted(most, "node");
}

// "running, 8 workers on 2 nodes, up 3 min 12 s; round 1 for 12.3 s; 1 restart used, 2 left"
std::string job_progress(const StatusJson& job) {
  const std::string phase = printable(job.at("phase").get<std::string>());
  const std::size_t joined = count_in(job.at("joined_nodes"));
  if (job.at("round").is_null()) {
    return phase + " for " + duration(job.at("up_s")) + ", " + std::to_string(joined) + " of " +
           wanted_nodes(job) + " there";
  }
  std::string text = phase + ", " + counted(count_in(job.at("world_size")), "worker") + " on " +
                     counted(joined, "node") + ", up " + duration(job.at("up_s"));
  if (job.at("is_preflight").get<bool>()) text += "; preflight check";
  const int round = int_of(job.at("round"));
  if (round > 0)
    text += "; round " + std::to_string(round) + " for " + duration(job.at("round_up_s"));
  if (int_of(job.at("max_restarts")) > 0) {
    text += "; " + counted(count_in(job.at("restarts")), "restart") + " used, " +
            std::to_string(int_of(job.at("restarts_left"))) + " left";
  }
  return text;
}

std::string job_head(const StatusJson& job) {
  std::string text = printable(job.at("run_id").get<std::string>()) + "  ";
  if (job.at("endpoint").is_string())
    text += "coordinator " + printable(job.at("endpoint").get<std::string>()) + "  ";
  text += "agent " + std::to_string(int_of(job.at("agent_pid"))) + " here\n";
  if (job.at("note").is_string())
    text += "  this node alone: " + printable(job.at("note").get<std::string>()) + "\n";
  std::string command;
  for (const StatusJson& word : job.at("command")) command += " " + word.get<std::string>();
  return text + "  " + job_progress(job) + "\n  command:" + printable(command) + "\n";
}

// "8 workers", "7 of 8 workers run", "6 of 8 workers run, 1 failed"
std::string workers(const StatusJson& node) {
  const std::size_t all = count_in(node.at("workers"));
  if (node.at("workers_running").is_null()) return counted(all, "worker");
  const int running = int_of(node.at("workers_running"));
  const int failed = int_of(node.at("workers_failed"));
  return std::to_string(running) + " of " + counted(all, "worker") + (all == 1 ? " runs" : " run") +
         (failed > 0 ? ", " + std::to_string(failed) + " failed" : "");
}

// "node 1  gpu1  running  8 of 8 workers run  up 3 min 12 s"
std::string row(const StatusJson& node, bool has_world) {
  std::string text = "  ";
  if (node.at("node_rank").is_number())
    text += "node " + std::to_string(int_of(node.at("node_rank")));
  else
    text += has_world ? "spare" : "node";
  const std::string state = node.at("state").get<std::string>();
  text += "  " + printable(node.at("host").get<std::string>()) + "  " + printable(state) + "  " +
          workers(node);
  if (node.at("up_s").is_number()) return text + "  up " + duration(node.at("up_s")) + "\n";
  const bool is_gone = state == "silent" || state == "lost";
  return text + (is_gone ? "  last heard " + duration(node.at("heard_s")) + " ago" : "") + "\n";
}

std::string rows(const StatusJson& job) {
  std::string text;
  const StatusJson& nodes = job.at("nodes");
  std::size_t shown = 0;
  for (const StatusJson& node : nodes) {
    if (++shown > kMostNodes) break;
    text += row(node, job.at("round").is_number());
  }
  const std::size_t beyond = nodes.size() > kMostNodes ? nodes.size() - kMostNodes : 0;
  const std::size_t left = beyond + count_in(job.at("nodes_not_listed"));
  if (left > 0) text += "  and " + std::to_string(left) + " more; see --json\n";
  for (const StatusJson& node_rank : job.at("missing_node_ranks"))
    text += "  node " + std::to_string(int_of(node_rank)) + "  missing\n";
  for (const StatusJson& node : job.at("left_out")) {
    text += "  left out: node " + std::to_string(int_of(node.at("node_rank"))) + " (" +
            printable(node.at("host").get<std::string>()) + ") after round " +
            std::to_string(int_of(node.at("round"))) + ": " +
            printable(node.at("reason").get<std::string>()) + "\n";
  }
  return text;
}

std::string job_failure(const StatusJson& failure) {
  if (failure.is_null()) return "";
  return "  last failure: rank " + std::to_string(int_of(failure.at("rank"))) + " on node " +
         std::to_string(int_of(failure.at("node_rank"))) + " (" +
         printable(failure.at("host").get<std::string>()) + "), " +
         printable(failure.at("ended").get<std::string>()) + ", in round " +
         std::to_string(int_of(failure.at("round"))) + ", at " +
         printable(failure.at("time").get<std::string>()) + "\n";
}

}  // namespace

bool is_job_status(std::string_view json) {
  const StatusJson job = parse_foreign_json<StatusJson>(json);
  return job.is_object() && job.contains("schema") && job.at("schema") == "drun.job/1";
}

std::string job_text(std::string_view json) {
  const StatusJson job = parse_foreign_json<StatusJson>(json);
  try {
    return job_head(job) + rows(job) + job_failure(job.at("last_failure"));
  } catch (const StatusJson::exception&) {
    return "";
  }
}

}  // namespace drun
