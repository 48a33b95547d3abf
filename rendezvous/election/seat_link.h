// edge. The way to one other seat: ballots go out on a connection that is made when there is none.
// What to ask and when is decided by election.h.
//
// Owner:   Council; destruction closes it silently.
// Limits:  a link may take what connector.h allows, and 5 s more until the other seat's process has
//          answered it.
// Thread:  the io_context's only.
// Errors:  on_seat_failed: nobody there, or nobody who answers ballots of this job; a refusal is
//          logged, but no flood of these.
#pragma once

#include <memory>
#include <optional>

#include "rendezvous/asio.h"
#include "rendezvous/connector.h"
#include "rendezvous/control_connection.h"
#include "rendezvous/deadline_timer.h"
#include "rendezvous/election/ballot.h"
#include "rendezvous/endpoint.h"
#include "rendezvous/log.h"
#include "rendezvous/log_limit.h"
#include "rendezvous/tls_session.h"

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
           Log log, Listener& listener, std::shared_ptr<LookupThreads> threads = nullptr);
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
  DeadlineTimer open_timer_;
  std::shared_ptr<ControlConnection> connection_;
  bool is_open_ = false;
  bool has_voted_ = false;  // on this connection
  bool is_dialling_ = false;
  std::optional<Ballot> waiting_;  // for the link
};

}  // namespace drun::rendezvous
