#include "launcher/commands/show_stacks.h"

#include <chrono>
#include <cstdio>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/stacks/evidence_json.h"
#include "launcher/base/words.h"
#include "launcher/commands/ask_agents.h"
#include "launcher/report/status_text.h"

namespace drun {
namespace {

constexpr std::chrono::seconds kStatusLimit{2};
constexpr std::chrono::seconds kStacksLimit{20};  // agents answer within 13 s

// One agent of each selected job.
std::vector<StatusNames> jobs(const StacksCommand& command) {
  std::vector<StatusNames> found;
  std::set<std::pair<std::string, std::string>> seen;
  for (const std::string& name : agent_sockets("drun")) {
    const Result<StatusNames> names = status_names(ask_agent(name, kStatusLimit));
    if (!names || (command.job && !is_called(*names, *command.job))) continue;
    if (seen.emplace(names->run_id, names->meeting_point).second) found.push_back(*names);
  }
  return found;
}

std::string shown(const StatusNames& job, const std::string& answer, bool is_json) {
  const Result<Evidence> evidence = agent::parse_evidence_json(answer);
  if (is_json) return evidence ? answer : "";
  std::string text = printable(job.run_id) + "  agent " + std::to_string(job.agent_pid) + "\n";
  if (!evidence) return text + "  it does not answer\n";
  for (const std::string& line : evidence_lines(*evidence, 0))
    text += "  " + printable(line) + "\n";
  return text;
}

}  // namespace

int show_stacks(const StacksCommand& command) {
  const std::vector<StatusNames> found = jobs(command);
  bool is_first = true;
  for (const StatusNames& job : found) {
    const std::string answer = ask_agent("drun-stacks", job.agent_pid, kStacksLimit);
    if (!is_first && !command.is_json) std::fputs("\n", stdout);
    is_first = false;
    std::fputs(shown(job, answer, command.is_json).c_str(), stdout);
  }
  if (!found.empty()) return std::fflush(stdout) == 0 ? 0 : 1;
  const std::string which =
      command.job ? "no job \"" + *command.job + "\" of yours" : "no job of yours";
  std::fprintf(stderr, "drun stacks: %s runs on this machine\n", which.c_str());
  return 1;
}

}  // namespace drun
