// What ranks tell each other to make groups: over the backend, or, where that has no memory of the
// host, over the store.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "worker_lib/group.h"

namespace drun {

std::vector<int> ProcessGroup::Group::told_by_all(const std::vector<int>& mine, Timeout timeout) {
  std::vector<int> all(mine.size() * static_cast<std::size_t>(parts_.size));
  const Call call = worker::all_gather_call(place(), mine, all);
  if (parts_.backend->refusal(call).empty()) {
    run(call, timeout);
    return all;
  }
  if (!parts_.store) return mine;  // a world of one
  using std::chrono::milliseconds;
  const Deadline deadline =
      std::chrono::steady_clock::now() + timeout.value_or(parts_.job->timeout);
  const auto left = [deadline] {
    return std::max(
        std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now()),
        milliseconds(1));
  };
  std::unique_lock submitting(submitting_);
  const std::string prefix = "told/" + std::to_string(++tellings_) + "/";
  submitting.unlock();
  const std::size_t bytes = mine.size() * sizeof(int);
  parts_.store->set(prefix + std::to_string(parts_.rank),
                    std::string(reinterpret_cast<const char*>(mine.data()), bytes), left());
  for (int rank = 0; rank < parts_.size; ++rank) {
    const std::string told = parts_.store->get(prefix + std::to_string(rank), left());
    if (told.size() != bytes) {
      throw error(WorkerError::Kind::Store, "split()",
                  "the store's key " + prefix + std::to_string(rank) + " is not what ranks tell");
    }
    std::memcpy(&all[static_cast<std::size_t>(rank) * mine.size()], told.data(), bytes);
  }
  return all;
}

}  // namespace drun
