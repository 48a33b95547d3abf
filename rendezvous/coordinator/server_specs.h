// edge. Makes the specs of the coordinator's parts from this node's JoinSpec.
#pragma once

#include <chrono>
#include <cstdint>

#include "rendezvous/coordinator/round_events.h"
#include "rendezvous/job/join_spec.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/store/message.h"

namespace drun::rendezvous {

ListenSpec listen_spec(const JoinSpec& spec);

// `port`: the port that it listens on.
RoundSpec round_spec(const JoinSpec& spec, std::uint16_t port);

// The limits of the store that it serves.
StoreLimits store_limits(const JoinSpec& spec);

}  // namespace drun::rendezvous
