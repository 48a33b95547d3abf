// edge. Listening where this agent is, or may become, the coordinator.
//
// Shape:   of several agents on an endpoint's host the first takes the port. Of several endpoints
//          (docs/internals/election.md) an agent takes the first free endpoint of its host. With
//          etcd each agent listens on its own port.
// Owner:   the caller.   Thread: the io_context's only.
// Errors:  System: the port cannot be listened on, and this agent was told to be the coordinator.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/coordinator/server.h"
#include "rendezvous/job/join_spec.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

// Fills in what is known then: ports, `join.seat`. Null: this agent joins as a member, and
// `join.is_coordinator` says so.
Result<std::unique_ptr<rendezvous::Server>> take_seat(asio::io_context& io, JoinSpec& join,
                                                      const Log& log,
                                                      std::function<void()> on_finished,
                                                      rendezvous::Server::OnLeader on_leader,
                                                      rendezvous::LineTaker* lines,
                                                      rendezvous::Server::OnTrouble on_trouble);

// Where the agents of one job meet, as all of them write it.
std::string meeting_place(const JoinSpec& join);

}  // namespace drun::agent
