// Control messages for tests: one of each kind with every field filled, or random ones.
#pragma once

#include <chrono>
#include <random>
#include <vector>

#include "agent/stacks/evidence.h"
#include "rendezvous/job/census.h"
#include "rendezvous/protocol/control_message.h"

namespace drun::test {

// 2026-11-21 13:03:07.123456 UTC
inline constexpr WallTime kSomeTime{std::chrono::microseconds(1795266187123456)};

Failure full_failure(int rank);
agent::Evidence full_evidence();
JobTimes full_times();
SlowRank slow_rank();
Census full_census();

std::vector<rendezvous::MemberMessage> member_messages();
std::vector<rendezvous::CoordinatorMessage> coordinator_messages();

}  // namespace drun::test
