// edge. Logs the rounds of an agent.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "agent/output/output.h"
#include "agent/output/stderr_record.h"
#include "agent/process/leftovers.h"
#include "agent/spec.h"
#include "agent/stacks/evidence.h"
#include "rendezvous/base/log.h"
#include "rendezvous/job/world.h"

namespace drun::agent {

// "preflight: looking at 3 machines".
std::string preflight_text(const World& world);

// Logs the start of workers, and a change of nodes since `before`.
void log_world(const Log& log, const AgentSpec& spec, const std::optional<World>& before,
               const World& world);

// With several nodes the number of ranks is known only in the first world of the program. Only one
// node logs the warning.
void warn_of_ranks_not_there(const Log& log, const AgentSpec& spec,
                             const std::optional<World>& before, const World& world);

// Logs the failure of a worker of this node.
void log_failure(const Log& log, const AgentSpec& spec, const World& world, const Failure& failure);

// Which ranks of this node have reported the timeout of a collective: the first few calls.
std::vector<ReportedTimeout> reported_timeouts(const World& world, const Output& output);
// Logs those before the job was stopped. PyTorch's processes may stay for minutes after that.
void log_timeouts(const Log& log, const std::vector<ReportedTimeout>& timeouts);

// Logs the evidence of a hang as one warning of up to 100 lines.
void log_hang(const Log& log, const std::string& cause, const Evidence& evidence);
void log_left_out(const Log& log, const LeftOut& node);

// Logs the processes that the round waits for after success.
void log_waiting(const Log& log, const LeftoverList& leftovers,
                 std::chrono::milliseconds time_left);

// Logs one message per kind of leftover process.
void log_leftovers(const Log& log, const Leftovers& leftovers);

// Why this node cannot run another round (it has an unkillable process). Empty if it can.
std::string unusable_reason(const Leftovers& leftovers);

}  // namespace drun::agent
