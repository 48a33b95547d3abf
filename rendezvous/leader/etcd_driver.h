// edge. One agent's part in the election through etcd: the connection and the clock. The state
// machine in etcd_election.h makes the decisions.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "rendezvous/base/log.h"
#include "rendezvous/job/join_spec.h"
#include "rendezvous/leader/etcd_election.h"
#include "rendezvous/leader/etcd_gateway.h"
#include "rendezvous/leader/leader_election.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/net/deadline_timer.h"

namespace drun::rendezvous {

class EtcdElectionDriver final : public LeaderElection,
                                 public std::enable_shared_from_this<EtcdElectionDriver> {
 public:
  // `spec.etcd` is set. `own`: where others reach this agent. Errors: Usage, for certificates that
  // cannot be used.
  static Result<std::shared_ptr<EtcdElectionDriver>> make(asio::io_context& io,
                                                          const JoinSpec& spec, const Endpoint& own,
                                                          const Log& log,
                                                          LeaderElection::Listener& listener);

  void start() override { handle(etcd::CampaignTick{}); }
  void stop() override;
  void want_round(const RoundRecord& record) override { handle(etcd::RecordWanted{record}); }
  bool leads() override;
  // Any other agent of the job that was not started with is_coordinator=0; this one does not know
  // which.
  bool has_successor() const override { return is_leading(state_, LeaseClock::now()); }
  void resign() override;
  void doubt() override { handle(etcd::LeaderDoubted{}); }
  // Takes up to half a second if etcd does not answer.
  void finish() override;

 private:
  EtcdElectionDriver(asio::io_context& io, const JoinSpec& spec, const Endpoint& own,
                     const std::shared_ptr<etcd::HttpTls>& tls, const Log& log,
                     LeaderElection::Listener& listener);
  void handle(const etcd::CampaignEvent& event);
  void apply(const etcd::AskEtcd& ask);
  void apply(const etcd::WatchLeader& watch);
  void apply(const etcd::StopWatching&) { gateway_.stop_watching(); }
  void apply(const LogLine& line) { log_.write(line); }
  void apply(const etcd::Closed&);
  template <typename News>
  void apply(const News& news) {
    if (listener_ != nullptr) listener_->on_news(news);
  }

  LeaseTimer timer_;
  const Log log_;
  etcd::Gateway gateway_;
  LeaderElection::Listener* listener_;  // null after stop
  bool is_finishing_ = false;
  bool is_resigning_ = false;
  bool is_closed_ = false;
  etcd::CampaignState state_;
};

}  // namespace drun::rendezvous
