#include "rendezvous/member/memory.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace drun::rendezvous {
namespace {

constexpr std::size_t kMostRestartsKept = std::size_t{1} << 16;

}  // namespace

void remember(Memory& memory, const World& world, std::string coordinator, Time now) {
  memory.rounds = std::max(memory.rounds, world.round + 1);
  memory.coordinator = std::move(coordinator);
  remember_restarts(memory, world.restarts, now);
}

void remember_restarts(Memory& memory, int restarts, Time now) {
  const std::size_t known =
      std::min(static_cast<std::size_t>(std::max(restarts, 0)), kMostRestartsKept);
  while (memory.restarts.size() < known) memory.restarts.push_back(now);
}

Past past_of(const Memory& memory, const World& world, Time first_world, Time now) {
  const auto age = [now](Time then) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(now - then);
  };
  Past past{.rounds = memory.rounds,
            .node_count = world.node_count,
            .age = age(first_world),
            .coordinator = memory.coordinator,
            .restarts = static_cast<int>(memory.restarts.size()),
            .records = memory.records};
  const std::size_t told = std::min(memory.restarts.size(), kMostRestartsTold);
  for (std::size_t i = memory.restarts.size() - told; i < memory.restarts.size(); ++i)
    past.restart_ages.push_back(age(memory.restarts[i]));
  return past;
}

}  // namespace drun::rendezvous
