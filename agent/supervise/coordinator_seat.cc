#include "agent/supervise/coordinator_seat.h"

#include <utility>

namespace drun::agent {
namespace {

using rendezvous::Server;

JoinSpec at_seat(const JoinSpec& join, std::size_t seat) {
  JoinSpec there = join;
  there.seat = seat;
  there.endpoint = join.seats[seat];
  there.master_addr = there.endpoint.host;
  return there;
}

JoinSpec as_candidate(const JoinSpec& join) {
  JoinSpec there = join;
  there.master_addr = there.endpoint.host;
  return there;
}

}  // namespace

Result<std::unique_ptr<Server>> take_seat(asio::io_context& io, JoinSpec& join, const Log& log,
                                          std::function<void()> on_finished,
                                          Server::OnLeader on_leader, rendezvous::LogSink* lines,
                                          Server::OnTrouble on_trouble) {
  if (join.etcd) {
    auto server = Server::open(io, as_candidate(join), log, std::move(on_finished),
                               std::move(on_leader), nullptr, std::move(on_trouble));
    if (!server) return server;
    join.endpoint.port = (*server)->port();
    join.seats = {join.endpoint};
    join.seat = 0;
    return server;
  }
  for (const std::size_t seat : join.own_seats) {
    auto server = Server::open(io, at_seat(join, seat), log, on_finished, on_leader);
    if (server) {
      join.seat = seat;
      return server;
    }
    log.debug(server.error().message);
  }
  if (!join.seats.empty()) {
    if (!join.own_seats.empty())
      log.info("this agent joins without a vote: others listen at this host's endpoints of " +
               to_string(join.seats));
    join.is_coordinator = false;
    return std::unique_ptr<Server>();
  }
  auto server = Server::open(io, join, log, std::move(on_finished), {}, lines);
  if (!server && join.may_be_member) {
    join.is_coordinator = false;
    log.debug(server.error().message + "; joining the program that listens there");
    return std::unique_ptr<Server>();
  }
  if (!server) return server;
  join.endpoint.port = (*server)->port();
  if (join.master_port == 0) join.master_port = (*server)->port();
  return server;
}

std::string meeting_place(const JoinSpec& join) {
  return join.etcd ? to_string(join.etcd->endpoints) : to_string(join.endpoint);
}

}  // namespace drun::agent
