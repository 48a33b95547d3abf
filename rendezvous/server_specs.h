// edge. What the coordinator's parts are told, from how this node takes part in the job.
// Thread: any.
#pragma once

#include <chrono>
#include <cstdint>

#include "rendezvous/join_spec.h"
#include "rendezvous/listener.h"
#include "rendezvous/round/round_spec.h"
#include "rendezvous/store/message.h"

namespace drun::rendezvous {

ListenSpec listen_spec(const JoinSpec& spec);

// `port`: where it listens in fact.
RoundSpec round_spec(const JoinSpec& spec, std::uint16_t port);

// How long a vote lasts (election/election.h): a third of the heartbeat timeout, 200 ms to 5 s.
std::chrono::milliseconds election_lease(const JoinSpec& spec);

// How long etcd keeps a leader's key (etcd/campaign.h): half of the heartbeat timeout, 2 to 30 s.
std::chrono::seconds etcd_lease(const JoinSpec& spec);

// How long it keeps the job's state without a leader: as long as agents look for one, a minute to a
// day.
std::chrono::seconds etcd_keep(const JoinSpec& spec);

// Of the store that it serves.
StoreLimits store_limits(const JoinSpec& spec);

}  // namespace drun::rendezvous
