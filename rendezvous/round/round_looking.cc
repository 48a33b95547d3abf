// Looks at all workers: for `drun stacks`, and into what seems to hang.
#include <algorithm>
#include <utility>

#include "rendezvous/round/hang_verdict.h"
#include "rendezvous/round/roll_call.h"
#include "rendezvous/round/round_turn.h"

namespace drun::rendezvous {
namespace {

using Presence = RoundNode::Presence;

constexpr std::size_t kTextBytes = std::size_t{30} << 10;  // a failure's traceback carries 32 KiB

std::string text_of(const Evidence& evidence) {
  std::string text;
  for (const std::string& line : evidence_lines(evidence, 400)) {
    if (text.size() + line.size() > kTextBytes) return text + "...\n";
    text += line + "\n";
  }
  return text;
}

}  // namespace

void RoundTurn::say(int node, const StacksAsked& asked) {
  Looking& looking = state_.looking;
  const Peer peer = node_at(node).peer;
  const bool has_world =
      state_.phase == RoundPhase::Running || state_.phase == RoundPhase::Stopping;
  if (!has_world || looking.askers.size() >= kMostAskers) {
    const char* reason = has_world ? "too many ask at the same time" : "no workers run";
    return send(peer, StacksTold{asked.question, {.notes = {reason}}});
  }
  looking.askers.push_back({peer, asked.question});
  if (!looking.is_open) look();
}

void RoundTurn::say(int node, const EvidenceGiven& given) {
  if (!is_awaited(state_.looking, {node, given.look})) return;
  const RoundNode& self = node_at(node);
  const int last = self.base_rank + self.hello.local_world_size - 1;
  for (const StackGroup& group : given.evidence.groups) {
    for (const RankRange& range : group.ranks)
      if (range.first < self.base_rank || range.last > last)
        return drop_member(node, kBrokeProtocol);
  }
  take_answer(state_.looking, {node, given.look}, given.evidence);
  conclude_look();
}

void RoundTurn::say(int node, const HangSuspected& suspected) {
  if (!is_current(node, suspected.round) || state_.phase != RoundPhase::Running) return;
  Looking& looking = state_.looking;
  const RoundNode& self = node_at(node);
  if (!looking.suspects.add({node, self.base_rank, self.hello.local_world_size}, suspected.groups))
    return drop_member(node, kBrokeProtocol);
  if (looking.suspects.empty() || looking.is_open || looking.suspects_at) return;
  looking.suspects_at = now_ + std::min(suspected.settle, kMostSettle);
}

void RoundTurn::look() {
  std::map<int, std::string> nodes;
  std::vector<Peer> peers;
  for (int node = 0; node < static_cast<int>(state_.nodes.size()); ++node) {
    if (node_at(node).presence != Presence::Present) continue;
    nodes.emplace(node, name_of(node));
    peers.push_back(node_at(node).peer);
  }
  open_look(state_.looking, std::move(nodes), now_);
  actions_.emplace_back(SendAll{std::move(peers), TellStacks{state_.looking.number}});
}

void RoundTurn::look_tick() {
  Looking& looking = state_.looking;
  if (looking.is_open) return conclude_look();
  if (!looking.suspects_at || now_ < *looking.suspects_at) return;
  looking.suspects_at.reset();
  if (state_.phase == RoundPhase::Running) look();
}

void RoundTurn::look_lost(int node, const std::string& reason) {
  lose_answer(state_.looking, node, reason);
  conclude_look();
}

void RoundTurn::conclude_look() {
  Looking& looking = state_.looking;
  if (!is_complete(looking, now_)) return;
  const Evidence evidence = close_look(looking);
  answer(std::exchange(looking.askers, {}),
         std::make_shared<const CoordinatorMessage>(StacksTold{0, evidence}));
  looking.suspects_at.reset();
  if (!looking.suspects.empty() && state_.phase == RoundPhase::Running) judge_hang(evidence);
  looking.suspects.clear();
}

void RoundTurn::judge_hang(const Evidence& evidence) {
  const Suspects& suspects = state_.looking.suspects;
  const HangVerdict verdict = judge(state_.looking.standings, suspects.ranks());
  if (verdict.culprits.empty())
    return log(LogLevel::Info, "not taken for a hang: " + verdict.words);
  const std::size_t count = count_of(verdict.culprits);
  std::string cause;
  std::size_t told = 0;
  for (const RankRange& range : verdict.culprits) {
    for (int rank = range.first; rank <= range.last; ++rank) {
      // Of one moment the later ranks are left out: with the first of these all the rest would be.
      if (state_.failures.left_out() > 0) break;
      Failure failure = suspects.failure_of(rank);
      failure.round = state_.round;
      auto& how = std::get<Hung>(failure.status).how;
      if (!verdict.words.empty()) how += ", " + verdict.words;
      if (verdict.are_all && count > 1) how += ", as all ranks do";
      if (told == 0) {
        if (count > 1) failure.message = ranks_text(verdict.culprits) + " hang alike";
        failure.traceback = text_of(evidence);
        cause = "rank " + std::to_string(rank) + " on " + name_of(failure.node_rank) + " " +
                to_string(failure.status);
      }
      state_.failures.add(std::move(failure), now_);
      ++told;
    }
  }
  state_.failures.add_left_out(count - told);
  send_all(HangFound{state_.round, cause, evidence});
  stop_round(cause, true);
}

// Nothing of the old world is asked or judged in the new one.
void RoundTurn::end_look() {
  Looking& looking = state_.looking;
  if (looking.is_open) {
    looking.answer_by = now_;
    looking.suspects.clear();
    conclude_look();
  }
  looking.suspects.clear();
  looking.suspects_at.reset();
}

}  // namespace drun::rendezvous
