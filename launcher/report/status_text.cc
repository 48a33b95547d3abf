#include "launcher/report/status_text.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "launcher/base/words.h"

namespace drun {
namespace {

using StatusJson = nlohmann::json;

constexpr std::size_t kMostRows = 64;

std::string duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "?";
  return in_words(std::chrono::milliseconds(static_cast<long long>(seconds * 1000)));
}

// "running, 8 workers on 2 nodes, up 3 min 12 s; round 1 for 12.3 s; 1 of 3 restarts used"
std::string progress(const StatusJson& status) {
  std::string text = status.at("phase").get<std::string>();
  if (status.at("world_size").is_null()) {
    return text + " for " + duration(status.at("up_s").get<double>()) + ", " +
           counted(status.at("nodes").get<int>(), "node") + " expected";
  }
  text += ", " + counted(status.at("world_size").get<int>(), "worker") + " on " +
          counted(status.at("nodes").get<int>(), "node") + ", up " +
          duration(status.at("up_s").get<double>());
  const int round = status.at("round").get<int>();
  if (round > 0) {
    text += "; round " + std::to_string(round) + " for " +
            duration(status.at("round_up_s").get<double>());
  }
  if (status.at("max_restarts").get<int>() > 0) {
    text += "; " + std::to_string(status.at("restarts").get<int>()) + " of " +
            counted(status.at("max_restarts").get<int>(), "restart") + " used";
  }
  return text;
}

bool has_programs(const StatusJson& status) {
  return status.contains("programs") && status.at("programs").is_array();
}

std::string words_of(const StatusJson& command) {
  std::string text;
  for (const StatusJson& word : command) text += " " + word.get<std::string>();
  return printable(text);
}

std::string head(const StatusJson& status) {
  std::string text = printable(status.at("run_id").get<std::string>()) + "  ";
  if (status.at("node_rank").is_number()) {
    text += "node " + std::to_string(status.at("node_rank").get<int>()) + "  ";
  }
  text += printable(status.at("host").get<std::string>()) + "  agent " +
          std::to_string(status.at("agent_pid").get<int>()) + "\n  " + progress(status) + "\n  ";
  if (!has_programs(status)) return text + "command:" + words_of(status.at("command")) + "\n";
  std::string programs;
  for (const StatusJson& program : status.at("programs")) {
    programs += (programs.empty() ? "" : "  ") + printable(program.at("role").get<std::string>()) +
                ", " + counted(program.at("workers").get<int>(), "worker") + ":" +
                words_of(program.at("command")) + "\n";
  }
  return text + programs;
}

std::string rows(const StatusJson& workers, bool has_roles) {
  std::string text;
  std::size_t count = 0;
  for (const StatusJson& worker : workers) {
    if (++count > kMostRows) break;
    text += "  rank " + std::to_string(worker.at("rank").get<int>()) + "  local rank " +
            std::to_string(worker.at("local_rank").get<int>()) + "  ";
    if (has_roles) text += printable(worker.at("role").get<std::string>()) + "  ";
    text += worker.at("pid").is_number() ? "pid " + std::to_string(worker.at("pid").get<int>())
                                         : worker.at("state").get<std::string>();
    text += '\n';
  }
  if (workers.size() > kMostRows) {
    text += "  and " + std::to_string(workers.size() - kMostRows) + " more; see --json\n";
  }
  return text;
}

std::string last_failure(const StatusJson& failure) {
  if (failure.is_null()) return "";
  return "  last failure: rank " + std::to_string(failure.at("rank").get<int>()) + ", " +
         printable(failure.at("ended").get<std::string>()) + ", at " +
         printable(failure.at("time").get<std::string>()) + "\n";
}

StatusJson parsed(std::string_view json) { return StatusJson::parse(json, nullptr, false); }

}  // namespace

bool is_called(const StatusNames& names, std::string_view job) {
  return job == names.run_id || job == std::to_string(names.agent_pid) ||
         job == std::to_string(names.drun_pid);
}

Result<StatusNames> status_names(std::string_view json) {
  const StatusJson status = parsed(json);
  try {
    if (status.at("schema") == "drun.status/1") {
      return StatusNames{
          .run_id = status.at("run_id").get<std::string>(),
          .agent_pid = status.at("agent_pid").get<int>(),
          .drun_pid = status.at("drun_pid").get<int>(),
          .meeting_point = status.at("master_addr").dump() + " " + status.at("master_port").dump()};
    }
  } catch (const StatusJson::exception&) {
    // As another schema.
  }
  return Error{ErrorCode::Refused, "what answered is not an agent of this version of drun"};
}

std::string status_text(std::string_view json) {
  const StatusJson status = parsed(json);
  try {
    const StatusJson& log_directory = status.at("log_directory");
    return head(status) + rows(status.at("workers"), has_programs(status)) +
           last_failure(status.at("last_failure")) +
           (log_directory.is_string()
                ? "  logs: " + printable(log_directory.get<std::string>()) + "\n"
                : "");
  } catch (const StatusJson::exception&) {
    return "";
  }
}

}  // namespace drun
