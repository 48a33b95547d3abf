// core. One turn of the campaign's machine: the state, the time, and the actions as they come. Only
// campaign.cc (what is asked when) and campaign_sight.cc (what the answers mean) include it.
// Owner:   lives for one step.   Thread: any.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "rendezvous/etcd/campaign.h"

namespace drun::rendezvous::etcd {

// Leading only: when the lead ends, unless it is renewed.
Time lead_until(const CampaignState& state);

class CampaignTurn {
 public:
  CampaignTurn(CampaignState& state, Time now) : state_(state), now_(now) {}

  void handle(const EtcdAnswered& answered);
  void handle(const EtcdFailed& failed);
  void handle(const WatchReported& report);
  void handle(const WatchEnded& ended);
  void handle(const RecordWanted& wanted);
  void handle(const LeaderDoubted&);
  void handle(const Resign&);
  void handle(const JobOver&);
  void handle(const CampaignTick&) {}

  // After the event, whatever it was.
  void settle();

  std::vector<CampaignAction> take_actions() { return std::move(actions_); }

 private:
  // campaign.cc
  void ask_next();
  void ask_to_lead();
  void ask_as_leader();
  void ask(Errand errand, Call call);
  void keep_watch();
  void stop_watching();
  void complain(const Failed& failed);
  std::chrono::milliseconds random_up_to(std::chrono::milliseconds most);
  void set_trouble(std::string reason);
  void close();

  // campaign_sight.cc
  void take(const CampaignState::Asked& asked, const Leased& leased);
  void take(const CampaignState::Asked& asked, const Seen& seen);
  void take(const CampaignState::Asked&, const Revoked&);
  void take_refusal(Errand errand);
  void observe(const Sight& sight);
  bool notice_revision(const CampaignState::Asked& asked, Revision revision);
  void cleared();
  void check_key(const Sight& sight);
  void follow(const LeaderRecord& leader);
  void revoke(Lease lease);
  void revoke_held();
  void nobody_leads();
  void win(const Sight& sight);
  void stored(const CampaignState::Asked& asked, const Seen& seen);
  void lose(const std::string& reason);

  bool is_in(CampaignPhase phase) const { return state_.phase == phase; }
  void log(LogLevel level, std::string text) {
    actions_.emplace_back(CampaignLog{level, std::move(text)});
  }

  CampaignState& state_;
  const Time now_;
  std::vector<CampaignAction> actions_;
};

}  // namespace drun::rendezvous::etcd
