// What etcd's answers mean: who leads, and what was lost.
#include <algorithm>
#include <utility>

#include "rendezvous/etcd/campaign_turn.h"

namespace drun::rendezvous::etcd {
namespace {

using Phase = CampaignPhase;

constexpr std::chrono::seconds kMostLease{60};

}  // namespace

void CampaignTurn::take(const CampaignState::Asked& asked, const Leased& leased) {
  if (leased.ttl.count() == 0) return take_refusal(asked.errand);
  const CampaignState::Held held{leased.lease, asked.at};
  const bool is_wanted = is_in(Phase::Claiming) || is_in(Phase::Leading);
  if (!is_wanted) return;
  switch (asked.errand) {
    case Errand::LeaseLead:
      if (!is_in(Phase::Claiming)) return;
      state_.lead_lease = held;
      state_.spec.lease = std::min(leased.ttl, kMostLease);  // etcd gives no short ones
      return;
    case Errand::RenewLead:
      if (is_in(Phase::Leading) && state_.lead_lease->lease == held.lease) state_.lead_lease = held;
      return;
    case Errand::LeaseKeep:
      state_.keep_lease = held;
      state_.next_keep = asked.at + state_.spec.keep / 6;
      return;
    default:
      return;
  }
}

void CampaignTurn::take(const CampaignState::Asked&, const Revoked&) {
  if (is_in(Phase::Over)) return close();
  state_.left_over = 0;
  state_.next_look = now_;
}

// There is no such lease, or none is given.
void CampaignTurn::take_refusal(Errand errand) {
  switch (errand) {
    case Errand::RenewLead:
      if (is_in(Phase::Leading)) lose("its lease in etcd is gone");
      return;
    case Errand::RenewKeep:
    case Errand::Store:
      state_.keep_lease.reset();
      state_.is_stored = false;
      break;
    case Errand::Claim:
      state_.lead_lease.reset();
      state_.keep_lease.reset();
      break;
    case Errand::Revoke:
      return take({}, Revoked());
    case Errand::Clear:
      return close();
    case Errand::Look:
    case Errand::LeaseLead:
    case Errand::LeaseKeep:
      break;
  }
  state_.retry_at = now_ + state_.spec.lease / 50;
}

void CampaignTurn::take(const CampaignState::Asked& asked, const Seen& seen) {
  if (asked.errand == Errand::Clear) return close();
  if (is_in(Phase::Over)) return;
  notice_revision(seen.sight.revision);
  if (!is_in(Phase::Leading)) return observe(seen.sight);
  check_key(seen.sight);
  if (asked.errand == Errand::Store && is_in(Phase::Leading)) stored(asked, seen);
}

void CampaignTurn::notice_revision(Revision revision) {
  const Revision before = std::exchange(state_.revision, revision);
  if (revision >= before) return;
  // Whoever led may not have noticed yet; its clock may be slow.
  state_.claim_after = now_ + state_.spec.lease * 5 / 4;
  log(LogLevel::Warning, "etcd at " + state_.spec.place + " has forgotten what it knew (revision " +
                             std::to_string(revision) + " after " + std::to_string(before) + ")");
}

// As one who does not lead, or does not know it yet.
void CampaignTurn::observe(const Sight& sight) {
  state_.state_changed = sight.state ? sight.state->changed : 0;
  const auto left = sight.state ? state_of(sight.state->value) : std::nullopt;
  state_.record = left ? left->rounds : RoundRecord();
  if (left) state_.term = std::max(state_.term, left->term);
  if (!sight.leader) {
    set_trouble("");
    return nobody_leads();
  }
  const std::optional<LeaderRecord> leader = leader_of(sight.leader->value);
  if (!leader) {
    state_.phase = Phase::Vacant;
    return set_trouble("its key for this job holds what no drun of this version wrote");
  }
  set_trouble("");
  const bool is_claimed = state_.lead_lease && state_.lead_lease->lease == sight.leader->lease;
  if (leader->instance == state_.spec.instance) {
    if (is_in(Phase::Claiming) && is_claimed) return win(sight);
    nobody_leads();
    state_.phase = Phase::Vacant;
    state_.left_over = sight.leader->lease;
    return;
  }
  state_.term = std::max(state_.term, leader->term);
  follow(*leader);
}

void CampaignTurn::follow(const LeaderRecord& leader) {
  const bool is_same = is_in(Phase::Following) && state_.leader == leader;
  state_.phase = Phase::Following;
  state_.leader = leader;
  state_.lead_lease.reset();
  state_.keep_lease.reset();
  if (is_same) return;
  state_.doubt_until = now_;
  actions_.emplace_back(Following{leader.endpoint, leader.term});
}

void CampaignTurn::nobody_leads() {
  if (is_in(Phase::Following)) {
    state_.phase = Phase::Vacant;
    state_.leader.reset();
    actions_.emplace_back(Vacant{});
  }
  const bool may_claim = state_.spec.stands && now_ >= state_.claim_after;
  if (is_in(Phase::Vacant) && may_claim) state_.phase = Phase::Claiming;
}

void CampaignTurn::win(const Sight& sight) {
  state_.phase = Phase::Leading;
  state_.led_since = sight.leader->created;
  // The answer was too long on its way, or etcd has forgotten who led before.
  if (!is_leading(state_, now_) || now_ < state_.claim_after) {
    state_.phase = Phase::Vacant;
    state_.left_over = state_.lead_lease->lease;
    state_.lead_lease.reset();
    return;
  }
  state_.term = std::max(state_.term, state_.own_term);
  state_.wanted = state_.record;
  state_.is_stored = true;
  state_.next_renewal = state_.lead_lease->at + state_.spec.lease / 6;
  state_.next_look = now_ + state_.spec.lease / 2;
  actions_.emplace_back(Leading{state_.own_term, state_.record});
}

void CampaignTurn::check_key(const Sight& sight) {
  state_.state_changed = sight.state ? sight.state->changed : 0;
  if (sight.leader && sight.leader->created == state_.led_since) return;
  const auto leader = sight.leader ? leader_of(sight.leader->value) : std::nullopt;
  lose(leader ? "etcd names " + to_string(leader->endpoint) : "its key in etcd is gone");
}

// Who leads alone writes the state. If it is not as it was seen last, an answer was lost.
void CampaignTurn::stored(const CampaignState::Asked& asked, const Seen& seen) {
  const bool is_there = seen.sight.state && seen.sight.state->value ==
                                                text_of(StateRecord{state_.own_term, asked.record});
  if (!seen.is_done && !is_there) return;
  state_.record = asked.record;
  if (state_.wanted == asked.record) state_.is_stored = true;
  actions_.emplace_back(RecordKept{asked.record.rounds});
}

void CampaignTurn::lose(const std::string& reason) {
  state_.phase = Phase::Vacant;
  state_.left_over = state_.lead_lease ? state_.lead_lease->lease : 0;
  state_.lead_lease.reset();
  state_.keep_lease.reset();
  state_.led_since = 0;
  state_.leader.reset();
  state_.next_look = now_;
  actions_.emplace_back(LeadLost{reason});
  actions_.emplace_back(Vacant{});
}

}  // namespace drun::rendezvous::etcd
