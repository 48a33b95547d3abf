#include "rendezvous/protocol/membership_text.h"

#include "rendezvous/base/text.h"

namespace drun::rendezvous {
namespace {

void append_item(std::string& list, std::string_view item) {
  if (!list.empty()) list += ", ";
  list += item;
}

void append_rest(std::string& list, long count) {
  if (count > 0) list += " and " + std::to_string(count) + " more";
}

// "a, b and 2 more"; `text_of`: of a node that has joined.
template <typename TextOf>
std::string joined_list(const Waiting& waiting, TextOf text_of) {
  std::string list;
  for (const NodeName& node : waiting.joined) append_item(list, text_of(node));
  append_rest(list,
              static_cast<long>(waiting.joined_count) - static_cast<long>(waiting.joined.size()));
  return list.empty() ? "none" : list;
}

std::string joined_hosts(const Waiting& waiting) {
  return joined_list(waiting, [](const NodeName& node) { return node.host; });
}

std::string missing_nodes(const Waiting& waiting) {
  std::string list;
  for (const int node_rank : waiting.missing) append_item(list, node_text(node_rank, ""));
  append_rest(list, static_cast<long>(waiting.node_count) - waiting.joined_count -
                        static_cast<long>(waiting.missing.size()));
  return list;
}

}  // namespace

std::string node_text(int node_rank, std::string_view host) {
  std::string text = "node " + std::to_string(node_rank);
  if (!host.empty()) text += " (" + std::string(host) + ")";
  return text;
}

std::string roll_call(const Waiting& waiting) {
  const auto text_of = [](const NodeName& node) { return node_text(node.node_rank, node.host); };
  return missing_nodes(waiting) + " missing (joined: " + joined_list(waiting, text_of) + ")";
}

std::string waiting_text(const Waiting& waiting, std::string_view endpoint, Milliseconds left) {
  return "waiting for " + std::to_string(waiting.node_count - waiting.joined_count) + " of " +
         std::to_string(waiting.node_count) + " nodes at " + std::string(endpoint) + ": " +
         roll_call(waiting) + "; " + duration_text(left) + " left";
}

std::string progress_text(const Waiting& waiting, Milliseconds since) {
  const bool is_elastic = waiting.min_node_count > 0;
  const std::string time = "; " + duration_text(since);
  const std::string count = std::to_string(waiting.joined_count) + " of ";
  if (is_elastic) {
    return count + node_range_text(waiting.min_node_count, waiting.node_count) + " joined (" +
           joined_hosts(waiting) + ")" + time;
  }
  return count + std::to_string(waiting.node_count) + " nodes joined (" + joined_hosts(waiting) +
         "), waiting for " + missing_nodes(waiting) + time;
}

std::string timeout_text(const Waiting& waiting, std::string_view endpoint, Milliseconds limit) {
  return std::to_string(waiting.joined_count) + " of " + std::to_string(waiting.node_count) +
         " nodes joined at " + std::string(endpoint) + " within " + duration_text(limit) + ": " +
         roll_call(waiting) +
         "; start drun on the missing nodes, check that they reach this endpoint, or raise "
         "--rdzv-conf join_timeout=SECONDS";
}

std::string node_range_text(int least, int most) {
  return (least == most ? "" : std::to_string(least) + " to ") + std::to_string(most) +
         (most == 1 ? " node" : " nodes");
}

std::string elastic_waiting_text(const Waiting& waiting, std::string_view endpoint) {
  const std::string place(endpoint);
  if (waiting.is_spare) {
    return "the job at " + place + " runs on " +
           node_range_text(waiting.joined_count, waiting.joined_count) +
           " without this one, which is a spare: it steps in when there is room";
  }
  const std::string joined = std::to_string(waiting.joined_count) + " of " +
                             node_range_text(waiting.min_node_count, waiting.node_count) +
                             " joined at " + place + " (" + joined_hosts(waiting) + "); ";
  if (waiting.joined_count >= waiting.min_node_count)
    return joined + "waiting up to " + duration_text(waiting.left) + " for more";
  return "waiting for nodes: " + joined + duration_text(waiting.left) + " left";
}

std::string elastic_timeout_text(const Waiting& waiting, std::string_view endpoint,
                                 Milliseconds limit) {
  return std::to_string(waiting.joined_count) + " of " +
         node_range_text(waiting.min_node_count, waiting.node_count) + " joined at " +
         std::string(endpoint) + " within " + duration_text(limit) + " (" + joined_hosts(waiting) +
         "); start drun on more nodes, check that they reach this endpoint, or raise "
         "--rdzv-conf join_timeout=SECONDS";
}

}  // namespace drun::rendezvous
