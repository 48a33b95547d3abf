// edge. What an agent holds among those of its job on a host: the listening socket, if it is or may
// become the coordinator, and a number.
//
// If several agents run on an endpoint's host, the first one gets the port. If there are several
// endpoints (docs/internals/election.md), an agent gets the first free endpoint of its host. With
// etcd, each agent listens on a separate port.
// Errors:  System if the port is not available and this agent must be the coordinator.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/unique_fd.h"
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

// --- A number that distinguishes the agents of one job on a host: the lowest that no living agent
// holds, so that a restarted agent usually gets its number again.
//
// Implemented by a socket name in the kernel's abstract namespace, which ends with its process.
// Agents in different network namespaces do not see each other's numbers; they count as different
// hosts. If such names are not available, the number is unique to this process only.

class HostSlot {
 public:
  // `job`: identifies the job on this host.
  static HostSlot take(const std::string& job);
  int number() const { return number_; }

 private:
  HostSlot(UniqueFd fd, int number) : fd_(std::move(fd)), number_(number) {}
  UniqueFd fd_;
  int number_ = 0;
};

}  // namespace drun::agent
