#include "rendezvous/leader/etcd_election.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/text.h"
#include "rendezvous/protocol/membership_text.h"

namespace drun::rendezvous::etcd {
namespace {

using Phase = CampaignPhase;
using Milliseconds = std::chrono::milliseconds;

// Fractions of the lease.
Milliseconds lease_of(const CampaignState& state) { return state.spec.lease; }
// Allows for a faster clock of etcd, and for a leader that notices the end late.
Milliseconds lead_length(const CampaignState& state) { return lease_of(state) * 4 / 5; }
Milliseconds renewal(const CampaignState& state) { return lease_of(state) / 6; }
// An answer after this time is useless.
Milliseconds patience(const CampaignState& state) { return lease_of(state) / 4; }
// A claim with an older lease would leave too little time to lead.
Milliseconds lease_use(const CampaignState& state) { return lease_of(state) / 2; }

constexpr Milliseconds kMostBackOff{1000};
// The job is over: how long its agent waits for etcd to record that.
constexpr Milliseconds kLastCall{500};
constexpr std::chrono::seconds kComplaintInterval{10};

Milliseconds look_interval(const CampaignState& state, Time now) {
  if (state.phase == Phase::Leading) return lease_of(state) / 2;
  if (state.is_watching) return lease_of(state) * 12;
  const bool is_calm = state.phase == Phase::Following && now >= state.doubt_until;
  return lease_of(state) / (is_calm ? 4 : 20);
}

// All endpoints are tried without a pause, then again after one.
Milliseconds back_off(const CampaignState& state) {
  if (state.failures % state.spec.endpoint_count != 0) return Milliseconds(1);
  if (state.phase == Phase::Leading) return lease_of(state) / 50;
  const int round = std::min(state.failures / state.spec.endpoint_count, 10);
  return std::min(lease_of(state) / 50 * (1 << round), kMostBackOff);
}

// Without a watch, looks take its place; a server that does not support watches is not asked often.
constexpr std::chrono::seconds kMostWatchBackOff{60};
constexpr int kMostDoublings = 10;
Milliseconds watch_back_off(const CampaignState& state) {
  const int doublings = std::min(state.watch_failures, kMostDoublings);
  return std::min<Milliseconds>(lease_of(state) / 10 * (1 << doublings), kMostWatchBackOff);
}

std::optional<Time> vacant_due(const CampaignState& state) {
  std::optional<Time> due;
  if (state.may_watch && !state.is_watch_wanted) due = state.watch_retry_at;
  if (state.asked) return due;
  const Time ask_at =
      state.to_revoke.empty() ? std::max(state.next_look, state.retry_at) : state.retry_at;
  return due ? std::min(*due, ask_at) : ask_at;
}

Time leader_due(const CampaignState& state) {
  if (!state.is_stored || !state.keep_lease || !state.to_revoke.empty()) return state.retry_at;
  return std::max(std::min({state.next_renewal, state.next_keep, state.next_look}), state.retry_at);
}

Time lead_until(const CampaignState& state) {
  return state.lead_lease ? state.lead_lease->at + lead_length(state) : Time::min();
}

constexpr std::chrono::seconds kMostLease{60};
// Claims are this far apart on average: of the agents that find no leader, those whose turn is
// within a round trip to etcd after the first one fail.
constexpr std::chrono::milliseconds kClaimInterval{2};

}  // namespace

// One step of the campaign's state machine. Collects the actions that the event causes.
class CampaignTurn {
 public:
  CampaignTurn(CampaignState& state, Time now) : state_(state), now_(now) {}

  void handle(const EtcdAnswered& answered) {
    if (!state_.asked || state_.asked->number != answered.number) return;
    const CampaignState::Asked asked = *std::exchange(state_.asked, std::nullopt);
    state_.failures = 0;
    if (std::exchange(state_.is_silent, false)) {
      set_trouble("");
      if (is_in(Phase::Leading))
        log(LogLevel::Info, "etcd at " + state_.spec.place + " answers again");
    }
    std::visit([&](const auto& answer) { take(asked, answer); }, answered.answer);
  }

  void handle(const EtcdFailed& failed) {
    if (!state_.asked || state_.asked->number != failed.number) return;
    const CampaignState::Asked asked = *std::exchange(state_.asked, std::nullopt);
    if (failed.failed.is_refused) return take_refusal(asked.errand);
    ++state_.failures;
    // All endpoints have failed to revoke it, twice: it ends by its time to live.
    if (asked.errand == Errand::Revoke && state_.failures >= 2 * state_.spec.endpoint_count)
      state_.to_revoke.erase(state_.to_revoke.begin());
    state_.retry_at = now_ + back_off(state_);
    if (asked.errand == Errand::Look) state_.next_look = state_.retry_at;
    if (is_in(Phase::Over)) return close();
    if (state_.failures >= state_.spec.endpoint_count) complain(failed.failed);
  }

  void complain(const Failed& failed) {
    set_trouble(failed.reason);
    if (std::exchange(state_.is_silent, true) && now_ < state_.next_complaint) return;
    state_.next_complaint = now_ + kComplaintInterval;
    if (!is_in(Phase::Leading)) return;
    const auto left = std::chrono::duration_cast<Milliseconds>(lead_until(state_) - now_);
    log(LogLevel::Warning, "no answer from etcd at " + state_.spec.place + " (" + failed.reason +
                               "): this node coordinates the job for " +
                               duration_text(std::max(left, Milliseconds(0))) + " more without it");
  }

  void set_trouble(std::string reason) {
    if (reason == state_.trouble) return;
    state_.trouble = std::move(reason);
    actions_.emplace_back(LeaderTrouble{state_.trouble});
  }

  Milliseconds random_up_to(Milliseconds most) {
    // splitmix64, seeded with the agent's instance
    std::uint64_t mixed = state_.random += 0x9e3779b97f4a7c15U;
    mixed = (mixed ^ mixed >> 30U) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ mixed >> 27U) * 0x94d049bb133111ebU;
    mixed ^= mixed >> 31U;
    const auto count = static_cast<std::uint64_t>(std::max<Milliseconds::rep>(most.count(), 0));
    return Milliseconds(static_cast<Milliseconds::rep>(mixed % (count + 1)));
  }

  void handle(const WatchReported& report) {
    if (!state_.is_watch_wanted || report.number != state_.last_watch) return;
    state_.is_watching = true;
    const WatchMessage& message = report.message;
    // A look at this revision or a later one has already seen the change.
    if (!message.is_change || message.revision <= state_.revision) return;
    state_.revision = message.revision;
    state_.reported_after = state_.last_number;
    if (!message.leader) {
      if (!is_in(Phase::Claiming)) nobody_leads();
      return;
    }
    const std::optional<LeaderRecord> leader = leader_of(message.leader->value);
    if (!leader || leader->instance == state_.spec.instance) {
      state_.next_look = now_;
      return;
    }
    state_.term = std::max(state_.term, leader->term);
    set_trouble("");
    follow(*leader);
  }

  void handle(const WatchEnded& ended) {
    if (!state_.is_watch_wanted || ended.number != state_.last_watch) return;
    if (now_ - state_.watch_began > lease_of(state_)) state_.watch_failures = 0;
    state_.watch_retry_at = now_ + watch_back_off(state_) + random_up_to(watch_back_off(state_));
    ++state_.watch_failures;
    state_.is_watch_wanted = state_.is_watching = state_.may_watch = false;
    // Random, because an etcd that was restarted has ended the watches of all agents.
    state_.next_look = std::min(state_.next_look, now_ + random_up_to(lease_of(state_) / 4));
  }

  void stop_watching() {
    if (std::exchange(state_.is_watch_wanted, false)) actions_.emplace_back(StopWatching{});
    state_.is_watching = false;
  }

  // Agents that do not lead watch the leader's key, from the revision of their last look on.
  void keep_watch() {
    if (is_in(Phase::Leading) || is_in(Phase::Over)) return stop_watching();
    if (state_.is_watch_wanted || !state_.may_watch || now_ < state_.watch_retry_at) return;
    state_.is_watch_wanted = true;
    state_.watch_began = now_;
    actions_.emplace_back(WatchLeader{++state_.last_watch, state_.revision + 1});
  }

  void handle(const RecordWanted& wanted) {
    if (!is_in(Phase::Leading)) return;
    state_.is_stored = false;
    state_.wanted = wanted.record;
  }

  void handle(const LeaderDoubted&) {
    if (!is_in(Phase::Following)) return;
    state_.doubt_until = now_ + lease_of(state_) * 3 / 2;
    const Milliseconds soon =
        state_.is_watching ? random_up_to(lease_of(state_) / 4) : look_interval(state_, now_);
    state_.next_look = std::min(state_.next_look, now_ + soon);
  }

  void handle(const Resign&) {
    if (is_in(Phase::Over)) return;
    const bool led = is_leading(state_, now_);
    // The state stays for the next leader, under its lease.
    if (led)
      state_.to_revoke.insert(state_.to_revoke.begin(), state_.lead_lease->lease);
    else
      revoke_held();
    state_.phase = Phase::Over;
    state_.led_since = 0;
    state_.asked.reset();
    state_.retry_at = now_;
    if (state_.to_revoke.empty()) close();
  }

  void handle(const JobOver&) {
    if (is_in(Phase::Over)) return;
    const bool led = is_leading(state_, now_);
    if (led || is_in(Phase::Claiming)) revoke_held();
    if (!led) state_.led_since = 0;
    state_.phase = Phase::Over;
    state_.asked.reset();
    state_.retry_at = now_;
    if (!led && state_.to_revoke.empty()) close();
  }

  void close() {
    state_.phase = Phase::Over;
    state_.led_since = 0;
    state_.to_revoke.clear();
    state_.asked.reset();
    actions_.emplace_back(Closed{});
  }

  // Called after each event.
  void settle() {
    if (is_in(Phase::Leading) && !is_leading(state_, now_))
      lose("etcd at " + state_.spec.place + " has not renewed its lease for " +
           duration_text(lead_length(state_)));
    if (!state_.asked && now_ >= state_.retry_at) ask_next();
    keep_watch();
  }

  void ask_next() {
    switch (state_.phase) {
      case Phase::Vacant:
      case Phase::Following:
        if (!state_.to_revoke.empty()) return ask(Errand::Revoke, Revoke{state_.to_revoke.front()});
        if (now_ >= state_.next_look) ask(Errand::Look, Look{});
        return;
      case Phase::Claiming:
        return ask_to_lead();
      case Phase::Leading:
        return ask_as_leader();
      case Phase::Over:
        if (state_.led_since != 0) return ask(Errand::Clear, Clear{state_.led_since});
        if (!state_.to_revoke.empty()) ask(Errand::Revoke, Revoke{state_.to_revoke.front()});
        return;
    }
  }

  void ask_to_lead() {
    // The state's lease first: the time of the leader's lease runs from the request.
    if (!state_.keep_lease) return ask(Errand::LeaseKeep, Grant{state_.spec.keep});
    if (state_.lead_lease && now_ - state_.lead_lease->at >= lease_use(state_))
      state_.lead_lease.reset();
    if (!state_.lead_lease) return ask(Errand::LeaseLead, Grant{state_.spec.lease});
    state_.own_term = state_.term + 1;
    ask(Errand::Claim, Claim{.leader = text_of(LeaderRecord{state_.spec.endpoint, state_.own_term,
                                                            state_.spec.instance}),
                             .leader_lease = state_.lead_lease->lease,
                             .state = text_of(StateRecord{state_.own_term, state_.record}),
                             .state_lease = state_.keep_lease->lease,
                             .state_changed = state_.state_changed});
  }

  void ask_as_leader() {
    if (now_ >= state_.next_renewal) {
      state_.next_renewal = now_ + renewal(state_);
      return ask(Errand::RenewLead, Renew{state_.lead_lease->lease});
    }
    if (!state_.keep_lease) return ask(Errand::LeaseKeep, Grant{state_.spec.keep});
    if (!state_.is_stored)
      return ask(Errand::Store, Store{.led_since = state_.led_since,
                                      .state = text_of(StateRecord{state_.own_term, state_.wanted}),
                                      .state_lease = state_.keep_lease->lease,
                                      .state_changed = state_.state_changed});
    if (now_ >= state_.next_keep) {
      state_.next_keep = now_ + state_.spec.keep / 6;
      return ask(Errand::RenewKeep, Renew{state_.keep_lease->lease});
    }
    if (!state_.to_revoke.empty()) return ask(Errand::Revoke, Revoke{state_.to_revoke.front()});
    if (now_ >= state_.next_look) ask(Errand::Look, Look{});
  }

  void ask(Errand errand, Call call) {
    state_.asked = CampaignState::Asked{++state_.last_number, errand, now_, state_.wanted};
    if (errand == Errand::Look) {
      const Milliseconds interval = look_interval(state_, now_);
      state_.next_look =
          now_ + interval + random_up_to(is_in(Phase::Leading) ? Milliseconds(0) : interval / 4);
    }
    const Milliseconds most = is_in(Phase::Over) ? kLastCall : patience(state_);
    actions_.emplace_back(
        AskEtcd{state_.last_number, std::move(call), std::min(most, patience(state_))});
  }

  // --- Answers: which agent leads, and what was lost

  void take(const CampaignState::Asked& asked, const Leased& leased) {
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
        if (is_in(Phase::Leading) && state_.lead_lease->lease == held.lease)
          state_.lead_lease = held;
        return;
      case Errand::LeaseKeep:
        state_.keep_lease = held;
        state_.next_keep = asked.at + state_.spec.keep / 6;
        return;
      default:
        return;
    }
  }

  void take(const CampaignState::Asked&, const Revoked&) {
    if (!state_.to_revoke.empty()) state_.to_revoke.erase(state_.to_revoke.begin());
    if (is_in(Phase::Over) && state_.to_revoke.empty()) return close();
    if (is_in(Phase::Vacant) && !state_.claim_at) state_.next_look = now_;
  }

  void revoke(Lease lease) {
    const auto& all = state_.to_revoke;
    if (std::find(all.begin(), all.end(), lease) == all.end()) state_.to_revoke.push_back(lease);
  }

  // Revokes both leases, after a lost claim or at the end of the job.
  void revoke_held() {
    for (auto* held : {&state_.lead_lease, &state_.keep_lease}) {
      if (*held) revoke((*held)->lease);
    }
    if (is_in(Phase::Leading)) return;  // its lease times are still needed
    state_.lead_lease.reset();
    state_.keep_lease.reset();
  }

  // etcd has no such lease, or grants none.
  void take_refusal(Errand errand) {
    switch (errand) {
      case Errand::RenewLead:
        if (is_in(Phase::Leading)) lose("its lease in etcd is gone");
        return;
      case Errand::RenewKeep:
      case Errand::Store:
        state_.keep_lease.reset();
        state_.is_stored = false;
        break;
      case Errand::Claim:  // one of the two leases is gone
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

  void take(const CampaignState::Asked& asked, const Seen& seen) {
    if (asked.errand == Errand::Clear) return cleared();
    if (is_in(Phase::Over)) return;
    if (!notice_revision(asked, seen.sight.revision)) return;
    state_.may_watch = true;
    if (!is_in(Phase::Leading)) return observe(seen.sight);
    check_key(seen.sight);
    if (asked.errand == Errand::Store && is_leading(state_, now_)) stored(asked, seen);
  }

  void cleared() {
    state_.led_since = 0;
    if (state_.to_revoke.empty()) close();
  }

  // False: the watch has reported later changes since this was asked, so it is out of date.
  bool notice_revision(const CampaignState::Asked& asked, Revision revision) {
    const Revision before = state_.revision;
    if (revision < before && asked.number <= state_.reported_after) {
      state_.next_look = now_;
      return false;
    }
    state_.revision = revision;
    if (revision >= before) return true;
    // The former leader may not have noticed yet; its clock may be slow.
    state_.claim_after = now_ + state_.spec.lease * 5 / 4;
    log(LogLevel::Warning, "etcd at " + state_.spec.place +
                               " has forgotten what it knew (revision " + std::to_string(revision) +
                               " after " + std::to_string(before) + ")");
    return true;
  }

  // Called unless this agent leads and knows it.
  void observe(const Sight& sight) {
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
    // The other leader has attached the state to its lease.
    if (state_.old_keep != 0) revoke(std::exchange(state_.old_keep, 0));
    follow(*leader);
  }

  void follow(const LeaderRecord& leader) {
    const bool is_same = is_in(Phase::Following) && state_.leader == leader;
    state_.phase = Phase::Following;
    state_.leader = leader;
    state_.claim_at.reset();
    revoke_held();
    if (is_same) return;
    state_.doubt_until = now_;
    actions_.emplace_back(Following{leader.endpoint, leader.term});
  }

  void nobody_leads() {
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

  void win(const Sight& sight) {
    // The claim has attached the state to the new lease.
    if (state_.old_keep != 0) revoke(std::exchange(state_.old_keep, 0));
    state_.phase = Phase::Leading;
    state_.led_since = sight.leader->created;
    // The answer arrived too late, or etcd has lost the earlier leader.
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

  void check_key(const Sight& sight) {
    state_.state_changed = sight.state ? sight.state->changed : 0;
    if (sight.leader && sight.leader->created == state_.led_since) return;
    const auto leader = sight.leader ? leader_of(sight.leader->value) : std::nullopt;
    lose(leader ? "etcd names " + to_string(leader->endpoint) : "its key in etcd is gone");
  }

  // Only the leader writes the state. If it differs from the last one seen, an answer was lost.
  void stored(const CampaignState::Asked& asked, const Seen& seen) {
    const bool is_there =
        seen.sight.state &&
        seen.sight.state->value == text_of(StateRecord{state_.own_term, asked.record});
    if (!seen.is_done && !is_there) return;
    state_.record = asked.record;
    if (state_.wanted == asked.record) state_.is_stored = true;
    actions_.emplace_back(RoundKnown{asked.record.rounds});
  }

  void lose(const std::string& reason) {
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

  void handle(const CampaignTick&) {}
  std::vector<CampaignAction> take_actions() { return std::move(actions_); }
  bool is_in(CampaignPhase phase) const { return state_.phase == phase; }

  void log(LogLevel level, std::string text) {
    actions_.emplace_back(LogLine{level, std::move(text)});
  }

 private:
  CampaignState& state_;
  const Time now_;
  std::vector<CampaignAction> actions_;
};

bool is_leading(const CampaignState& state, Time now) {
  return state.phase == Phase::Leading && now < lead_until(state);
}

CampaignState open_campaign(CampaignSpec spec, Time now) {
  assert(spec.endpoint_count > 0 && spec.lease.count() > 0);
  CampaignState state;
  state.spec = std::move(spec);
  state.retry_at = state.next_look = state.doubt_until = state.claim_after = now;
  state.next_complaint = state.watch_began = state.watch_retry_at = now;
  state.random = state.spec.instance;
  return state;
}

std::vector<CampaignAction> step(CampaignState& state, const CampaignEvent& event, Time now) {
  CampaignTurn turn(state, now);
  std::visit([&turn](const auto& happened) { turn.handle(happened); }, event);
  turn.settle();
  return turn.take_actions();
}

std::optional<Time> deadline(const CampaignState& state) {
  switch (state.phase) {
    case Phase::Vacant:
    case Phase::Following:
      return vacant_due(state);
    case Phase::Claiming:
      return state.asked ? std::nullopt : std::optional(state.retry_at);
    case Phase::Leading:
      return state.asked ? lead_until(state) : std::min(lead_until(state), leader_due(state));
    case Phase::Over:
      if (state.asked || (state.led_since == 0 && state.to_revoke.empty())) return std::nullopt;
      return state.retry_at;
  }
  return std::nullopt;
}

}  // namespace drun::rendezvous::etcd
