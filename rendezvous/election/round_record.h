// core. What a coordinator leaves to the next one about the rounds so far. Who is elected by votes
// leaves their count alone, and the rest is forgotten or told by members (past.h); etcd keeps it
// all. Owner:   values; copy freely.   Thread: any.
#pragma once

#include "rendezvous/round/exclusion.h"

namespace drun::rendezvous {

struct RoundRecord {
  int rounds = 0;    // that have begun, or are about to
  int restarts = 0;  // used up
  Exclusions exclusions{};
  bool operator==(const RoundRecord&) const = default;
};

}  // namespace drun::rendezvous
