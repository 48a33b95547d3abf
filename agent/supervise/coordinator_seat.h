// edge. The listening socket of an agent that is, or may become, the coordinator.
//
// If several agents run on an endpoint's host, the first one gets the port. If there are several
// endpoints (docs/internals/election.md), an agent gets the first free endpoint of its host. With
// etcd, each agent listens on a separate port.
// Errors:  System if the port is not available and this agent must be the coordinator.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/join_spec.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/server/server.h"

namespace drun::agent {

// Sets the ports and `join.seat`. Null: this agent joins as a member, and `join.is_coordinator` is
// false.
Result<std::unique_ptr<rendezvous::Server>> take_seat(asio::io_context& io, JoinSpec& join,
                                                      const Log& log,
                                                      std::function<void()> on_finished,
                                                      rendezvous::Server::OnLeader on_leader,
                                                      rendezvous::LogSink* lines,
                                                      rendezvous::Server::OnTrouble on_trouble);

// The rendezvous endpoint, in the form that is common to all agents of a job.
std::string meeting_place(const JoinSpec& join);

}  // namespace drun::agent
