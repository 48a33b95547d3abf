#include "launcher/commands/commands.h"

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "agent/stacks/evidence_json.h"
#include "launcher/base/words.h"
#include "launcher/commands/ask_agents.h"
#include "launcher/commands/local_jobs.h"

namespace drun {
namespace {

constexpr std::chrono::seconds kStacksLimit{20};  // agents answer within 12 s

std::string shown(const StatusNames& job, const std::string& answer, bool is_json) {
  const Result<agent::Evidence> evidence = agent::parse_evidence_json(answer);
  if (is_json) return evidence ? answer : "";
  std::string text = printable(job.run_id) + "  agent " + std::to_string(job.agent_pid) + "\n";
  if (!evidence) return text + "  it does not answer\n";
  for (const std::string& line : evidence_lines(*evidence, 0))
    text += "  " + printable(line) + "\n";
  return text;
}

}  // namespace

int show_stacks(const StacksCommand& command) {
  const std::vector<LocalAgent> found =
      one_of_each_job(answering(agents_called(local_agents(), command.job)));
  bool is_first = true;
  for (const auto& [job, status] : found) {
    const std::string answer = ask_agent("drun-stacks", job.agent_pid, kStacksLimit);
    if (!is_first && !command.is_json) std::fputs("\n", stdout);
    is_first = false;
    std::fputs(shown(job, answer, command.is_json).c_str(), stdout);
  }
  if (!found.empty()) return std::fflush(stdout) == 0 ? 0 : 1;
  std::fprintf(stderr, "drun stacks: %s\n", no_such_job(command.job).c_str());
  return 1;
}

}  // namespace drun
