// edge. One seat's part in the election: the connections to the other seats (SeatLink) and the
// clock (ElectionDriver). The state machine in election.h makes the decisions. A seat that cannot
// be reached has no vote.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/log.h"
#include "rendezvous/job/join_spec.h"
#include "rendezvous/leader/election.h"
#include "rendezvous/leader/leader_election.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/net/connector.h"
#include "rendezvous/net/deadline_timer.h"
#include "rendezvous/net/endpoint.h"
#include "rendezvous/protocol/control_connection.h"
#include "rendezvous/protocol/control_message.h"
#include "rendezvous/tls/tls_session.h"

namespace drun::rendezvous {

// Sends ballots to one other seat. Connects when necessary; destruction closes the connection
// silently.
//
// Limits:  a connection may take the time that connector.h allows, and 5 s more until the other
//          seat's process has answered.
// Errors:  on_seat_failed: nothing listens there, or it does not answer this job's ballots.
//          The first refusal of each kind is logged, and the others at growing intervals.
class SeatLink final : private ControlLink::Listener {
 public:
  // Never called from inside a call to SeatLink.
  class Listener {
   public:
    virtual void on_vote(int seat, const Vote& vote) = 0;
    // The waiting ballot is sent when this returns. The callback may replace it.
    virtual void on_seat_linked(int seat) = 0;
    virtual void on_seat_failed(int seat) = 0;

   protected:
    ~Listener() = default;
  };

  // `tls`: null without a secret.
  SeatLink(asio::io_context& io, int seat, Endpoint endpoint, std::shared_ptr<const TlsContext> tls,
           Log log, Listener& listener, std::shared_ptr<LookupThreads> threads = nullptr,
           const AddressBook& book = {});
  ~SeatLink() { hang_up(); }
  SeatLink(const SeatLink&) = delete;
  SeatLink& operator=(const SeatLink&) = delete;

  // Sends the ballot now, or once connected. Replaces a ballot that could not be sent yet.
  void ask(const Ballot& ballot);
  void hang_up();

 private:
  void connected(Result<asio::ip::tcp::socket> socket);
  void send(const Ballot& ballot);
  void on_open(ControlLink& connection) override;
  void on_frame(ControlLink& connection, std::string_view frame) override;
  void on_end(ControlLink& connection, const ConnectionEnd& end) override;
  void warn(const std::string& reason);
  void fail(const std::string& reason);

  const int seat_;
  const Endpoint endpoint_;
  const std::shared_ptr<const TlsContext> tls_;
  const Log log_;
  RefusalLimit refusals_;
  Listener& listener_;
  Connector connector_;
  // The seat's host reported its addresses; from here, some may belong to another machine.
  const bool is_reported_;
  DeadlineTimer open_timer_;
  std::shared_ptr<ControlConnection> connection_;
  bool is_open_ = false;
  bool has_voted_ = false;  // on this connection
  bool is_dialling_ = false;
  std::optional<Ballot> waiting_;  // for the connection
};

class ElectionDriver final : public LeaderElection,
                             public std::enable_shared_from_this<ElectionDriver>,
                             private SeatLink::Listener {
 public:
  // Called from the event loop, or from within `hear` and `leads`.
  class Listener : public LeaderElection::Listener {
   public:
    virtual void on_answer(Caller caller, const Vote& vote) = 0;
    virtual void on_refusal(Caller caller, const Error& error) = 0;

   protected:
    ~Listener() = default;
  };

  // `spec.seat` is set. `tls`: null without a secret.
  ElectionDriver(asio::io_context& io, const JoinSpec& spec,
                 const std::shared_ptr<const TlsContext>& tls, const Log& log, Listener& listener);
  void start() override { handle(ElectionStart{}); }
  void stop() override;

  void hear(Caller caller, const Ballot& ballot) { handle(BallotCame{caller, ballot}); }
  // Only the number of rounds of the record; members report the rest.
  void want_round(const RoundRecord& record) override { handle(RoundWanted{record.rounds}); }
  bool leads() override;
  bool has_successor() const override { return rendezvous::has_successor(state_); }
  void resign() override { handle(Resign{}); }

 private:
  void handle(const ElectionEvent& event);
  void apply(const AskSeat& ask) { link(ask.seat).ask(ask.ballot); }
  void apply(const HangUp& hang) { link(hang.seat).hang_up(); }
  void apply(const AnswerBallot& answer) { listener_->on_answer(answer.caller, answer.vote); }
  void apply(const RefuseBallot& refusal) { listener_->on_refusal(refusal.caller, refusal.error); }
  void apply(const SeatFollowed& followed) {
    listener_->on_news(Following{seats_[static_cast<std::size_t>(followed.seat)], followed.term});
  }
  template <typename News>
  void apply(const News& news) {
    listener_->on_news(news);
  }
  SeatLink& link(int seat) { return *links_[static_cast<std::size_t>(seat)]; }
  void on_vote(int seat, const Vote& vote) override { handle(VoteCame{seat, vote}); }
  void on_seat_linked(int seat) override { handle(SeatLinked{seat}); }
  void on_seat_failed(int seat) override { handle(SeatFailed{seat}); }

  LeaseTimer timer_;
  const std::vector<Endpoint> seats_;
  Listener* listener_;                            // null after stop
  std::vector<std::unique_ptr<SeatLink>> links_;  // null: this seat's own
  ElectionState state_;
};

}  // namespace drun::rendezvous
