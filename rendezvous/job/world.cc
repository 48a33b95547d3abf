#include "rendezvous/job/world.h"

#include "rendezvous/base/text.h"

namespace drun {
namespace {

struct Range {
  long low = 0;
  long high = 0;
};

Error bad_variable(std::string_view name, std::string_view value, const Range& range) {
  return Error{ErrorCode::Usage,
               std::string(name) + "=\"" + std::string(value) +
                   "\": expected a whole number from " + std::to_string(range.low) + " to " +
                   std::to_string(range.high) + "; start this program under drun or set it"};
}

// Reads variables and keeps the first error.
class Variables {
 public:
  explicit Variables(const Lookup& lookup) : lookup_(lookup) {}

  int required(std::string_view name, Range range) {
    const std::optional<std::string> value = lookup_(name);
    if (!value) return miss(name), 0;
    return number(name, *value, range);
  }
  int optional(std::string_view name, Range range, int otherwise) {
    const std::optional<std::string> value = lookup_(name);
    return value && !value->empty() ? number(name, *value, range) : otherwise;
  }
  std::string required_text(std::string_view name) {
    std::optional<std::string> value = lookup_(name);
    if (!value || value->empty()) return miss(name), "";
    return *std::move(value);
  }
  std::string text(std::string_view name, std::string_view otherwise) {
    std::optional<std::string> value = lookup_(name);
    return value ? *std::move(value) : std::string(otherwise);
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  void miss(std::string_view name) {
    if (error_) return;
    error_ = Error{ErrorCode::Usage,
                   std::string(name) +
                       " is not set; start this program under drun (or torchrun), or set "
                       "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"};
  }
  int number(std::string_view name, const std::string& value, Range range) {
    const auto parsed = whole_number<int>(value);
    const bool is_good = parsed && *parsed >= range.low && *parsed <= range.high;
    if (!is_good && !error_) error_ = bad_variable(name, value, range);
    return is_good ? *parsed : 0;
  }

  const Lookup& lookup_;
  std::optional<Error> error_;
};

constexpr long kMostRanks = 1L << 30;

}  // namespace

WorkerRole role_of(const World& world, int local_rank) {
  int before = 0;
  const RoleRanks* share = share_at(world.roles, local_rank, before);
  if (share == nullptr)
    return {world.role, world.role_base_rank + local_rank, world.role_world_size};
  return {share->role, share->base_rank + before, share->world_size};
}

std::vector<EnvironmentEntry> to_environment(const World& world, int local_rank) {
  const WorkerRole role = role_of(world, local_rank);
  return {
      {"RANK", std::to_string(world.base_rank + local_rank)},
      {"LOCAL_RANK", std::to_string(local_rank)},
      {"WORLD_SIZE", std::to_string(world.world_size)},
      {"LOCAL_WORLD_SIZE", std::to_string(world.local_world_size)},
      {"GROUP_RANK", std::to_string(world.node_rank)},
      {"GROUP_WORLD_SIZE", std::to_string(world.node_count)},
      {"ROLE_NAME", role.name},
      {"ROLE_RANK", std::to_string(role.rank)},
      {"ROLE_WORLD_SIZE", std::to_string(role.world_size)},
      {"MASTER_ADDR", world.master_addr},
      {"MASTER_PORT", std::to_string(world.master_port)},
      {"DRUN_ROUND", std::to_string(world.round)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(world.restarts)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(world.max_restarts)},
      {"TORCHELASTIC_RUN_ID", world.run_id},
      {"TORCHELASTIC_USE_AGENT_STORE", world.use_agent_store ? "True" : "False"},
  };
}

Result<WorkerIdentity> from_environment(const Lookup& lookup) {
  Variables variables(lookup);
  WorkerIdentity self;
  World& world = self.world;
  world.world_size = variables.required("WORLD_SIZE", {1, kMostRanks});
  self.rank =
      variables.required("RANK", {0, world.world_size > 0 ? world.world_size - 1 : kMostRanks});
  world.local_world_size =
      variables.optional("LOCAL_WORLD_SIZE", {1, kMostRanks}, world.world_size);
  self.local_rank = variables.optional("LOCAL_RANK", {0, kMostRanks}, self.rank);
  world.base_rank = self.rank - self.local_rank;
  world.node_rank = variables.optional("GROUP_RANK", {0, kMostRanks}, 0);
  world.node_count = variables.optional("GROUP_WORLD_SIZE", {1, kMostRanks}, 1);
  world.role = variables.text("ROLE_NAME", "default");
  world.role_base_rank =
      variables.optional("ROLE_RANK", {0, kMostRanks}, self.rank) - self.local_rank;
  world.role_world_size = variables.optional("ROLE_WORLD_SIZE", {1, kMostRanks}, world.world_size);
  world.master_addr = variables.required_text("MASTER_ADDR");
  world.master_port = static_cast<std::uint16_t>(variables.required("MASTER_PORT", {1, 65535}));
  world.restarts = variables.optional("TORCHELASTIC_RESTART_COUNT", {0, kMostRanks}, 0);
  world.round = variables.optional("DRUN_ROUND", {0, kMostRanks}, world.restarts);
  world.max_restarts = variables.optional("TORCHELASTIC_MAX_RESTARTS", {0, kMostRanks}, 0);
  world.run_id = variables.text("TORCHELASTIC_RUN_ID", "none");
  world.use_agent_store = variables.text("TORCHELASTIC_USE_AGENT_STORE", "False") == "True";
  if (variables.error()) return *variables.error();
  return self;
}

}  // namespace drun
