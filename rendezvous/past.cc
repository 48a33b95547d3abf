#include "rendezvous/past.h"

#include <algorithm>
#include <utility>

namespace drun::rendezvous {

void note_record(std::vector<NodeRecord>& records, NodeRecord record) {
  if (record.name.size() > kRecordTextBytes) return;  // cut short it would be another's
  std::erase_if(records, [&record](const NodeRecord& known) {
    return known.name == record.name && known.slot == record.slot;
  });
  records.push_back(std::move(record));
  if (records.size() <= kMostRecords) return;
  const auto lost = std::find_if(records.begin(), records.end(),
                                 [](const NodeRecord& known) { return !known.is_left_out; });
  records.erase(lost == records.end() ? records.begin() : lost);
}

}  // namespace drun::rendezvous
