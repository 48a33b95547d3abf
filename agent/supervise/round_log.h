// edge: logs. What an agent says of its rounds while they go by.
// Thread: the io_context's only.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "agent/process/leftovers.h"
#include "agent/spec.h"
#include "rendezvous/base/log.h"
#include "rendezvous/job/world.h"
#include "rendezvous/protocol/control_message.h"

namespace drun::agent {

// That workers are started, again or among other nodes than before.
void log_world(const Log& log, const AgentSpec& spec, const std::optional<World>& before,
               const World& world);

// With several nodes only the program's first world tells how many ranks there are; one node says
// it for all.
void warn_of_ranks_not_there(const Log& log, const AgentSpec& spec,
                             const std::optional<World>& before, const World& world);

// A worker of this node's.
void log_failure(const Log& log, const AgentSpec& spec, const World& world, const Failure& failure);

// The evidence of a hang, for the console: one warning of several lines, at most 100.
void log_hang(const Log& log, const rendezvous::HangFound& found);
void log_left_out(const Log& log, const LeftOut& node);

// What the round waits for, after success.
void log_waiting(const Log& log, const LeftoverList& leftovers,
                 std::chrono::milliseconds time_left);

// One message for each kind of leftover process.
void log_leftovers(const Log& log, const Leftovers& leftovers);

// Why this node cannot run another round: it has an unkillable process. Empty if it can.
std::string unusable_reason(const Leftovers& leftovers);

}  // namespace drun::agent
