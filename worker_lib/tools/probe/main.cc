// drun-probe: what `drun doctor` runs on every node. Node 0 prints what was found, the others what
// is about them. Exit code: of node 0, 1 when there is a problem; 3 when it could not be found out.
// With --preflight no table; a node with a problem ends with 1.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "drun/error.h"
#include "rendezvous/job/world.h"
#include "worker_lib/tools/probe/examine.h"
#include "worker_lib/tools/probe/formats.h"

namespace drun::probe {
namespace {

constexpr int kProblems = 1;
constexpr int kUsage = 2;
constexpr int kUnable = 3;

std::optional<std::string> variable(std::string_view name) {
  const char* const value = std::getenv(std::string(name).c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

int complain(const std::string& message, int code) {
  std::fprintf(stderr, "drun-probe: %s\n", message.c_str());
  return code;
}

Seat seat_of(const World& world) {
  const std::string names = variable("GLOO_SOCKET_IFNAME").value_or("");
  return {.node = world.node_rank,
          .count = world.node_count,
          .master = world.master_addr,
          .port = world.master_port,
          .network = names.substr(0, names.find(','))};
}

// A node with a problem prints it last and ends with 1.
int preflight(const Seat& seat, const Task& task, const Examined& examined, KeyStore& store) {
  std::vector<Finding> findings;
  if (seat.node == 0) {
    findings = findings_of(gather(examined.report, seat, store));
    std::fputs(findings_text(findings).c_str(), stderr);
    tell(findings, seat, store);
  } else {
    findings = hear(store);
  }
  const bool is_at_fault =
      std::any_of(findings.begin(), findings.end(), [&seat](const Finding& finding) {
        return finding.is_problem && node_at_fault(finding) == seat.node;
      });
  if (seat.node != 0 && (is_at_fault || !task.is_quiet))
    std::fputs(findings_text(findings_about(seat.node, findings)).c_str(), stderr);
  if (seat.node != 0) say_told(seat, store);
  return is_at_fault ? kProblems : 0;
}

int conclude(const Seat& seat, const Task& task, const Examined& examined, KeyStore& store) {
  if (seat.node != 0) {
    const std::string text = findings_text(findings_about(seat.node, hear(store)));
    if (!task.is_quiet) std::fputs(text.c_str(), stderr);
    say_told(seat, store);
    return 0;
  }
  const Reports reports = gather(examined.report, seat, store);
  const std::vector<Finding> findings = findings_of(reports);
  const std::string text =
      task.is_json ? whole_json(reports, findings) : table_text(reports, findings);
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  tell(findings, seat, store);
  return has_problem(findings) ? kProblems : 0;
}

int look_and_tell(const Seat& seat, const Task& task) {
  const auto store = make_prefix_key_store(
      "drun/probe", connect_key_store(seat.master, seat.port, std::chrono::seconds(20)));
  const Examined examined = examine(seat, task, store);
  const int code = task.is_preflight ? preflight(seat, task, examined, *store)
                                     : conclude(seat, task, examined, *store);
  if (!examined.is_hanging) return code;
  std::fflush(nullptr);
  std::_Exit(code);
}

int run(const std::vector<std::string>& words) {
  const Result<Task> task = parse_task(words);
  if (!task) return complain(task.error().message, kUsage);
  const Result<WorkerIdentity> self = from_environment(variable);
  if (!self) return complain(self.error().message, kUsage);
  if (task->is_preflight && self->local_rank != 0) return 0;  // one a node looks
  const Seat seat = seat_of(self->world);
  try {
    return look_and_tell(seat, *task);
  } catch (const WorkerError& error) {
    // Where there is a table, node 0 names who has told nothing, and what it knows of the way.
    const bool is_told_there = seat.node != 0 && !task->is_preflight;
    return complain(error.what(), is_told_there ? 0 : kUnable);
  }
}

}  // namespace
}  // namespace drun::probe

int main(int argc, char** argv) {
  try {
    return drun::probe::run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    return drun::probe::complain(error.what(), drun::probe::kUnable);
  }
}
