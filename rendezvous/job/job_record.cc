#include "rendezvous/job/job_record.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/bytes.h"

namespace drun::rendezvous {

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
