#include "launcher/hosts/local_nodes.h"

#include <algorithm>
#include <utility>

#include "launcher/base/text.h"
#include "launcher/base/words.h"
#include "launcher/facts/visible_gpus.h"
#include "launcher/plan/programs.h"

namespace drun::hosts {
namespace {

constexpr const char* kLoopbackAddress = "127.0.0.1";

// Part `index` of `count`; all of it if there are fewer elements than parts.
template <typename T>
std::vector<T> part_of(const std::vector<T>& all, std::size_t index, std::size_t count) {
  if (all.size() < count) return all;
  const auto begin = static_cast<std::ptrdiff_t>(index * all.size() / count);
  const auto end = static_cast<std::ptrdiff_t>((index + 1) * all.size() / count);
  return std::vector<T>(all.begin() + begin, all.begin() + end);
}

// The visible GPUs by the names in the variable, or by number.
std::vector<std::string> visible_names(const HostFacts& host) {
  const auto list = variable(host, host.gpu_variable);
  const auto most = static_cast<std::size_t>(std::max(host.gpus, 0));
  std::vector<std::string> names =
      list ? trusted_gpu_names(*list) : visible_gpu_names(list, unnamed_gpus(most));
  names.resize(std::min(names.size(), most));
  return names;
}

void share_gpus(HostPlan& plan, const HostFacts& host) {
  const std::vector<std::string> names = visible_names(host);
  const std::size_t count = plan.nodes.size();
  if (names.empty() || count == 1) return;
  if (names.size() < count) {
    plan.warnings.push_back("--local-nodes: " + counted(names.size(), "GPU") + " for " +
                            counted(count, "node") + ", so every node sees all of them");
    return;
  }
  for (std::size_t node = 0; node < count; ++node) {
    set_variable(plan.nodes[node].environment,
                 {host.gpu_variable, joined(part_of(names, node, count), ",")});
  }
}

// These libraries would use the address of the host's name, which is not an address of the node.
void name_interface(HostNode& node, const HostFacts& host) {
  for (const char* name : {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"}) {
    if (!value_of(node.environment, name) && !variable(host, name))
      set_variable(node.environment, {name, kNodeInterface});
  }
}

}  // namespace

std::string local_address(std::size_t node) { return "10.88.0." + std::to_string(node + 1); }

Result<void> check_local_nodes(const Options& options) {
  const auto is_given = [&options](const char* name) { return options.sources.contains(name); };
  for (const char* other :
       {"--hosts", "--hostfile", "--host", "--machinefile", "--include", "--exclude", "--ssh",
        "--ssh-args", "--fanout", "--login-timeout", "--no-gather-logs", "--no-copy"}) {
    if (is_given(other))
      return usage_error(std::string("--local-nodes and ") + other,
                         "all nodes are on this machine; remove one of the two");
  }
  if (is_given("--nnodes"))
    return usage_error("--local-nodes and --nnodes", "they conflict; remove --nnodes");
  if (options.metrics && !options.hosts.local_nodes->has_networks)
    return usage_error("--metrics-port",
                       "the agents of all local nodes would listen there; remove it, or write "
                       "--local-nodes=N,netns");
  return {};
}

Pool local_pool(const Options& options) {
  const int count = options.hosts.local_nodes->max;
  std::optional<int> slots;
  if (options.hosts.np) slots = (*options.hosts.np + count - 1) / count;
  Pool pool;
  for (int node = 0; node < count; ++node)
    pool.push_back({.name = "node" + std::to_string(node), .user = "", .slots = slots});
  return pool;
}

Result<void> settle_local_nodes(HostPlan& plan, const Options& options, const HostFacts& host) {
  plan.local_nodes = options.hosts.local_nodes;
  const std::size_t count = plan.nodes.size();
  for (std::size_t node = 0; node < count; ++node) {
    HostNode& each = plan.nodes[node];
    each.address = plan.local_nodes->has_networks ? local_address(node) : kLoopbackAddress;
    if (count > 1) each.cpus = part_of(host.cpus, node, count);
    if (plan.local_nodes->has_networks) name_interface(each, host);
  }
  share_gpus(plan, host);
  if (plan.local_nodes->has_networks) return {};
  // One for each agent that may coordinate the job, and one for the store of rank 0 with
  // --store=worker.
  for (int i = 0; i < 4 && count > 1; ++i) {
    const std::optional<int> port = host.free_port ? host.free_port() : std::nullopt;
    if (!port)
      return Error{ErrorCode::System,
                   "--local-nodes: no free TCP port on 127.0.0.1; see whether the loopback "
                   "interface has this address (ip addr add 127.0.0.1/8 dev lo)"};
    plan.local_ports.push_back(*port);
  }
  return {};
}

}  // namespace drun::hosts
