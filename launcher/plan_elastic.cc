#include "launcher/plan_elastic.h"

#include <algorithm>

#include "launcher/option_values.h"
#include "launcher/plan_etcd.h"
#include "launcher/plan_seats.h"
#include "rendezvous/endpoint.h"

namespace drun {
namespace {

std::string lower_case(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return text;
}

Result<std::optional<bool>> is_host_of(const Options& options) {
  const std::optional<std::string> text = rdzv_conf(options, "is_host");
  if (!text) return std::optional<bool>();
  const std::string word = lower_case(*text);
  for (const char* yes : {"1", "true", "t", "yes", "y"})
    if (word == yes) return std::optional(true);
  for (const char* no : {"0", "false", "f", "no", "n"})
    if (word == no) return std::optional(false);
  return usage_error("--rdzv-conf is_host=" + *text, "expected 1 or 0");
}

bool is_this_host(const std::string& name, const HostFacts& host) {
  const auto is_own = [&host](const std::string& address) {
    return is_loopback(address) ||
           std::find(host.addresses.begin(), host.addresses.end(), address) != host.addresses.end();
  };
  if (is_own(name) || lower_case(name) == lower_case(host.hostname)) return true;
  if (!host.addresses_of) return false;
  const std::vector<std::string> resolved = host.addresses_of(name);
  return std::any_of(resolved.begin(), resolved.end(), is_own);
}

Result<void> plan_own_seats(JoinSpec& join, std::optional<bool> is_host, const HostFacts& host) {
  for (std::size_t seat = 0; seat < join.seats.size(); ++seat) {
    if (is_host.value_or(true) && is_this_host(join.seats[seat].host, host))
      join.own_seats.push_back(seat);
  }
  join.is_coordinator = !join.own_seats.empty();
  join.may_be_member = true;
  if (!is_host.value_or(false) || join.is_coordinator) return {};
  return usage_error("--rdzv-conf is_host=1", "none of " + to_string(join.seats) +
                                                  " is an address of this host (" + host.hostname +
                                                  "); list it, or leave is_host out");
}

}  // namespace

bool is_elastic(const Options& options) {
  const NodeRange nodes = options.nnodes.value_or(NodeRange{});
  const bool is_c10d = options.rdzv_backend == "c10d" && !options.standalone;
  const bool is_numbered = options.node_rank && nodes.min == nodes.max;
  return nodes.max > 1 && ((is_c10d && !is_numbered) || is_etcd(options));
}

Result<void> plan_elastic(JoinSpec& join, const Options& options, const HostFacts& host) {
  ElasticSpec elastic;
  elastic.min_nodes = options.nnodes.value_or(NodeRange{}).min;
  elastic.rank_order = options.rank_order.value_or(elastic.rank_order);
  elastic.min_uptime = options.min_uptime.value_or(elastic.min_uptime);
  elastic.exclude_after = options.exclude_after.value_or(0);
  if (!is_etcd(options) && options.store == StoreHost::Worker &&
      elastic.rank_order != RankOrder::Endpoint)
    return usage_error("--store=worker",
                       "rank 0 serves the store at the endpoint, so that node must be node 0; "
                       "leave --rank-order out");
  if (const auto last_call = rdzv_conf(options, "last_call_timeout")) {
    const auto parsed = parse_seconds(*last_call);
    if (!parsed)
      return usage_error("--rdzv-conf last_call_timeout=" + *last_call, parsed.error().message);
    elastic.last_call_timeout = *parsed;
  }
  const Result<std::optional<bool>> is_host = is_host_of(options);
  if (!is_host) return is_host.error();
  join.elastic = elastic;
  join.join_timeout = std::chrono::minutes(10);
  if (is_etcd(options)) return plan_etcd(join, options, host, *is_host);
  if (Result<void> planned = plan_seats(join, options); !planned) return planned;
  if (!join.seats.empty()) return plan_own_seats(join, *is_host, host);
  join.is_coordinator = is_host->has_value() ? **is_host : is_this_host(join.endpoint.host, host);
  join.may_be_member = join.is_coordinator && !is_host->has_value();
  return {};
}

void plan_restarts(JoinSpec& join, const Options& options) {
  join.max_restarts = options.max_restarts.value_or(0);
  join.restart = options.restart;
  join.preflight = options.preflight;
}

void remark_elastic(const JoinSpec& join, const Options& options, Remarks& remarks) {
  const auto unused = [&remarks](const std::string& option, const std::string& reason) {
    remarks.warnings.push_back(option + " is not used: " + reason);
  };
  remark_seats(join, options, remarks);
  if (join.elastic && options.node_rank)
    unused("--node-rank",
           "with --rdzv-backend=" + *options.rdzv_backend + " the coordinator numbers the nodes");
  if (!join.elastic && options.rank_order)
    unused("--rank-order", "it is for --rdzv-backend=c10d; here --node-rank says it");
  if (!join.elastic && options.min_uptime)
    unused("--min-uptime", "it is for --rdzv-backend=c10d with --nnodes=MIN:MAX");
  const bool has_rules = options.restart != RestartPolicy{} || options.exclude_after;
  if (join.max_restarts == 0 && has_rules)
    remarks.warnings.push_back("nothing is restarted: --max-restarts is 0; raise it");
}

}  // namespace drun
