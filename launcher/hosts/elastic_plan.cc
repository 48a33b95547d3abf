#include "launcher/hosts/elastic_plan.h"

#include <algorithm>

#include "launcher/option_values.h"

namespace drun::hosts {
namespace {

constexpr std::size_t kSeats = 3;
// All who can come do so at once; torchrun's 30 s are for nodes that people start by hand.
constexpr const char* kLastCall = ",last_call_timeout=5";

std::string endpoint_text(const std::string& host, int port) {
  const bool is_v6 = host.find(':') != host.npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string endpoints_of(const HostPlan& plan) {
  if (plan.seats.size() == 1) return endpoint_text(plan.master_addr, plan.master_port);
  std::string text;
  for (const std::size_t seat : plan.seats)
    text += (text.empty() ? "" : ",") + endpoint_text(plan.nodes[seat].name, plan.master_port);
  return text;
}

}  // namespace

bool is_elastic_wish(const Options& options) {
  return options.nnodes && options.nnodes->min != options.nnodes->max;
}

Result<void> check_node_count(const Options& options, std::size_t hosts) {
  if (!options.nnodes) return {};
  const NodeRange& nodes = *options.nnodes;
  const auto most = static_cast<std::size_t>(nodes.max);
  const std::string there = "there are " + std::to_string(hosts) + " hosts with workers";
  if (!is_elastic_wish(options))
    return most == hosts ? Result<void>()
                         : usage_error("--nnodes", there + ", each a node; leave it out");
  if (most > hosts)
    return usage_error(
        "--nnodes=" + std::to_string(nodes.min) + ":" + std::to_string(nodes.max),
        there + ", and no more can come; write " +
            std::to_string(std::min<std::size_t>(hosts, static_cast<std::size_t>(nodes.min))) +
            ":" + std::to_string(hosts) + ", or name more");
  return {};
}

void plan_elastic_hosts(HostPlan& plan, const Options& options, bool has_own_address) {
  if (!is_elastic_wish(options)) return;
  plan.nodes_wanted = *options.nnodes;
  const bool is_one =
      has_own_address || options.store == StoreHost::Worker || plan.nodes.size() < kSeats;
  // The master port is rank 0's own then.
  if (options.store == StoreHost::Worker && !options.master_port) plan.master_port = kMeetingPort;
  for (std::size_t seat = 0; seat < (is_one ? 1 : kSeats); ++seat) plan.seats.push_back(seat);
  bool has_last_call = false;
  for (const auto& [name, value] : options.rdzv_conf) {
    if (name == "is_host") continue;  // the order of the hosts says it
    plan.rdzv_conf += "," + name + "=" + value;
    has_last_call = has_last_call || name == "last_call_timeout";
  }
  if (!has_last_call) plan.rdzv_conf += kLastCall;
}

std::vector<std::string> meeting_words(const HostPlan& plan, std::size_t rank) {
  if (!plan.nodes_wanted) {
    std::vector<std::string> words{"--nnodes=" + std::to_string(plan.nodes.size()),
                                   "--node-rank=" + std::to_string(rank),
                                   "--rdzv-id=" + plan.run_id};
    if (plan.master_addr.empty()) return words;
    words.push_back("--master-addr=" + plan.master_addr);
    words.push_back("--master-port=" + std::to_string(plan.master_port));
    return words;
  }
  const bool has_seat = std::find(plan.seats.begin(), plan.seats.end(), rank) != plan.seats.end();
  const std::string conf = std::string("is_host=") + (has_seat ? "1" : "0") + plan.rdzv_conf;
  return {"--nnodes=" + std::to_string(plan.nodes_wanted->min) + ":" +
              std::to_string(plan.nodes_wanted->max),
          "--rdzv-id=" + plan.run_id, "--rdzv-backend=c10d",
          "--rdzv-endpoint=" + endpoints_of(plan), "--rdzv-conf=" + conf};
}

}  // namespace drun::hosts
