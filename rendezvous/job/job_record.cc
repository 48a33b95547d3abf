#include "rendezvous/job/job_record.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/bytes.h"

namespace drun::rendezvous {
namespace {

constexpr std::size_t kMostKept = 1024;

auto find(const Exclusions& exclusions, const AgentId& id) {
  return std::find_if(exclusions.nodes.begin(), exclusions.nodes.end(),
                      [&id](const auto& entry) { return entry.id == id; });
}

}  // namespace

int count_failure(Exclusions& exclusions, const AgentId& id) {
  if (exclusions.last_at_fault != id) exclusions.failures_in_a_row = 0;
  exclusions.last_at_fault = id;
  return ++exclusions.failures_in_a_row;
}

bool inherit_left_out(Exclusions& exclusions, const AgentId& id, LeftOut told) {
  if (is_left_out(exclusions, id)) return false;
  if (exclusions.nodes.size() >= kMostKept) exclusions.nodes.erase(exclusions.nodes.begin());
  exclusions.nodes.push_back({id, std::move(told)});
  return true;
}

void leave_out(Exclusions& exclusions, const AgentId& id, LeftOut told) {
  inherit_left_out(exclusions, id, std::move(told));
  exclusions.last_at_fault.reset();
  exclusions.failures_in_a_row = 0;
}

std::string left_out_reason(int failures, int most) {
  const std::string rounds =
      failures == 1 ? "a round" : std::to_string(failures) + " rounds in a row";
  return "its workers were the first to fail in " + rounds +
         " (--exclude-after=" + std::to_string(most) + ")";
}

bool is_left_out(const Exclusions& exclusions, const AgentId& id) {
  return find(exclusions, id) != exclusions.nodes.end();
}

std::optional<Error> exclusion_objection(const Exclusions& exclusions, const AgentId& id) {
  const auto found = find(exclusions, id);
  if (found == exclusions.nodes.end()) return std::nullopt;
  return Error{ErrorCode::Refused, "it was left out of this job: " + found->told.reason +
                                       "; look at that machine, and let it into the next job"};
}

std::vector<LeftOut> all_left_out(const Exclusions& exclusions) {
  std::vector<LeftOut> all;
  all.reserve(exclusions.nodes.size());
  for (const auto& entry : exclusions.nodes) all.push_back(entry.told);
  return all;
}

void note_record(std::vector<NodeRecord>& records, NodeRecord record) {
  if (record.name.size() > kRecordTextBytes) return;  // a truncated name may match another agent
  std::erase_if(records, [&record](const NodeRecord& known) {
    return known.name == record.name && known.slot == record.slot;
  });
  records.push_back(std::move(record));
  if (records.size() <= kMostRecords) return;
  const auto lost = std::find_if(records.begin(), records.end(),
                                 [](const NodeRecord& known) { return !known.is_left_out; });
  records.erase(lost == records.end() ? records.begin() : lost);
}

Failure short_failure(Failure failure) {
  failure = brief(std::move(failure));
  failure.program.clear();
  failure.error_file.clear();
  failure.stderr_file.clear();
  if (auto* hung = std::get_if<Hung>(&failure.status))
    hung->how = cut_text(hung->how, kRecordTextBytes);
  return failure;
}

}  // namespace drun::rendezvous
