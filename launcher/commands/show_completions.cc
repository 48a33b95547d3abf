#include "launcher/commands/commands.h"

#include <chrono>
#include <cstdio>
#include <optional>
#include <set>
#include <string>

#include "launcher/cli/completion.h"
#include "launcher/cli/option_table.h"
#include "launcher/commands/local_jobs.h"
#include "launcher/facts/files.h"
#include "launcher/hosts/host_pool.h"

namespace drun {
namespace {

constexpr std::chrono::milliseconds kTimeForJobs{500};

void add(Completion& completion, const std::string& word) {
  completion.candidates.push_back({completion.stem + word, ""});
}

void add_jobs(Completion& completion) {
  std::set<std::string> jobs;
  for (const LocalAgent& agent : local_agents({.each = kTimeForJobs, .all = kTimeForJobs}))
    if (!agent.names.run_id.empty()) jobs.insert(agent.names.run_id);
  for (const std::string& job : jobs) add(completion, job);
}

// Without a host file, the shell adds the hosts that it knows.
void add_hosts(Completion& completion) {
  if (!completion.hostfile) return;
  const std::optional<std::string> text = whole_text_of(*completion.hostfile);
  if (!text) return;
  const Result<hosts::Pool> pool = hosts::parse_host_file(*text);
  if (!pool) return;
  for (const hosts::PoolHost& host : *pool) add(completion, host.name);
  completion.more = Completion::More::Nothing;
}

}  // namespace

int show_completions(const CompleteCommand& command) {
  Completion completion = complete(command.words, command_syntaxes());
  if (completion.more == Completion::More::Jobs) add_jobs(completion);
  if (completion.more == Completion::More::Hosts) add_hosts(completion);
  std::fputs(completion_lines(completion).c_str(), stdout);
  return 0;
}

}  // namespace drun
