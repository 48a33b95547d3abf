#include "rendezvous/coordinator/node_queries.h"

#include <algorithm>
#include <utility>

namespace drun::rendezvous {
namespace {

constexpr std::size_t kMostGroupsAtOnce = 256;  // during a query; about 30 KiB each

}  // namespace

void open_look(StackQuery& looking, std::map<int, std::string> nodes, StackQuery::Time now) {
  ++looking.number;
  looking.is_open = true;
  looking.answer_by = now + kLookLimit;
  looking.missing = std::move(nodes);
  looking.found = {};
  looking.standings = {};
}

bool is_awaited(const StackQuery& looking, const Answer& answer) {
  return looking.is_open && answer.number == looking.number &&
         looking.missing.contains(answer.node);
}

void take_answer(StackQuery& looking, const Answer& answer, const Evidence& evidence) {
  if (!is_awaited(looking, answer)) return;
  looking.missing.erase(answer.node);
  note(looking.standings, evidence);
  gather(looking.found, evidence);
  if (looking.found.groups.size() <= kMostGroupsAtOnce) return;
  settle(looking.found);
  shrink(looking.found);
}

void lose_answer(StackQuery& looking, int node, const std::string& reason) {
  const auto found = looking.missing.find(node);
  if (!looking.is_open || found == looking.missing.end()) return;
  gather(looking.found, {.notes = {found->second + ": lost, " + reason}});
  looking.missing.erase(found);
}

bool is_complete(const StackQuery& looking, StackQuery::Time now) {
  return looking.is_open && (looking.missing.empty() || now >= looking.answer_by);
}

Evidence close_look(StackQuery& looking) {
  looking.is_open = false;
  for (const auto& [node, name] : looking.missing) {
    looking.found.notes.push_back(name + ": no answer in " + std::to_string(kLookLimit.count()) +
                                  " s");
  }
  looking.missing.clear();
  settle(looking.found);
  shrink(looking.found);
  return std::exchange(looking.found, {});
}

std::optional<StackQuery::Time> deadline(const StackQuery& looking) {
  if (looking.is_open) return looking.answer_by;
  return looking.suspects_at;
}

}  // namespace drun::rendezvous

namespace drun::rendezvous {

bool has_room(const LogLookups& lookups, std::uint64_t asking_peer) {
  if (lookups.pending.size() >= kMostLogLookups) return false;
  const auto own = std::count_if(
      lookups.pending.begin(), lookups.pending.end(),
      [asking_peer](const auto& each) { return each.second.asker.peer == asking_peer; });
  return static_cast<std::size_t>(own) < kMostLogLookupsOfOne;
}

std::vector<LogLookups::Pending> take_overdue(LogLookups& lookups, LogLookups::Time now) {
  std::vector<LogLookups::Pending> taken;
  while (!lookups.pending.empty() && lookups.pending.begin()->second.answer_by <= now) {
    taken.push_back(lookups.pending.begin()->second);
    lookups.pending.erase(lookups.pending.begin());
  }
  return taken;
}

std::vector<LogLookups::Pending> take_of_node(LogLookups& lookups, int node) {
  std::vector<LogLookups::Pending> taken;
  std::erase_if(lookups.pending, [&taken, node](const auto& each) {
    if (each.second.node == node) taken.push_back(each.second);
    return each.second.node == node;
  });
  return taken;
}

}  // namespace drun::rendezvous
