// What etcd's answers mean: who leads, and what was lost.
#include <algorithm>
#include <utility>

#include "rendezvous/etcd/campaign_turn.h"

namespace drun::rendezvous::etcd {
namespace {

using Phase = CampaignPhase;

constexpr std::chrono::seconds kMostLease{60};
// Claims are this far apart on average: of the agents that find no leader, those whose turn comes
// within a round trip to etcd after the first one claim in vain.
constexpr std::chrono::milliseconds kClaimInterval{2};

}  // namespace

void CampaignTurn::take(const CampaignState::Asked& asked, const Leased& leased) {
  if (leased.ttl.count() == 0) return take_refusal(asked.errand);
  const CampaignState::Held held{leased.lease, asked.at};
  const bool is_new = asked.errand == Errand::LeaseLead || asked.errand == Errand::LeaseKeep;
  if (!is_in(Phase::Claiming) && !is_in(Phase::Leading)) {
    if (is_new) revoke(leased.lease);
    return;
  }
  switch (asked.errand) {
    case Errand::LeaseLead:
      if (!is_in(Phase::Claiming)) return revoke(leased.lease);
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
  if (!state_.to_revoke.empty()) state_.to_revoke.erase(state_.to_revoke.begin());
  if (is_in(Phase::Over) && state_.to_revoke.empty()) return close();
  if (is_in(Phase::Vacant) && !state_.claim_at) state_.next_look = now_;
}

void CampaignTurn::revoke(Lease lease) {
  const auto& all = state_.to_revoke;
  if (std::find(all.begin(), all.end(), lease) == all.end()) state_.to_revoke.push_back(lease);
}

// Both leases of a claim that was not won, or of a job that is over.
void CampaignTurn::revoke_held() {
  for (auto* held : {&state_.lead_lease, &state_.keep_lease}) {
    if (*held) revoke((*held)->lease);
  }
  if (is_in(Phase::Leading)) return;  // the clock of the lead is still needed
  state_.lead_lease.reset();
  state_.keep_lease.reset();
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
    case Errand::Claim:  // one of the two is gone
      revoke_held();
      break;
    case Errand::Revoke:
      return take({}, Revoked());
    case Errand::Clear:
      return cleared();
    case Errand::Look:
    case Errand::LeaseLead:
    case Errand::LeaseKeep:
      break;
  }
  state_.retry_at = now_ + state_.spec.lease / 50;
}

void CampaignTurn::take(const CampaignState::Asked& asked, const Seen& seen) {
  if (asked.errand == Errand::Clear) return cleared();
  if (is_in(Phase::Over)) return;
  if (!notice_revision(asked, seen.sight.revision)) return;
  state_.may_watch = true;
  if (!is_in(Phase::Leading)) return observe(seen.sight);
  check_key(seen.sight);
  if (asked.errand == Errand::Store && is_in(Phase::Leading)) stored(asked, seen);
}

void CampaignTurn::cleared() {
  state_.led_since = 0;
  if (state_.to_revoke.empty()) close();
}

// False: the watch has reported later changes since this was asked, so it is out of date.
bool CampaignTurn::notice_revision(const CampaignState::Asked& asked, Revision revision) {
  const Revision before = state_.revision;
  if (revision < before && asked.number <= state_.reported_after) {
    state_.next_look = now_;
    return false;
  }
  state_.revision = revision;
  if (revision >= before) return true;
  // Whoever led may not have noticed yet; its clock may be slow.
  state_.claim_after = now_ + state_.spec.lease * 5 / 4;
  log(LogLevel::Warning, "etcd at " + state_.spec.place + " has forgotten what it knew (revision " +
                             std::to_string(revision) + " after " + std::to_string(before) + ")");
  return true;
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
    state_.claim_at.reset();
    revoke(sight.leader->lease);
    return;
  }
  state_.term = std::max(state_.term, leader->term);
  // The other leader has put the state under a lease of its own.
  if (state_.old_keep != 0) revoke(std::exchange(state_.old_keep, 0));
  follow(*leader);
}

void CampaignTurn::follow(const LeaderRecord& leader) {
  const bool is_same = is_in(Phase::Following) && state_.leader == leader;
  state_.phase = Phase::Following;
  state_.leader = leader;
  state_.claim_at.reset();
  revoke_held();
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
  if (!is_in(Phase::Vacant) || !state_.spec.stands) return;
  if (state_.claim_at && now_ >= *state_.claim_at && now_ >= state_.claim_after) {
    state_.claim_at.reset();
    state_.phase = Phase::Claiming;
    return;
  }
  if (!state_.claim_at) {
    const auto spread = std::min<std::chrono::milliseconds>(kClaimInterval * state_.spec.agents,
                                                            state_.spec.lease / 4);
    state_.claim_at = now_ + random_up_to(spread);
  }
  state_.claim_at = std::max(*state_.claim_at, state_.claim_after);
  state_.next_look = *state_.claim_at;
}

void CampaignTurn::win(const Sight& sight) {
  // The claim has put the state under the new lease.
  if (state_.old_keep != 0) revoke(std::exchange(state_.old_keep, 0));
  state_.phase = Phase::Leading;
  state_.led_since = sight.leader->created;
  // The answer was too long on its way, or etcd has forgotten who led before.
  if (!is_leading(state_, now_) || now_ < state_.claim_after) {
    state_.phase = Phase::Vacant;
    revoke(state_.lead_lease->lease);
    state_.lead_lease.reset();
    if (state_.keep_lease) state_.old_keep = state_.keep_lease->lease;
    state_.keep_lease.reset();
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
  if (state_.lead_lease) revoke(state_.lead_lease->lease);
  if (state_.keep_lease) state_.old_keep = state_.keep_lease->lease;
  state_.lead_lease.reset();
  state_.keep_lease.reset();
  state_.led_since = 0;
  state_.leader.reset();
  state_.next_look = now_;
  actions_.emplace_back(LeadLost{reason});
  actions_.emplace_back(Vacant{});
}

}  // namespace drun::rendezvous::etcd
