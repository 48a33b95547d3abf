#include "launcher/report/status_text.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "launcher/base/text.h"
#include "launcher/base/words.h"
#include "rendezvous/base/foreign_json.h"
#include "rendezvous/job/phase_times.h"
#include "rendezvous/job/slow_rank.h"

namespace drun {
namespace {

using StatusJson = nlohmann::json;

constexpr std::size_t kMostRows = 64;
constexpr std::size_t kMostNodes = 256;

// The values of fields that a status always has; a field of another kind throws.

std::string text_at(const StatusJson& json, const char* name) {
  return printable(json.at(name).get<std::string>());
}
std::string number_at(const StatusJson& json, const char* name) {
  return std::to_string(int_of(json.at(name)));
}
std::string counted_at(const StatusJson& json, const char* name, std::string_view thing) {
  return counted(count_in(json.at(name)), thing);
}
std::string time_at(const StatusJson& json, const char* name) {
  return in_words(json.at(name).get<double>());
}

// "  time: waiting 0.2 s, start 3.1 s (rank 5: 3.9 s), running 12 min 4 s"; the slowest where it
// differs from the mean.
std::string time_line(const StatusJson& status) {
  const StatusJson times = status.value("phase_times_s", StatusJson());
  const StatusJson longest = status.value("longest_phase_times", StatusJson());
  std::string text;
  if (!times.is_object()) return text;
  for (const Phase phase : {Phase::Waiting, Phase::Spawn, Phase::Import, Phase::Start,
                            Phase::Running, Phase::Stopping, Phase::Restarting, Phase::Standby}) {
    const double mean = times.at(word_of(phase)).get<double>();
    if (mean <= 0) continue;
    text += std::string(text.empty() ? "  time: " : ", ") + word_of(phase) + " " + in_words(mean);
    if (!longest.is_object()) continue;
    const StatusJson& slowest = longest.at(word_of(phase));
    const double seconds = slowest.at("seconds").get<double>();
    if (seconds < 1.1 * mean || seconds < mean + 0.1) continue;
    text += slowest.at("rank").is_number() ? " (rank " + number_at(slowest, "rank")
                                           : " (node " + number_at(slowest, "node_rank");
    text += ": " + in_words(seconds) + ")";
  }
  return text.empty() ? text : text + "\n";
}

// "running, 8 workers on 2 nodes, up 3 min 12 s; round 1 for 12.3 s; 1 of 3 restarts used"
std::string progress(const StatusJson& status) {
  std::string text = text_at(status, "phase");
  if (status.at("world_size").is_null()) {
    return text + " for " + time_at(status, "up_s") + ", " + counted_at(status, "nodes", "node") +
           " expected";
  }
  text += ", " + counted_at(status, "world_size", "worker") + " on " +
          counted_at(status, "nodes", "node") + ", up " + time_at(status, "up_s");
  const int round = int_of(status.at("round"));
  if (round > 0) {
    text += "; round " + std::to_string(round) + " for " + time_at(status, "round_up_s");
  }
  if (int_of(status.at("max_restarts")) > 0) {
    text += "; " + number_at(status, "restarts") + " of " +
            counted_at(status, "max_restarts", "restart") + " used";
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
  std::string text = text_at(status, "run_id") + "  ";
  if (status.at("node_rank").is_number()) {
    text += "node " + number_at(status, "node_rank") + "  ";
  }
  text += text_at(status, "host") + "  agent " + number_at(status, "agent_pid") + "\n  " +
          progress(status) + "\n  ";
  if (!has_programs(status)) return text + "command:" + command_words(status.at("command")) + "\n";
  std::string programs;
  for (const StatusJson& program : status.at("programs")) {
    programs += (programs.empty() ? "" : "  ") + text_at(program, "role") + ", " +
                counted_at(program, "workers", "worker") + ":" +
                command_words(program.at("command")) + "\n";
  }
  return text + programs;
}

std::string rows(const StatusJson& workers, bool has_roles) {
  std::string text;
  std::size_t count = 0;
  for (const StatusJson& worker : workers) {
    if (++count > kMostRows) break;
    text += "  rank " + number_at(worker, "rank") + "  local rank " +
            number_at(worker, "local_rank") + "  ";
    if (has_roles) text += text_at(worker, "role") + "  ";
    text +=
        worker.at("pid").is_number() ? "pid " + number_at(worker, "pid") : text_at(worker, "state");
    text += '\n';
  }
  if (workers.size() > kMostRows) {
    text += "  and " + std::to_string(workers.size() - kMostRows) + " more; see --json\n";
  }
  return text;
}

std::string last_failure(const StatusJson& failure) {
  if (failure.is_null()) return "";
  return "  last failure: rank " + number_at(failure, "rank") + ", " + text_at(failure, "ended") +
         ", at " + text_at(failure, "time") + "\n";
}

// Of a whole job.

std::string wanted_nodes(const StatusJson& job) {
  const std::size_t least = count_in(job.at("min_nodes"));
  const std::size_t most = count_in(job.at("max_nodes"));
  return least == most ? counted(most, "node")
                       : std::to_string(least) + " to " + counted(most, "node");
}

// "running, 8 workers on 2 nodes, up 3 min 12 s; round 1 for 12.3 s; 1 restart used, 2 left"
std::string job_progress(const StatusJson& job) {
  const std::string phase = text_at(job, "phase");
  const std::size_t joined = count_in(job.at("joined_nodes"));
  if (job.at("round").is_null()) {
    return phase + " for " + time_at(job, "up_s") + ", " + std::to_string(joined) + " of " +
           wanted_nodes(job) + " there";
  }
  std::string text = phase + ", " + counted_at(job, "world_size", "worker") + " on " +
                     counted(joined, "node") + ", up " + time_at(job, "up_s");
  if (job.at("is_preflight").get<bool>()) text += "; preflight check";
  const int round = int_of(job.at("round"));
  if (round > 0) text += "; round " + std::to_string(round) + " for " + time_at(job, "round_up_s");
  if (int_of(job.at("max_restarts")) > 0) {
    text += "; " + counted_at(job, "restarts", "restart") + " used, " +
            number_at(job, "restarts_left") + " left";
  }
  return text;
}

std::string job_head(const StatusJson& job) {
  std::string text = text_at(job, "run_id") + "  ";
  if (job.at("endpoint").is_string()) text += "coordinator " + text_at(job, "endpoint") + "  ";
  text += "agent " + number_at(job, "agent_pid") + " here\n";
  if (job.at("note").is_string()) text += "  this node alone: " + text_at(job, "note") + "\n";
  return text + "  " + job_progress(job) + "\n  command:" + command_words(job.at("command")) + "\n";
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
std::string node_row(const StatusJson& node, bool has_world) {
  std::string text = "  ";
  if (node.at("node_rank").is_number())
    text += "node " + number_at(node, "node_rank");
  else
    text += has_world ? "spare" : "node";
  const std::string state = node.at("state").get<std::string>();
  text += "  " + text_at(node, "host") + "  " + printable(state) + "  " + workers(node);
  if (node.at("up_s").is_number()) return text + "  up " + time_at(node, "up_s") + "\n";
  const bool is_gone = state == "silent" || state == "lost";
  return text + (is_gone ? "  last heard " + time_at(node, "heard_s") + " ago" : "") + "\n";
}

std::string node_rows(const StatusJson& job) {
  std::string text;
  const StatusJson& nodes = job.at("nodes");
  std::size_t shown = 0;
  for (const StatusJson& node : nodes) {
    if (++shown > kMostNodes) break;
    text += node_row(node, job.at("round").is_number());
  }
  const std::size_t beyond = nodes.size() > kMostNodes ? nodes.size() - kMostNodes : 0;
  const std::size_t left = beyond + count_in(job.at("nodes_not_listed"));
  if (left > 0) text += "  and " + std::to_string(left) + " more; see --json\n";
  for (const StatusJson& node_rank : job.at("missing_node_ranks"))
    text += "  node " + std::to_string(int_of(node_rank)) + "  missing\n";
  for (const StatusJson& node : job.at("left_out")) {
    text += "  left out: node " + number_at(node, "node_rank") + " (" + text_at(node, "host") +
            ") after round " + number_at(node, "round") + ": " + text_at(node, "reason") + "\n";
  }
  return text;
}

std::string slow_rows(const StatusJson& job) {
  std::string text;
  for (const StatusJson& each : job.at("slow")) {
    SlowRank slow{.node_rank = int_of(each.at("node_rank")),
                  .host = each.at("host").get<std::string>(),
                  .percent = int_of(each.at("slower_percent")),
                  .evidence = each.at("evidence").get<std::string>()};
    if (each.at("rank").is_number()) slow.rank = int_of(each.at("rank"));
    text += (each.at("is_slow").get<bool>() ? "  slow: " : "  slow before: ") +
            printable(text_of(slow)) + "\n";
  }
  return text;
}

std::string job_failure(const StatusJson& failure) {
  if (failure.is_null()) return "";
  return "  last failure: rank " + number_at(failure, "rank") + " on node " +
         number_at(failure, "node_rank") + " (" + text_at(failure, "host") + "), " +
         text_at(failure, "ended") + ", in round " + number_at(failure, "round") + ", at " +
         text_at(failure, "time") + "\n";
}

// Characters of UTF-8 text.
std::size_t characters_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

// The first `columns` characters of UTF-8 text. Escape sequences take no columns.
std::string_view cut(std::string_view line, std::size_t columns) {
  std::size_t shown = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') {
      while (i < line.size() && line[i] != 'm') ++i;
      continue;
    }
    if ((static_cast<unsigned char>(line[i]) & 0xC0U) == 0x80) continue;
    if (++shown > columns) return line.substr(0, i);
  }
  return line;
}

// At most `most` characters, the last three of them dots if it is cut.
std::string cut_text(const std::string& text, std::size_t most) {
  if (characters_of(text) <= most) return text;
  const std::size_t dots = std::min<std::size_t>(most, 3);
  return std::string(cut(text, most - dots)) + std::string(dots, '.');
}

StatusJson parsed(std::string_view json) { return parse_foreign_json<StatusJson>(json); }

// What `read` returns, or `otherwise` if a field that it reads is missing or of another kind.
template <typename T, typename Read>
T read_or(T otherwise, std::string_view json, Read read) {
  const StatusJson status = parsed(json);
  try {
    return read(status);
  } catch (const StatusJson::exception&) {
    return otherwise;
  }
}

}  // namespace

bool is_called(const StatusNames& names, std::string_view job) {
  return job == names.run_id || job == short_run_id(names.run_id) ||
         job == std::to_string(names.agent_pid) || job == std::to_string(names.drun_pid);
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
  return read_or(std::string(), json, [](const StatusJson& status) {
    const StatusJson& log_directory = status.at("log_directory");
    return head(status) + time_line(status) + rows(status.at("workers"), has_programs(status)) +
           last_failure(status.at("last_failure")) +
           (log_directory.is_string()
                ? "  logs: " + printable(log_directory.get<std::string>()) + "\n"
                : "");
  });
}

bool is_job_status(std::string_view json) {
  const StatusJson job = parsed(json);
  return job.is_object() && job.contains("schema") && job.at("schema") == "drun.job/1";
}

std::string job_text(std::string_view json) {
  return read_or(std::string(), json, [](const StatusJson& job) {
    return job_head(job) + time_line(job) + node_rows(job) + slow_rows(job) +
           job_failure(job.at("last_failure"));
  });
}

std::size_t nodes_in_status(std::string_view json) {
  return read_or(std::size_t{0}, json,
                 [](const StatusJson& status) { return count_in(status.at("nodes")); });
}

std::size_t nodes_that_continue(std::string_view json, std::size_t leaving) {
  return read_or(std::size_t{0}, json, [leaving](const StatusJson& job) {
    const std::size_t joined = count_in(job.at("joined_nodes"));
    const std::size_t least = count_in(job.at("min_nodes"));
    const bool is_elastic = least < count_in(job.at("max_nodes"));
    return is_elastic && joined >= least + leaving ? joined - leaving : 0;
  });
}

std::optional<NodeLogs> node_logs(std::string_view json) {
  const auto text = [](const StatusJson& field) {
    return field.is_string() ? field.get<std::string>() : std::string();
  };
  using Logs = std::optional<NodeLogs>;
  return read_or(Logs(), json, [&text](const StatusJson& status) -> Logs {
    NodeLogs logs;
    if (status.at("schema") != "drun.status/1") return std::nullopt;
    if (status.at("round").is_number()) logs.round = int_of(status.at("round"));
    for (const StatusJson& worker : status.at("workers")) {
      if (!worker.at("label").is_string()) continue;  // its files are not open yet
      logs.ranks.push_back({.rank = int_of(worker.at("rank")),
                            .label = text(worker.at("label")),
                            .stdout_file = text(worker.at("stdout_log")),
                            .stderr_file = text(worker.at("stderr_log"))});
    }
    return logs;
  });
}

int world_size_in(std::string_view json) {
  return read_or(0, json, [](const StatusJson& status) {
    return status.at("world_size").is_number() ? int_of(status.at("world_size")) : 0;
  });
}

NodeLogs in_round(NodeLogs logs, int round) {
  const std::string old_folder = "/attempt_" + std::to_string(logs.round.value_or(round)) + "/";
  const std::string folder = "/attempt_" + std::to_string(round) + "/";
  for (RankLogs& rank : logs.ranks) {
    for (std::string* const path : {&rank.stdout_file, &rank.stderr_file}) {
      const std::size_t at = path->rfind(old_folder);
      if (at != path->npos) path->replace(at, old_folder.size(), folder);
    }
  }
  logs.round = round;
  return logs;
}

std::optional<JobRow> job_row(std::string_view json) {
  using Row = std::optional<JobRow>;
  return read_or(Row(), json, [](const StatusJson& job) -> Row {
    const bool has_world = job.at("round").is_number();
    std::string command = command_words(job.at("command"));
    if (command.starts_with(' ')) command.erase(0, 1);
    std::string nodes = std::to_string(count_in(job.at("joined_nodes")));
    if (!has_world) {
      const std::size_t least = count_in(job.at("min_nodes"));
      const std::size_t most = count_in(job.at("max_nodes"));
      nodes += "/" + std::to_string(least) + (least == most ? "" : ":" + std::to_string(most));
    }
    const int most_restarts = int_of(job.at("max_restarts"));
    return JobRow{.job = text_at(job, "run_id"),
                  .state = text_at(job, "phase"),
                  .nodes = std::move(nodes),
                  .workers = has_world ? std::to_string(count_in(job.at("world_size"))) : "-",
                  .restarts = std::to_string(count_in(job.at("restarts"))) +
                              (most_restarts > 0 ? "/" + std::to_string(most_restarts) : ""),
                  .up = time_at(job, "up_s"),
                  .command = std::move(command)};
  });
}

JobRow silent_row(const StatusNames& names) {
  return {.job = names.run_id.empty() ? std::to_string(names.drun_pid) : printable(names.run_id),
          .state = "silent",
          .nodes = "-",
          .workers = "-",
          .restarts = "-",
          .up = "-",
          .command = "(agent " + std::to_string(names.agent_pid) + " does not answer)"};
}

std::string job_table(const std::vector<JobRow>& rows, std::optional<std::size_t> columns) {
  constexpr std::size_t kGap = 2;
  constexpr std::size_t kLeastCommand = 8;
  std::vector<JobRow> lines = {{"JOB", "STATE", "NODES", "WORKERS", "RESTARTS", "UP", "COMMAND"}};
  lines.insert(lines.end(), rows.begin(), rows.end());
  if (columns)
    for (JobRow& line : lines) line.job = short_run_id(line.job);
  const auto cells = {&JobRow::job,     &JobRow::state,    &JobRow::nodes,
                      &JobRow::workers, &JobRow::restarts, &JobRow::up};
  std::size_t used = 0;
  for (const auto cell : cells) {
    std::size_t width = 0;
    for (const JobRow& line : lines) width = std::max(width, characters_of(line.*cell));
    for (JobRow& line : lines) (line.*cell).append(width + kGap - characters_of(line.*cell), ' ');
    used += width + kGap;
  }
  std::string text;
  for (const JobRow& line : lines) {
    std::string command = line.command;
    if (columns)
      command =
          cut_text(command, *columns > used + kLeastCommand ? *columns - used : kLeastCommand);
    for (const auto cell : cells) text += line.*cell;
    text += command + "\n";
  }
  return text;
}

namespace {

struct StateLetter {
  const char* state;
  char letter;
  const char* color;
};
constexpr std::array kStateLetters{
    StateLetter{"joining", 'j', "\x1b[33m"},  StateLetter{"running", 'r', "\x1b[32m"},
    StateLetter{"stopping", 's', "\x1b[35m"}, StateLetter{"waiting", 'w', "\x1b[34m"},
    StateLetter{"ending", 'e', "\x1b[36m"},   StateLetter{"silent", '?', "\x1b[31m"},
    StateLetter{"lost", 'x', "\x1b[31m"}};

char letter_of(const std::string& state) {
  for (const StateLetter& each : kStateLetters)
    if (state == each.state) return each.letter;
  return ' ';
}

std::string colored(const std::string& letters) {
  std::string text;
  char last = 0;
  for (const char letter : letters) {
    if (letter != last) {
      const auto* each =
          std::find_if(kStateLetters.begin(), kStateLetters.end(),
                       [letter](const StateLetter& one) { return one.letter == letter; });
      text += each != kStateLetters.end() ? each->color : "\x1b[0m";
    }
    text += letter;
    last = letter;
  }
  return text + "\x1b[0m";
}

}  // namespace

std::string repaint(std::string_view text, ScreenSize size) {
  const std::vector<std::string_view> lines = lines_of(text);
  const std::size_t rows = std::max<std::size_t>(size.rows, 2);
  const bool is_cut = lines.size() > rows;
  const std::size_t shown = is_cut ? rows - 1 : lines.size();
  std::string picture = "\x1b[H";
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) picture += "\r\n";
    picture += std::string(cut(lines[i], size.columns)) + "\x1b[0m\x1b[K";
  }
  if (is_cut)
    picture += "\r\n" +
               std::string(cut("... " + counted(lines.size() - shown, "more line"), size.columns)) +
               "\x1b[K";
  return picture + "\x1b[J";
}

void StateHistory::add(std::string_view job_json) {
  const nlohmann::json job = parse_foreign_json<nlohmann::json>(job_json);
  try {
    const std::string run_id = job.at("run_id").get<std::string>();
    std::size_t row = 0;
    for (const nlohmann::json& node : job.at("nodes")) {
      if (row >= kMostNodes || nodes_.size() >= 4 * kMostNodes) break;
      auto& [name, letters] = nodes_[{run_id, row++}];
      const std::string now =
          (node.at("node_rank").is_number() ? "node " + number_at(node, "node_rank") : "spare") +
          "  " + text_at(node, "host");
      if (name != now) letters.clear();  // another node has this row
      name = now;
      letters += letter_of(node.at("state").get<std::string>());
      if (letters.size() > kMostLetters) letters.erase(0, letters.size() - kMostLetters);
    }
  } catch (const nlohmann::json::exception&) {
    // Not the status of a job.
  }
}

std::string StateHistory::text(std::size_t columns, bool has_color) const {
  std::size_t width = 0;
  for (const auto& [key, node] : nodes_) width = std::max(width, node.first.size());
  if (nodes_.empty() || columns < width + 12) return "";
  const std::size_t most = columns - width - 4;
  std::string text = "\n  states in the last seconds:";
  for (const StateLetter& each : kStateLetters) {
    const bool is_used = std::any_of(nodes_.begin(), nodes_.end(), [&each](const auto& node) {
      return node.second.second.find(each.letter) != std::string::npos;
    });
    if (is_used) text += std::string("  ") + each.letter + " " + each.state;
  }
  text += "\n";
  for (const auto& [key, node] : nodes_) {
    const auto& [name, letters] = node;
    const std::string latest =
        letters.size() > most ? letters.substr(letters.size() - most) : letters;
    text += "  " + name + std::string(width - name.size() + 2, ' ') +
            (has_color ? colored(latest) : latest) + "\n";
  }
  return text;
}

}  // namespace drun
