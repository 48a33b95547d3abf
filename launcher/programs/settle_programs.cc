#include "launcher/programs/settle_programs.h"

#include <algorithm>
#include <string>

#include "launcher/plan_elastic.h"
#include "launcher/plan_join.h"

namespace drun {
namespace {

bool is_fixed(const Options& options) {
  const NodeRange nodes = options.nnodes.value_or(NodeRange{});
  return nodes.min == nodes.max && !is_elastic(options);
}

Result<RankShare> own_share(const Options& options) {
  const int np = *options.hosts.np;
  const int nodes = options.nnodes.value_or(NodeRange{}).max;
  const std::string given = "-np " + std::to_string(np);
  if (!is_fixed(options))
    return usage_error(given,
                       "it counts the workers of the whole job, and these nodes may come and go; "
                       "write --nproc-per-node");
  const auto per_node = options.hosts.map_by ? options.hosts.map_by->per_node : std::nullopt;
  if (per_node && np > static_cast<std::int64_t>(*per_node) * nodes)
    return usage_error(given, std::to_string(*per_node) + " on each of " + std::to_string(nodes) +
                                  " nodes are fewer; change --map-by or -np");
  // A rank that is not there is refused where the nodes are planned.
  const int node_rank = std::min(options.node_rank.value_or(0), nodes - 1);
  const RankShare share = share_of(np, nodes, node_rank, per_node);
  if (share.count == 0)
    return usage_error(given, "node " + std::to_string(node_rank) + " of " + std::to_string(nodes) +
                                  " is left without a worker; ask for more, or for fewer nodes");
  return share;
}

// Several programs that count themselves on each node.
Result<void> count_here(Options& options, const HostFacts& host) {
  std::int64_t sum = 0;
  for (ProgramOptions& program : options.programs) {
    Options asked = options;
    asked.nproc_per_node = program.nproc_per_node;
    asked.gpus_per_worker = program.gpus_per_worker;
    const Result<int> count = plan_workers(asked, host);
    if (!count) return with_context(count.error(), program.program);
    program.nproc_per_node = WorkerCount(*count);
    sum += *count;
  }
  options.nproc_per_node = WorkerCount(static_cast<int>(sum));
  return {};
}

}  // namespace

std::vector<ProgramOptions> programs_of(const std::vector<ProgramOptions>& programs,
                                        RankShare share) {
  std::vector<ProgramOptions> own;
  std::int64_t begin = 0;
  for (const ProgramOptions& program : programs) {
    const std::int64_t end = begin + program.np.value_or(0);
    const std::int64_t from = std::max<std::int64_t>(begin, share.first);
    const std::int64_t to = std::min<std::int64_t>(end, share.first + std::int64_t{share.count});
    begin = end;
    if (from >= to) continue;
    own.push_back(program);
    own.back().np.reset();
    own.back().nproc_per_node = WorkerCount(static_cast<int>(to - from));
  }
  return own;
}

RankShare share_of(int np, int nodes, int node_rank, std::optional<int> per_node) {
  if (per_node) {
    const std::int64_t first = std::int64_t{*per_node} * node_rank;
    const std::int64_t left = std::max<std::int64_t>(np - first, 0);
    return {.first = static_cast<int>(std::min<std::int64_t>(first, np)),
            .count = static_cast<int>(std::min<std::int64_t>(*per_node, left))};
  }
  const int each = np / nodes;
  const int extra = np % nodes;
  return {.first = node_rank * each + std::min(node_rank, extra),
          .count = each + (node_rank < extra ? 1 : 0)};
}

Result<void> settle_programs(Options& options, const HostFacts& host) {
  if (options.doctor) return {};  // one probe a node, whatever the job is
  if (!options.hosts.np) {
    if (options.programs.empty()) return {};
    return count_here(options, host);
  }
  const Result<RankShare> share = own_share(options);
  if (!share) return share.error();
  options.nproc_per_node = WorkerCount(share->count);
  options.programs = programs_of(options.programs, *share);
  return {};
}

Result<std::vector<RoleShare>> roles_of(const std::vector<ProgramOptions>& programs) {
  std::vector<RoleShare> roles;
  for (const ProgramOptions& program : programs) {
    const int workers = std::get<int>(*program.nproc_per_node);
    if (!roles.empty() && roles.back().role == program.role)
      roles.back().workers += workers;
    else
      roles.push_back({.role = program.role, .workers = workers});
  }
  if (roles.size() <= kMostRoleShares) return roles;
  return Error{ErrorCode::Usage, "this node's programs have " + std::to_string(roles.size()) +
                                     " roles, one after the other; at most " +
                                     std::to_string(kMostRoleShares) +
                                     " can be: give neighbours the same --role"};
}

}  // namespace drun
