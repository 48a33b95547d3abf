// core. The memory of a member of an elastic job about the rounds, for a later coordinator
// (docs/internals/election.md).
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "rendezvous/job/job_record.h"
#include "rendezvous/job/world.h"

namespace drun::rendezvous {

using Time = std::chrono::steady_clock::time_point;

struct Memory {
  int rounds = 0;
  std::string coordinator;  // of the last one
  std::vector<Time> restarts;
  std::vector<NodeRecord> records;
};

void remember(Memory& memory, const World& world, std::string coordinator, Time now);
// From now on there are at least that many restarts.
void remember_restarts(Memory& memory, int restarts, Time now);
Past past_of(const Memory& memory, const World& world, Time first_world, Time now);

}  // namespace drun::rendezvous
