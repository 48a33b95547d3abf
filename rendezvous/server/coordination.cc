#include "rendezvous/server/coordination.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "rendezvous/coordinator/membership.h"
#include "rendezvous/coordinator/round.h"

namespace drun::rendezvous {
namespace {

// How soon an overdue tick is tried again while this agent does not lead.
constexpr std::chrono::milliseconds kLeadRetry{100};

}  // namespace

Coordination::Coordination(Host& host, RoundSpec spec, Endpoint self, LeaderElection* election)
    : host_(host),
      spec_(std::move(spec)),
      self_(std::move(self)),
      election_(election),
      state_(open_round(spec_, host_.now())),
      is_leading_(election == nullptr) {
  if (is_leading_) arm_timer();
}

void Coordination::stop() {
  is_stopped_ = true;
  events_.clear();
}

// --- Members

void Coordination::arrived(Peer peer, const std::string& address, MemberMessage message) {
  if (is_leading_) return handle(PeerArrived{peer, address, std::move(message)});
  stand_by(peer, address, std::get_if<Hello>(&message));
}

void Coordination::said(Peer peer, const std::string& address, MemberMessage message) {
  if (is_leading_) return handle(PeerSaid{peer, std::move(message)});
  stand_by(peer, address, std::get_if<Hello>(&message));
}

void Coordination::left(Peer peer, const std::string& reason) {
  lookups_.leave(peer);
  if (is_leading_) handle(PeerLeft{peer, reason});
}

// Another agent leads, or there is no leader yet.
void Coordination::stand_by(Peer peer, const std::string& address, const Hello* hello) {
  if (hello == nullptr || lookups_.has(peer)) return hang_up(peer);
  if (const auto error = objection(state_, *hello)) {
    reply(peer, Refused{with_context(*error, state_.spec.endpoint + " refused this node")});
    return hang_up(peer);
  }
  if (const auto answer = lookups_.ask({peer, *hello, address}))
    reply(peer, *answer);
  else if (hello->lost_term > 0)
    election_->doubt();
  if (!lookups_.has(peer)) hang_up(peer);
}

void Coordination::reply(Peer peer, CoordinatorMessage message) {
  host_.apply(SendTo{peer, std::move(message)});
}

void Coordination::hang_up(Peer peer) {
  lookups_.leave(peer);
  host_.hang_up(peer);
}

// From here on, this agent does not lead.
void Coordination::release_members() {
  is_leading_ = false;
  events_.clear();
  host_.set_timer(std::nullopt);
  host_.release_members();
  state_ = open_round(spec_, host_.now());
}

// --- The round

void Coordination::set_deadline(std::optional<JobDeadline> deadline) {
  deadline_ = std::move(deadline);
  if (is_leading_) handle(DeadlineKnown{deadline_});
}

bool Coordination::coordinator_ended() {
  if (is_stepping_down_) return true;
  if (!is_leading_) return false;
  if (election_ != nullptr && !tells_the_end(state_))
    apply(StepDown{});
  else
    handle(CoordinatorEnded{});
  return true;
}

void Coordination::handle(RoundEvent event) {
  events_.push_back(std::move(event));
  if (!is_turning_) take_turns();
}

void Coordination::take_turns() {
  is_turning_ = true;
  while (!events_.empty() && !is_stopped_ && may_act()) {
    const RoundEvent next = std::move(events_.front());
    events_.pop_front();
    if (election_ != nullptr) state_.has_successor = election_->has_successor();
    for (const RoundAction& action : step(state_, next, host_.now())) {
      if (!must_wait(action)) apply_any(action);
    }
  }
  is_turning_ = false;
  if (!is_stopped_ && is_leading_) arm_timer();
}

bool Coordination::may_act() {
  if (election_ == nullptr || election_->leads() || (is_leading_ && tells_the_end(state_)))
    return true;
  events_.clear();
  return false;
}

bool Coordination::must_wait(const RoundAction& action) {
  if (election_ == nullptr) return false;
  const RoundFence::Verdict verdict = fence_.judge(state_, action);
  if (verdict == RoundFence::Verdict::Ask) election_->want_round(record_of(state_));
  return verdict != RoundFence::Verdict::Do;
}

void Coordination::arm_timer() {
  std::optional<Time> wanted = deadline(state_);
  // Without the lead a tick does nothing, so an overdue one must not run again and again until the
  // election has noticed.
  if (wanted && election_ != nullptr && !election_->leads())
    wanted = std::max(*wanted, host_.now() + kLeadRetry);
  host_.set_timer(wanted);
}

void Coordination::apply_any(const RoundAction& action) {
  std::visit([this](const auto& each) { apply(each); }, action);
}

void Coordination::apply(const RoundOver&) {
  if (election_ != nullptr) election_->finish();
  host_.finished();
}

void Coordination::apply(const StepDown&) {
  host_.log(LogLevel::Info, "this node does not coordinate the job any more: it leaves");
  is_stepping_down_ = true;
  release_members();
  election_->resign();
}

// --- News of the election

void Coordination::on_news(const ElectionNews& news) {
  std::visit([this](const auto& each) { hear(each); }, news);
}

void Coordination::hear(const Leading& lead) {
  if (is_leading_) return;  // it still sends the outcome of the job
  state_ = fence_.begin(spec_, lead.term, lead.before, host_.now());
  is_leading_ = true;
  host_.log(lead.before.rounds > 0 ? LogLevel::Warning : LogLevel::Debug,
            "this node coordinates the job from here on, at " + state_.spec.endpoint);
  host_.leader_known(self_, lead.term);
  handle(DeadlineKnown{deadline_});
  for (Newcomer& asking : lookups_.take_all())
    handle(PeerArrived{asking.peer, asking.address, std::move(asking.hello)});
  arm_timer();
}

void Coordination::hear(const LeadLost& lost) {
  const RoundFence::Loss loss = fence_.lose(state_);
  if (loss == RoundFence::Loss::Over) return apply(RoundOver{});
  if (loss == RoundFence::Loss::Kept) return;
  host_.log(LogLevel::Error, "this node does not coordinate the job any more: " + lost.reason);
  release_members();
}

void Coordination::hear(const Following& following) {
  if (is_leading_) return;
  const auto& [leader, term] = following;
  const Follow follow{leader.host, leader.port, term};
  for (const Peer peer : lookups_.know(follow)) {
    reply(peer, follow);
    hang_up(peer);
  }
  host_.log(LogLevel::Debug,
            to_string(leader) + " coordinates the job, term " + std::to_string(term));
  host_.leader_known(leader, term);
}

// Every later leader is sure to know the round, so what RoundFence held back is applied, unless the
// lead has expired meanwhile: LeadLost follows.
void Coordination::hear(const RoundKnown& known) {
  const std::vector<RoundAction> held = fence_.know(known.rounds);
  if (held.empty() || !may_act()) return;
  const bool was_turning = std::exchange(is_turning_, true);
  for (const RoundAction& action : held) apply_any(action);
  if (!was_turning) take_turns();
}

}  // namespace drun::rendezvous
