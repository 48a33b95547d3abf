// edge. The coordinator: one port on which members (control connections) and workers (the store)
// arrive; what to tell whom is decided by rendezvous/coordinator/round.h.
//
// Listens: on loopback only when spec.master_addr is literally localhost or a loopback address;
//          else on all interfaces. With StoreHost::Worker only members are served, on
//          spec.endpoint.port.
// Secret:  with spec.secret control connections are TLS, and only who proves it is heard; the store
//          answers this host and the addresses of members.
// Limits:  connections without a hello: pending_connections.h, for spec.heartbeat_timeout. Members
// have
//          descriptors that silent connections, strangers and store clients do not get.
// Order:   open before any Client of this job starts; the coordinator's own agent is a member like
//          any other. A round's store is emptied, and old workers' connections are closed, before
//          the members hear of the next world.
// Several: with spec.seat it is one of several endpoints, with spec.etcd one of all agents, and
//          coordinates when it is elected (docs/internals/election.md); otherwise it says who does.
// Owner:   the agent; keep it until on_finished, so that every member hears the outcome and the
//          store outlives the last worker of the last node. One that does not lead has nothing to
//          finish: drop it with the outcome.
// Thread:  the io_context's only.
// Errors:  open: System when the port cannot be listened on, naming it and the remedy. Afterwards
//          none: bad connections are dropped, each with a log line, but no flood of these.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/coordinator/log_collector.h"
#include "rendezvous/coordinator/round_events.h"
#include "rendezvous/job/census.h"
#include "rendezvous/job/join_spec.h"
#include "rendezvous/net/asio.h"

namespace drun::rendezvous {

class Server {
 public:
  // on_finished: every member has read its outcome and gone, or the time for that has passed; once.
  // It may destroy the Server.
  // on_leader: this agent's endpoint, of several, has heard who coordinates the job; any number of
  // times, never before open returns.
  // lines: with spec.gathers_lines it gets those of all members.
  // on_trouble: why the coordinator is unknown (etcd cannot be reached); empty: it can again.
  using OnTrouble = std::function<void(const std::string& reason)>;
  using OnLeader = std::function<void(const Endpoint& leader, std::uint64_t term)>;
  static Result<std::unique_ptr<Server>> open(asio::io_context& io, const JoinSpec& spec, Log log,
                                              std::function<void()> on_finished,
                                              OnLeader on_leader = {}, LogSink* lines = nullptr,
                                              OnTrouble on_trouble = {});
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Where it listens in fact; what spec.endpoint.port = 0 became.
  std::uint16_t port() const;

  // The nodes that have joined, while this one waits for others (progress_text of
  // membership_text.h).
  std::optional<std::string> roll_call() const;

  // How the job is, as far as the coordinator knows by itself; nothing if it is not this one.
  std::optional<JobFacts> facts() const;

  // Lines that the taker got from that member have been passed on; `cost` as cost_bytes() counts.
  void lines_taken(std::uint64_t peer, std::size_t cost);

  // When the job has to be over; absent: no such time is known. May change at any time. Counts
  // while this agent coordinates the job.
  void set_deadline(std::optional<JobDeadline> deadline);

  // The agent that it belongs to has its outcome. False: drop it. True: on_finished will say when
  // all members have heard the end as well, or the electors of another coordinator that they may.
  bool coordinator_ended();

  // Whether it is the coordinator: always, unless others may be elected.
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
