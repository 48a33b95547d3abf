// edge. The inside of Server. Only server.cc (connections, the round's machine) and server_seat.cc
// (an endpoint among several, that leads or does not) include it.
//
// Owner:   shared by its handlers until they have ended; stop ends them.
// Thread:  the io_context's only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "rendezvous/control_connection.h"
#include "rendezvous/control_wire.h"
#include "rendezvous/deadline_timer.h"
#include "rendezvous/election/authority.h"
#include "rendezvous/election/council.h"
#include "rendezvous/election/seekers.h"
#include "rendezvous/election/tenure.h"
#include "rendezvous/lines/line_desk.h"
#include "rendezvous/listener.h"
#include "rendezvous/log_limit.h"
#include "rendezvous/member_addresses.h"
#include "rendezvous/pending_connections.h"
#include "rendezvous/round/round.h"
#include "rendezvous/server.h"
#include "rendezvous/store/service.h"
#include "rendezvous/tls_session.h"
#include "rendezvous/turned_away.h"

namespace drun::rendezvous {

using asio::ip::tcp;

class Server::Impl final : public std::enable_shared_from_this<Server::Impl>,
                           private ControlConnection::Listener,
                           private Council::Listener {
 public:
  Impl(asio::io_context& io, const JoinSpec& spec, Log log, std::function<void()> on_finished,
       OnLeader on_leader, LineTaker* lines, OnTrouble on_trouble);
  Result<void> open(const JoinSpec& spec);

  std::uint16_t port() const { return listener_->port(); }
  bool is_leading() const { return is_leading_; }
  std::optional<std::string> roll_call() const;
  std::optional<JobFacts> facts() const;
  void lines_taken(Peer peer, std::size_t cost);
  bool host_ended();

  void stop();

 private:
  rendezvous::Listener::Handlers arrivals();
  void warn_of_strangers(const JoinSpec& spec) const;
  std::string store_objection(const tcp::socket& socket) const;
  void adopt_store(tcp::socket socket, std::string first_bytes);
  void adopt(tcp::socket socket, const std::string& first_bytes);
  void drop_stranger(Peer peer, const std::string& reason);
  void complain(const std::string& text);
  void on_frame(ControlConnection& connection, std::string_view frame) override;

  // server_seat.cc: where others may coordinate, too
  Result<void> stand(const JoinSpec& spec);
  Endpoint self() const { return {spec_.endpoint.host, port()}; }
  void take_ballot(ControlConnection& connection, const Ballot& ballot, bool is_new);
  void on_answer(Caller caller, const Vote& vote) override { reply(caller, vote); }
  void on_refusal(Caller caller, const Error& error) override;
  void stand_by(ControlConnection& connection, const Hello* hello);
  void on_lead(std::uint64_t term, const RoundRecord& before) override;
  void on_lead_lost(const std::string& reason) override;
  void on_following(const Endpoint& leader, std::uint64_t term) override;
  void on_vacant() override { seekers_.forget_leader(); }
  void on_trouble(const std::string& reason) override {
    if (on_trouble_) on_trouble_(reason);
  }

  void release_members();
  void name_leader(const Endpoint& leader, std::uint64_t term);
  void on_round_known(int rounds) override;
  void on_resigned() override { end(); }
  bool must_wait(const RoundAction& action);
  bool may_act();
  void reply(Peer peer, const CoordinatorMessage& message);
  void hang_up(Peer peer);

  void on_end(ControlConnection& connection, const ConnectionEnd& end) override;
  void forget(Peer peer);
  void admit(const ControlConnection& connection);
  void handle(RoundEvent event);
  void turn();
  void perform(const SendTo& send);
  void perform(const SendAll& send);
  void perform(const SendAnswer& send);
  void perform(const Drop& drop) { hang_up(drop.peer); }
  void perform(const ClearStore&);
  void perform(const RoundLog& line) { log_.write(line.level, line.text); }
  void perform(const RoundOver&);
  void perform(const StepDown&);
  void end();
  void arm_timer();
  void arm_pending_timer();

  asio::io_context& io_;
  DeadlineTimer timer_;
  asio::steady_timer pending_timer_;
  const Log log_;
  LogLimit log_limit_;
  std::function<void()> on_finished_;
  const OnLeader on_leader_;
  const OnTrouble on_trouble_;
  const JoinSpec spec_;
  std::shared_ptr<const TlsContext> tls_;  // null: no secret
  PendingConnections pending_;             // of connections_, those who have not said hello
  bool is_pending_timed_ = false;
  TurnedAway turned_away_;
  std::unordered_map<Peer, std::vector<std::string>> told_;  // addresses, until it is a member
  MemberAddresses addresses_;
  LineDesk desk_;
  std::optional<StoreService> store_;
  std::unique_ptr<rendezvous::Listener> listener_;
  std::unordered_map<Peer, std::shared_ptr<ControlConnection>> connections_;
  Peer last_peer_ = 0;
  struct LastAnswer {
    std::shared_ptr<const CoordinatorMessage> message{};
    std::optional<SharedAnswer> frames{};
  };
  LastAnswer last_answer_;  // encoded
  RoundState state_;
  std::deque<RoundEvent> events_;
  bool is_turning_ = false;
  bool is_stopped_ = false;
  bool is_leading_ = false;
  bool is_stepping_down_ = false;  // others are being told
  // Where others may coordinate, too.
  std::shared_ptr<Authority> authority_;  // null: nobody else may
  std::shared_ptr<Council> council_;      // the same, with several endpoints
  std::set<Peer> voters_;                 // connections that ask for votes
  Seekers seekers_;
  Tenure tenure_;
};

}  // namespace drun::rendezvous
