// core. The rules for joining a round: the only list of reasons to refuse a node.
#pragma once

#include <optional>

#include "rendezvous/coordinator/round.h"

namespace drun::rendezvous {

// Why `hello` cannot join, as the error that its sender gets (and the coordinator logs); nothing if
// it can, or if it is a joined member that reconnects while Joining.
std::optional<Error> objection(const RoundState& state, const Hello& hello);

// A probe that the coordinator's own agent sent, through a translated address.
bool is_own_probe(const RoundState& state, const Hello& hello);

}  // namespace drun::rendezvous
