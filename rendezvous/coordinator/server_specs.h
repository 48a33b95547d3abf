// edge. The specs of the coordinator's parts, made from this node's part in the job.
// Thread: any.
#pragma once

#include <chrono>
#include <cstdint>

#include "rendezvous/coordinator/round_events.h"
#include "rendezvous/job/join_spec.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/store/message.h"

namespace drun::rendezvous {

ListenSpec listen_spec(const JoinSpec& spec);

// `port`: where it listens in fact.
RoundSpec round_spec(const JoinSpec& spec, std::uint16_t port);

// Of the store that it serves.
StoreLimits store_limits(const JoinSpec& spec);

}  // namespace drun::rendezvous
