#include "rendezvous/coordinator/node_queries.h"

#include <algorithm>
#include <utility>

namespace drun::rendezvous {
namespace {

constexpr std::size_t kMostGroupsAtOnce = 256;  // during a query; about 30 KiB each

}  // namespace

void open_look(StackQuery& stack_query, std::map<int, std::string> nodes, StackQuery::Time now) {
  ++stack_query.number;
  stack_query.is_open = true;
  stack_query.answer_by = now + kLookLimit;
  stack_query.missing = std::move(nodes);
  stack_query.found = {};
  stack_query.positions = {};
}

bool is_awaited(const StackQuery& stack_query, const Answer& answer) {
  return stack_query.is_open && answer.number == stack_query.number &&
         stack_query.missing.contains(answer.node);
}

void take_answer(StackQuery& stack_query, const Answer& answer, const Evidence& evidence) {
  if (!is_awaited(stack_query, answer)) return;
  stack_query.missing.erase(answer.node);
  note(stack_query.positions, evidence);
  gather(stack_query.found, evidence);
  if (stack_query.found.groups.size() <= kMostGroupsAtOnce) return;
  settle(stack_query.found);
  shrink(stack_query.found);
}

void lose_answer(StackQuery& stack_query, int node, const std::string& reason) {
  const auto found = stack_query.missing.find(node);
  if (!stack_query.is_open || found == stack_query.missing.end()) return;
  gather(stack_query.found, {.notes = {found->second + ": lost, " + reason}});
  stack_query.missing.erase(found);
}

bool is_complete(const StackQuery& stack_query, StackQuery::Time now) {
  return stack_query.is_open && (stack_query.missing.empty() || now >= stack_query.answer_by);
}

Evidence close_look(StackQuery& stack_query) {
  stack_query.is_open = false;
  for (const auto& [node, name] : stack_query.missing) {
    stack_query.found.notes.push_back(name + ": no answer in " +
                                      std::to_string(kLookLimit.count()) + " s");
  }
  stack_query.missing.clear();
  settle(stack_query.found);
  shrink(stack_query.found);
  return std::exchange(stack_query.found, {});
}

std::optional<StackQuery::Time> deadline(const StackQuery& stack_query) {
  if (stack_query.is_open) return stack_query.answer_by;
  return stack_query.suspects_at;
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
