#include "launcher/report/status_text.h"

#include <algorithm>
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

constexpr std::size_t kMostRows = 64;

std::string duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "?";
  return in_words(std::chrono::milliseconds(static_cast<long long>(seconds * 1000)));
}

// "running, 8 workers on 2 nodes, up 3 min 12 s; round 1 for 12.3 s; 1 of 3 restarts used"
std::string progress(const StatusJson& status) {
  std::string text = printable(status.at("phase").get<std::string>());
  if (status.at("world_size").is_null()) {
    return text + " for " + duration(status.at("up_s").get<double>()) + ", " +
           counted(count_in(status.at("nodes")), "node") + " expected";
  }
  text += ", " + counted(count_in(status.at("world_size")), "worker") + " on " +
          counted(count_in(status.at("nodes")), "node") + ", up " +
          duration(status.at("up_s").get<double>());
  const int round = int_of(status.at("round"));
  if (round > 0) {
    text += "; round " + std::to_string(round) + " for " +
            duration(status.at("round_up_s").get<double>());
  }
  if (int_of(status.at("max_restarts")) > 0) {
    text += "; " + std::to_string(int_of(status.at("restarts"))) + " of " +
            counted(count_in(status.at("max_restarts")), "restart") + " used";
  }
  return text;
}

bool has_programs(const StatusJson& status) {
  return status.contains("programs") && status.at("programs").is_array();
}

std::string command_words(const StatusJson& command) {
  std::string text;
  for (const StatusJson& word : command) text += " " + word.get<std::string>();
  return printable(text);
}

std::string head(const StatusJson& status) {
  std::string text = printable(status.at("run_id").get<std::string>()) + "  ";
  if (status.at("node_rank").is_number()) {
    text += "node " + std::to_string(int_of(status.at("node_rank"))) + "  ";
  }
  text += printable(status.at("host").get<std::string>()) + "  agent " +
          std::to_string(int_of(status.at("agent_pid"))) + "\n  " + progress(status) + "\n  ";
  if (!has_programs(status)) return text + "command:" + command_words(status.at("command")) + "\n";
  std::string programs;
  for (const StatusJson& program : status.at("programs")) {
    programs += (programs.empty() ? "" : "  ") + printable(program.at("role").get<std::string>()) +
                ", " + counted(count_in(program.at("workers")), "worker") + ":" +
                command_words(program.at("command")) + "\n";
  }
  return text + programs;
}

std::string rows(const StatusJson& workers, bool has_roles) {
  std::string text;
  std::size_t count = 0;
  for (const StatusJson& worker : workers) {
    if (++count > kMostRows) break;
    text += "  rank " + std::to_string(int_of(worker.at("rank"))) + "  local rank " +
            std::to_string(int_of(worker.at("local_rank"))) + "  ";
    if (has_roles) text += printable(worker.at("role").get<std::string>()) + "  ";
    text += worker.at("pid").is_number() ? "pid " + std::to_string(int_of(worker.at("pid")))
                                         : printable(worker.at("state").get<std::string>());
    text += '\n';
  }
  if (workers.size() > kMostRows) {
    text += "  and " + std::to_string(workers.size() - kMostRows) + " more; see --json\n";
  }
  return text;
}

std::string last_failure(const StatusJson& failure) {
  if (failure.is_null()) return "";
  return "  last failure: rank " + std::to_string(int_of(failure.at("rank"))) + ", " +
         printable(failure.at("ended").get<std::string>()) + ", at " +
         printable(failure.at("time").get<std::string>()) + "\n";
}

StatusJson parsed(std::string_view json) { return parse_foreign_json<StatusJson>(json); }

}  // namespace

bool is_called(const StatusNames& names, std::string_view job) {
  return job == names.run_id || job == std::to_string(names.agent_pid) ||
         job == std::to_string(names.drun_pid);
}

Result<StatusNames> status_names(std::string_view json) {
  const StatusJson status = parsed(json);
  try {
    const StatusJson& master_addr = status.at("master_addr");
    const StatusJson& master_port = status.at("master_port");
    const bool has_point = master_addr.is_primitive() && master_port.is_primitive();
    if (status.at("schema") == "drun.status/1" && has_point) {
      return StatusNames{.run_id = status.at("run_id").get<std::string>(),
                         .agent_pid = int_of(status.at("agent_pid")),
                         .drun_pid = int_of(status.at("drun_pid")),
                         .meeting_point = master_addr.dump() + " " + master_port.dump()};
    }
  } catch (const StatusJson::exception&) {
    // Handle it like an unknown schema.
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
