// A coordinator's port where others may coordinate, too: it leads, or it says who does.
#include <utility>

#include "rendezvous/control_wire.h"
#include "rendezvous/etcd/candidacy.h"
#include "rendezvous/round/admission.h"
#include "rendezvous/round/inheritance.h"
#include "rendezvous/server_impl.h"
#include "rendezvous/server_specs.h"

namespace drun::rendezvous {
namespace {

constexpr std::size_t kMostVotersForSeat = 4;

}  // namespace

Result<void> Server::Impl::stand(const JoinSpec& spec) {
  if (spec.etcd) {
    auto candidacy = Candidacy::make(io_, spec, self(), log_, *this);
    if (!candidacy) return candidacy.error();
    authority_ = *std::move(candidacy);
  } else {
    Council::Listener& listener = *this;
    authority_ = council_ = std::make_shared<Council>(io_, spec, tls_, log_, listener);
  }
  authority_->start();
  return {};
}

void Server::Impl::take_ballot(ControlConnection& connection, const Ballot& ballot, bool is_new) {
  if (is_new && council_) {
    // Seats come back on new connections; whoever is left out does, too.
    if (voters_.size() >= kMostVotersForSeat * spec_.seats.size()) hang_up(*voters_.begin());
    voters_.insert(connection.id());
  }
  if (voters_.contains(connection.id())) return council_->hear(connection.id(), ballot);
  complain("dropped " + connection.peer() + ": it asks for votes, but --rdzv-endpoint is one here");
  reply(connection.id(), Refused{{ErrorCode::Refused,
                                  "no list of endpoints was given there; "
                                  "write the same list on all nodes"}});
  hang_up(connection.id());
}

void Server::Impl::on_refusal(Caller caller, const Error& error) {
  reply(caller, Refused{error});
  hang_up(caller);
}

// Who asks while another leads, or nobody yet.
void Server::Impl::stand_by(ControlConnection& connection, const Hello* hello) {
  const Peer peer = connection.id();
  if (hello == nullptr || seekers_.has(peer)) return hang_up(peer);
  if (const auto error = objection(state_, *hello)) {
    reply(peer, Refused{with_context(*error, state_.spec.endpoint + " refused this node")});
    return hang_up(peer);
  }
  const auto answer = seekers_.ask({peer, connection.peer(), *hello});
  if (answer) reply(peer, *answer);
  if (!answer && hello->lost_term > 0) authority_->doubt();
  if (!seekers_.has(peer)) hang_up(peer);
}

void Server::Impl::on_lead(std::uint64_t term, const RoundRecord& before) {
  if (is_leading_) return;  // it tells the end of the job
  state_ = tenure_.begin(round_spec(spec_, port()), term, before, std::chrono::steady_clock::now());
  is_leading_ = true;
  log_.write(before.rounds > 0 ? LogLevel::Warning : LogLevel::Debug,
             "this node coordinates the job from here on, at " + state_.spec.endpoint);
  name_leader(self(), term);
  for (Seekers::Asking& asking : seekers_.take_all()) {
    handle(PeerArrived{asking.peer, asking.address});
    handle(PeerSaid{asking.peer, std::move(asking.hello)});
  }
  arm_timer();
}

void Server::Impl::on_lead_lost(const std::string& reason) {
  const Tenure::Loss loss = tenure_.lose(state_);
  if (loss == Tenure::Loss::Over) return perform(RoundOver{});
  if (loss == Tenure::Loss::Kept) return;
  log_.error("this node does not coordinate the job any more: " + reason);
  release_members();
}

// A port like the others from here on.
void Server::Impl::release_members() {
  is_leading_ = false;
  events_.clear();
  timer_.cancel();
  std::vector<Peer> members;
  for (const auto& [peer, connection] : connections_) {
    if (!voters_.contains(peer) && !pending_.contains(peer)) members.push_back(peer);
  }
  for (const Peer peer : members) hang_up(peer);
  if (store_) store_->clear();
  state_ = open_round(round_spec(spec_, port()), std::chrono::steady_clock::now());
}

void Server::Impl::on_following(const Endpoint& leader, std::uint64_t term) {
  if (is_leading_) return;
  const Follow follow{leader.host, leader.port, term};
  for (const Peer peer : seekers_.know(follow)) {
    reply(peer, follow);
    hang_up(peer);
  }
  log_.debug(to_string(leader) + " coordinates the job, term " + std::to_string(term));
  name_leader(leader, term);
}

void Server::Impl::name_leader(const Endpoint& leader, std::uint64_t term) {
  if (on_leader_) on_leader_(leader, term);
}

// What was held back until later leaders were sure to know of the round, and nothing before it.
void Server::Impl::on_round_known(int rounds) {
  const std::vector<RoundAction> held = tenure_.know(rounds);
  if (held.empty()) return;
  const bool was_turning = std::exchange(is_turning_, true);
  for (const RoundAction& action : held)
    std::visit([this](const auto& deed) { perform(deed); }, action);
  if (!was_turning) turn();
}

bool Server::Impl::must_wait(const RoundAction& action) {
  if (!authority_) return false;
  const Tenure::Verdict verdict = tenure_.judge(state_, action);
  if (verdict == Tenure::Verdict::Ask) authority_->want_round(record_of(state_));
  return verdict != Tenure::Verdict::Do;
}

// What this agent coordinated goes on elsewhere.
void Server::Impl::perform(const StepDown&) {
  log_.info("this node does not coordinate the job any more: it leaves");
  is_stepping_down_ = true;
  release_members();
  authority_->resign();
}

// Asked before each deed: this process may have stood still until its lead was over.
bool Server::Impl::may_act() {
  if (!authority_ || authority_->leads() || (is_leading_ && tells_the_end(state_))) return true;
  events_.clear();
  return false;
}

}  // namespace drun::rendezvous
