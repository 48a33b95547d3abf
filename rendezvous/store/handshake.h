// edge. Gets a client connected to a TCPStore server of unknown age: finds it, and finds out what
// it speaks.
//
// Owner, thread: as StoreStream.
// Errors:  Unreachable, Timeout (it accepts and says nothing), Refused (it speaks something else);
//          messages name the endpoint.
#pragma once

#include <optional>

#include "rendezvous/endpoint.h"
#include "rendezvous/result.h"
#include "rendezvous/store/dialect.h"
#include "rendezvous/store/stream.h"

namespace drun {

struct StoreHandshake {
  StoreStream stream;
  Dialect dialect = Dialect::Current;
};

// Absent `dialect`: tries. Tries again with back-off until the deadline while nobody listens there.
Result<StoreHandshake> shake_hands(const Endpoint& endpoint, std::optional<Dialect> dialect,
                                   StoreStream::Time deadline);

}  // namespace drun
