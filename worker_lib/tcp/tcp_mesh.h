// edge. A mesh over TCP connections (frames.h).
//
// Progress:  the mesh has no thread. A thread that waits for a message polls for a short time,
//            then sleeps in epoll, and meanwhile makes progress for all messages of the mesh. A
//            message of at most kEagerBytes is handed to the system by send(), as far as the
//            system takes it, if the receiver's window has room and the connection needs no proof
//            any more. The rest, and larger messages, move while a thread of this rank waits.
// Locks:     one mutex protects everything. A thread that waits for a message handles the events of
//            all messages. Other waiting threads sleep on a condition variable meanwhile.
// Death:     a closed connection means that the peer's process has ended or its group has failed.
//            Messages that it sent before still arrive.
// Security:  nothing is encrypted. In a job with a secret, both ranks of a connection prove that
//            they have the job's worker key (frames.h). Otherwise a rank accepts connections that
//            begin with its random key, which is only in the store (docs/reference/security.md).
// Errors:    Timeout names the rank that was waited for. System, if this process has no descriptor
//            left for a connection, names the limit. A connection that breaks the protocol is
//            closed: PeerLost.
#pragma once

#include <memory>

#include "worker_lib/mesh/mesh.h"

namespace drun::worker {

// Listens, and exchanges the addresses with all ranks over the store, which is not used afterwards.
// Connections are made when they are needed; a lookout makes all of them here. Throws
// BackendFailure, or the store's WorkerError.
std::unique_ptr<Mesh> make_tcp_mesh(const BackendContext& context);

// A backend over such a mesh.
std::unique_ptr<Backend> connect_tcp(const BackendContext& context);

}  // namespace drun::worker
