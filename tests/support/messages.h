// Control messages for tests: one of each kind, with every field filled, or random ones.
#pragma once

#include <random>
#include <vector>

#include "rendezvous/control_message.h"

namespace drun::test {

Failure full_failure(int rank);
Evidence full_evidence();
Census full_census();

std::vector<rendezvous::MemberMessage> member_messages();
std::vector<rendezvous::CoordinatorMessage> coordinator_messages();

}  // namespace drun::test
