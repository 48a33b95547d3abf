// core. One census of the nodes of a job: who was asked, who has answered, who wants to know. Part
// of the coordinator's machine (round.h).
//
//             asked                all answered, gone, or time is up
//   closed -----------> open ------------------------------------------> closed
//
// Shape:   one at a time: who asks during one, or just after it, gets its result. Answers to
//          another number and of who was not asked are dropped.
// Cost:    O(1) an answer, a message to each node and back; no more than two a second.
// Owner:   a value.   Thread: any, one at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "rendezvous/census.h"
#include "rendezvous/round/looking.h"

namespace drun::rendezvous {

constexpr std::chrono::milliseconds kCensusFresh{500};

struct CensusTaking {
  using Time = std::chrono::steady_clock::time_point;

  std::uint64_t number = 0;  // of the latest
  bool is_open = false;
  Time answer_by{};
  std::unordered_set<std::uint64_t> missing{};               // peers asked and not answered
  std::unordered_map<std::uint64_t, NodeSummary> answers{};  // by peer
  std::vector<Asker> askers{};
  std::shared_ptr<const CoordinatorMessage> last{};  // CensusTold, for who asks until then
  Time last_until{};
};

}  // namespace drun::rendezvous
