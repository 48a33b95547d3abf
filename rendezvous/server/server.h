// edge. The coordinator's server: one port for members (control connections) and workers (the
// store). The state machine in round.h decides which messages it sends.
//
// Listens: on loopback only if spec.master_addr is literally localhost or a loopback address, else
//          on all interfaces. With StoreHost::Worker it serves only members, on spec.endpoint.port.
// Secret:  with spec.secret, control connections use TLS, and peers without the secret are
//          rejected. The store serves only this host and the addresses of members.
// Limits:  a connection must send its Hello within spec.heartbeat_timeout (pending_connections.h).
//          Some descriptors are reserved for members, so that silent connections, unidentified
//          peers and store clients cannot use all of them.
// Order:   open it before any Client of this job starts; the coordinator's own agent is a member
//          like any other, over a socket or join_locally(). The store is emptied, and connections
//          of old workers are closed, before the members receive the next world.
// Several: with spec.seat it is one of several endpoints, with spec.etcd one of all agents. It
//          coordinates while it is elected (docs/internals/election.md), and otherwise sends
//          members to the leader.
// Owner:   the agent. Keep it until on_finished, so that every member receives the outcome and the
//          store outlives the last worker. A server that does not lead can be destroyed as soon as
//          its agent has the outcome.
// Errors:  open: System if it cannot listen on the port, with the port and the remedy. Later, it
//          drops bad connections and logs each one, at a limited rate.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/coordinator/round_events.h"
#include "rendezvous/job/census.h"
#include "rendezvous/job/join_spec.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/protocol/control_link.h"
#include "rendezvous/server/log_collector.h"

namespace drun::rendezvous {

class Server {
 public:
  // on_finished: called once, when every member has read its outcome and disconnected, or when the
  // time for that has passed. It may destroy the Server.
  // on_leader: this agent's endpoint, one of several, has learned which agent coordinates. Called
  // any number of times, never before open returns. lines: with spec.gathers_lines, gets the lines
  // of all members. on_trouble: why the coordinator is unknown (etcd cannot be reached); empty: it
  // is known again.
  using OnTrouble = std::function<void(const std::string& reason)>;
  using OnLeader = std::function<void(const Endpoint& leader, std::uint64_t term)>;
  static Result<std::unique_ptr<Server>> open(asio::io_context& io, const JoinSpec& spec, Log log,
                                              std::function<void()> on_finished,
                                              OnLeader on_leader = {}, LogSink* lines = nullptr,
                                              OnTrouble on_trouble = {});
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // The port that it listens on, also if spec.endpoint.port is 0.
  std::uint16_t port() const;

  // The nodes that have joined, while the coordinator waits for others (progress_text of
  // membership_text.h).
  std::optional<std::string> roll_call() const;

  // The state of the job as far as the coordinator knows it without asking the nodes; nullopt if
  // this agent does not coordinate.
  std::optional<JobFacts> facts() const;

  // The LogSink has passed on lines of that member; `cost` as counted by cost_bytes().
  void lines_taken(std::uint64_t peer, std::size_t cost);

  // When the job has to end; absent: unknown. May change at any time. Has an effect while this
  // agent coordinates.
  void set_deadline(std::optional<JobDeadline> deadline);

  // The agent that owns this server has its outcome. Returns false if the server can be destroyed.
  // Returns true if on_finished will follow: once all members have the outcome, or once the lead is
  // resigned so that another agent can be elected.
  bool coordinator_ended();

  // A member in this process: the agent that owns this server. Its link needs no socket and no
  // secret. Requires a coordinator that is not elected; null after stop().
  std::shared_ptr<ControlLink> join_locally(ControlLink::Listener& member);

  // Whether it coordinates the job: always, unless the coordinator is elected.
  bool is_leading() const;

  // Closes everything at once; members see a lost coordinator unless they have their outcome. No
  // callback follows. Idempotent.
  void stop();

 private:
  class Impl;
  explicit Server(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // kept by its handlers until they have ended
};

}  // namespace drun::rendezvous
