// edge. One seat's part in the election: the connections to the other seats and the clock.
// election.h makes the decisions.
//
// Owner:   Server; shared with its timer's handlers. After stop it makes no calls.
// Thread:  the io_context's only.
// Errors:  none; a seat that cannot be reached has no vote.
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
#include "rendezvous/net/tls_session.h"
#include "rendezvous/protocol/control_connection.h"
#include "rendezvous/protocol/control_message.h"

// edge. The way to one other seat: ballots go out on a connection that is made when there is none.
// What to ask and when is decided by election.h.
//
// Owner:   ElectionDriver; destruction closes it silently.
// Limits:  a link may take what connector.h allows, and 5 s more until the other seat's process has
//          answered it.
// Thread:  the io_context's only.
// Errors:  on_seat_failed: nothing listens there, or it does not answer this job's ballots.
//          Refusals are logged at a limited rate.

namespace drun::rendezvous {

class SeatLink final : private ControlConnection::Listener {
 public:
  // Not called from inside a call made here.
  class Listener {
   public:
    virtual void on_vote(int seat, const Vote& vote) = 0;
    // What waits for the link is sent when this returns. It may be replaced meanwhile.
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

  // At once, or when it is connected; in place of what could not be sent yet.
  void ask(const Ballot& ballot);
  void hang_up();

 private:
  void connected(Result<asio::ip::tcp::socket> socket);
  void send(const Ballot& ballot);
  void on_open(ControlConnection& connection) override;
  void on_frame(ControlConnection& connection, std::string_view frame) override;
  void on_end(ControlConnection& connection, const ConnectionEnd& end) override;
  void fail(const std::string& reason);

  const int seat_;
  const Endpoint endpoint_;
  const std::shared_ptr<const TlsContext> tls_;
  const Log log_;
  LogLimit log_limit_;
  Listener& listener_;
  Connector connector_;
  const bool is_reported_;  // its addresses, by its host: some may mean another machine from here
  DeadlineTimer open_timer_;
  std::shared_ptr<ControlConnection> connection_;
  bool is_open_ = false;
  bool has_voted_ = false;  // on this connection
  bool is_dialling_ = false;
  std::optional<Ballot> waiting_;  // for the link
};

class ElectionDriver final : public LeaderElection,
                             public std::enable_shared_from_this<ElectionDriver>,
                             private SeatLink::Listener {
 public:
  // Called from the loop, or from within `hear` and `leads`.
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
  void apply(const RefuseBallot& refusal);
  void apply(const Leading& leading) {
    listener_->on_lead(leading.term, {.rounds = leading.rounds});
  }
  void apply(const LeadLost& lost) { listener_->on_lead_lost(lost.reason); }
  void apply(const Following& following);
  void apply(const Vacant&) { listener_->on_vacant(); }
  void apply(const Resigned&) { listener_->on_resigned(); }
  void apply(const RoundKnown& known) { listener_->on_round_known(known.rounds); }
  void apply(const ElectionLog& line) { log_.write(line.level, line.text); }
  SeatLink& link(int seat) { return *links_[static_cast<std::size_t>(seat)]; }
  void on_vote(int seat, const Vote& vote) override { handle(VoteCame{seat, vote}); }
  void on_seat_linked(int seat) override { handle(SeatLinked{seat}); }
  void on_seat_failed(int seat) override { handle(SeatFailed{seat}); }

  LeaseTimer timer_;
  const Log log_;
  const std::vector<Endpoint> seats_;
  Listener* listener_;                            // null after stop
  std::vector<std::unique_ptr<SeatLink>> links_;  // null: one's own
  ElectionState state_;
};

}  // namespace drun::rendezvous
