// core. What passes from one coordinator to the next: the records that members keep for a later
// coordinator, the state that a new one takes over from its members and from the former
// coordinator, and the fence that keeps round numbers unique.
//
// State:   the highest reported number counts, so that round numbers are never used twice and
//          restarts stay used up. Excluded nodes stay excluded, and losses stay counted.
// Failure: each member reports its first failure in the last world with its age. The earliest one
//          is the last failure of the job (`drun status`), until a round of this coordinator fails.
// Check:   the preflight check is repeated until a node of the world was in a world of the program.
// World:   the first one begins immediately once as many nodes have joined as the last world had,
//          not counting its coordinator (unless this agent was that coordinator and leads again).
//          Otherwise it begins after the last call, or after the heartbeat timeout if that is
//          shorter.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rendezvous/coordinator/round_state.h"
#include "rendezvous/job/job_record.h"

namespace drun::rendezvous {

// --- For a later coordinator. These do nothing unless another one can take over.

// An agent was lost or excluded.
void record(RoundState& state, const AgentId& id);
// Sends the changed records to all members, in one message. Nothing if there are none.
void send_records(RoundStep& step);
// Called after each event: as send_records, but not more often than every 100 ms.
void send_due_records(RoundStep& step);
// A later coordinator must count these restarts, too. Spares report no past, so the members get the
// number.
void tell_restarts(RoundStep& step);
// All records, for a new member.
void tell_records(RoundStep& step, Peer peer);

// --- From an earlier coordinator

// Returns the agents that are now known to be excluded and were not before.
std::vector<AgentId> inherit(RoundState& state, const Past& past, Time now);

// From the former coordinator's record. Members report the times of the restarts; until then, the
// restarts count as recent.
void inherit(RoundState& state, const RoundRecord& record, Time now);

// For the next coordinator. Includes the number of the round that is about to begin.
RoundRecord record_of(const RoundState& state);

// The record of an agent, for the members.
NodeRecord record_of(const RoundState& state, const AgentId& id);

// Whether all nodes that can be expected after a takeover are in line.
bool has_survivors(const RoundState& state);

// How long the first world waits for more nodes than the minimum.
Time::duration last_call_of(const RoundState& state);

// --- The fence

// Delays the actions of an elected coordinator's state machine (round.h) that start a round
// until every later leader is sure to know the number of that round. No two leaders therefore use
// the same number.
//
//   election won  --> begin   returns a new state machine; drops actions held for an earlier lead
//   ClearStore of a world with an unrecorded number: this action and all later ones are held, until
//   a StepDown, which drops them
//   round known   --> know    returns the held actions, in order
//   election lost --> lose    drops them
class RoundFence {
 public:
  RoundState begin(RoundSpec spec, std::uint64_t term, const RoundRecord& before, Time now);

  // Do: apply it now. Hold: the fence keeps it. Ask: the fence keeps it, and the caller must have
  // the round recorded.
  enum class Verdict { Do, Hold, Ask };
  Verdict judge(const RoundState& state, const RoundAction& action);
  // Only the recorded number counts, even if members have reported later rounds since.
  std::vector<RoundAction> know(int rounds);

  // Kept: the outcome is being sent, which needs no lead because no round follows. Over: no member
  // is left that could learn of an unrecorded round. Lost: this agent no longer coordinates.
  enum class Loss { Kept, Over, Lost };
  Loss lose(const RoundState& state);

 private:
  int known_rounds_ = 0;
  int asked_rounds_ = 0;           // up to the last world that is held
  std::optional<int> led_rounds_;  // when it last lost the lead
  std::vector<RoundAction> held_;
};

// Whether the job is ending, so that the coordinator still acts without the lead.
bool tells_the_end(const RoundState& state);

}  // namespace drun::rendezvous
