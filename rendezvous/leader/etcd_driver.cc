#include "rendezvous/leader/etcd_driver.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "rendezvous/base/random_instance.h"

namespace drun::rendezvous {
namespace {

etcd::Keys keys_of(const JoinSpec& spec) {
  const std::string job = spec.etcd->prefix + "/" + spec.run_id;
  return {job + "/leader", job + "/state"};
}

// How long etcd keeps a leader's key: half of the heartbeat timeout, 2 to 30 s.
std::chrono::seconds lead_lease(const JoinSpec& spec) {
  return std::clamp(std::chrono::floor<std::chrono::seconds>(spec.heartbeat_timeout / 2),
                    std::chrono::seconds(2), std::chrono::seconds(30));
}

// How long etcd keeps the job's state without a leader: as long as agents try to find one, 1 minute
// to 1 day.
std::chrono::seconds state_lease(const JoinSpec& spec) {
  return std::clamp<std::chrono::seconds>(
      std::chrono::ceil<std::chrono::seconds>(spec.join_timeout), std::chrono::minutes(1),
      std::chrono::hours(24));
}

etcd::CampaignSpec campaign_spec(const JoinSpec& spec, const Endpoint& own) {
  return {.endpoint = own,
          .instance = random_instance(),
          .lease = lead_lease(spec),
          .keep = state_lease(spec),
          .stands = spec.etcd->stands,
          .endpoint_count = static_cast<int>(spec.etcd->endpoints.size()),
          .agents = spec.node_count,
          .place = to_string(spec.etcd->endpoints)};
}

}  // namespace

Result<std::shared_ptr<EtcdElectionDriver>> EtcdElectionDriver::make(
    asio::io_context& io, const JoinSpec& spec, const Endpoint& own, const Log& log,
    LeaderElection::Listener& listener) {
  std::shared_ptr<etcd::HttpTls> tls;
  if (spec.etcd->is_https) {
    auto made = etcd::HttpTls::make(spec.etcd->files);
    if (!made) return made.error();
    tls = *std::move(made);
  }
  return std::shared_ptr<EtcdElectionDriver>(
      new EtcdElectionDriver(io, spec, own, tls, log, listener));
}

EtcdElectionDriver::EtcdElectionDriver(asio::io_context& io, const JoinSpec& spec,
                                       const Endpoint& own,
                                       const std::shared_ptr<etcd::HttpTls>& tls, const Log& log,
                                       LeaderElection::Listener& listener)
    : timer_(io),
      log_(log),
      gateway_(io, spec.etcd->endpoints, keys_of(spec), tls),
      listener_(&listener),
      state_(open_campaign(campaign_spec(spec, own), LeaseClock::now())) {}

void EtcdElectionDriver::stop() {
  listener_ = nullptr;
  if (is_finishing_) return;
  is_closed_ = true;
  timer_.cancel();
  gateway_.close();
}

void EtcdElectionDriver::finish() {
  is_finishing_ = true;
  handle(etcd::JobOver{});
}

void EtcdElectionDriver::resign() {
  is_resigning_ = true;
  handle(etcd::Resign{});
}

bool EtcdElectionDriver::leads() {
  const etcd::Time now = LeaseClock::now();
  if (timer_.is_overdue(now)) handle(etcd::CampaignTick{});
  return is_leading(state_, now);
}

void EtcdElectionDriver::handle(const etcd::CampaignEvent& event) {
  if (is_closed_) return;
  for (const etcd::CampaignAction& action : step(state_, event, LeaseClock::now()))
    std::visit([this](const auto& each) { apply(each); }, action);
  if (is_closed_) return;
  timer_.set(deadline(state_), [self = shared_from_this()] { self->handle(etcd::CampaignTick{}); });
}

void EtcdElectionDriver::apply(const etcd::AskEtcd& ask) {
  gateway_.ask(ask.call, ask.limit,
               [self = shared_from_this(), number = ask.number](const auto& result) {
                 if (const auto* failed = std::get_if<etcd::Failed>(&result))
                   return self->handle(etcd::EtcdFailed{number, *failed});
                 self->handle(etcd::EtcdAnswered{number, std::get<etcd::Answer>(result)});
               });
}

void EtcdElectionDriver::apply(const etcd::WatchLeader& watch) {
  gateway_.watch(watch.from, [self = shared_from_this(), number = watch.number](const auto& news) {
    if (const auto* failed = std::get_if<etcd::Failed>(&news))
      return self->handle(etcd::WatchEnded{number, failed->reason});
    self->handle(etcd::WatchReported{number, std::get<etcd::WatchMessage>(news)});
  });
}

void EtcdElectionDriver::apply(const etcd::Closed&) {
  is_closed_ = true;
  timer_.cancel();
  gateway_.close();
  if (is_resigning_) apply(Resigned{});
}

}  // namespace drun::rendezvous
