#include "agent/failure_record.h"

#include <chrono>
#include <utility>

#include "agent/error_file.h"

namespace drun::agent {
namespace {

Failure failure_of(const AgentSpec& spec, const World& world, int local_rank) {
  Failure failure;
  failure.rank = world.base_rank + local_rank;
  failure.local_rank = local_rank;
  failure.node_rank = world.node_rank;
  failure.round = world.round;
  failure.role = world.role;
  failure.host = spec.host;
  failure.program = spec.worker.argv.empty() ? "" : spec.worker.argv.front();
  return failure;
}

}  // namespace

Failure brief_failure(const AgentSpec& spec, const World& world, const WorkerEnd& end) {
  Failure failure = failure_of(spec, world, end.local_rank);
  failure.pid = end.pid;
  failure.status = end.status;
  failure.time = end.time;
  failure.out_of_memory = end.out_of_memory;
  return failure;
}
