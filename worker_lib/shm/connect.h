// edge. Connects the ranks of a node so that they share memory.
//
//     rank 0: creates the memory, listens, puts the socket's name into the store, waits for all
//             ranks, then answers
//     others: read the name from the store, connect, send rank, size and the cores they are bound
//             to, and receive the memory and the cores of all, or an error
//
// Trust:   both sides accept only processes of the same user. Another process that knows the name
//          gets nothing and delays no rank.
// Ends:    the connections stay open, so that they show when a process ends: rank 0 has one to each
//          other rank, and the others have one to rank 0. (A forked child keeps its parent's
//          connections open: the group watches the processes as well.)
// Errors:  BackendFailure, on all connected ranks: Timeout with the missing ranks, PeerLost if one
//          of them has ended, or System if rank 0 has no descriptor for one; or the store's error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drun/backend.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_lib/base/cores.h"

namespace drun::worker::shm {

struct Lifelines {
  std::vector<UniqueFd> fds;
  std::vector<Lifeline> lines;  // refer to `fds`
};

struct Connection {
  UniqueFd segment;  // of the requested size
  UniqueFd regions;  // empty memory that can grow
  Lifelines lifelines;
  CoreMask cores{};  // all cores to which any rank is bound
};

Connection connect_ranks(const BackendContext& context, std::size_t segment_bytes);

// --- The handshake: the messages before the ranks share memory
//
// Messages have fixed sizes and this machine's byte order, because both ranks are on one machine.
// Incompatible builds differ in the segment's size.

// The first message of a rank.
struct Hello {
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint64_t segment_bytes = 0;
  CoreMask cores{};
  bool operator==(const Hello&) const = default;
};

std::string to_text(const Hello& hello);
// Absent if the text is invalid.
std::optional<Hello> parse_hello(std::string_view text);

// Whether rank 0 accepts this rank. `is_there`: the ranks that have connected so far.
bool has_place(const Hello& hello, std::uint64_t segment_bytes, const std::vector<bool>& is_there);

// Rank 0's answer; Yes is sent with the two descriptors of the memory.
struct Answer {
  enum class Kind {
    Yes,
    No,    // the rank does not fit into the group, or rank 0 has no descriptor for another one
    Late,  // other ranks have not connected in time
    Lost,  // another rank has ended before it connected
  };
  Kind kind = Kind::No;
  CoreMask cores{};       // for Yes: of all ranks
  std::int32_t lost = 0;  // for Lost: that rank
  std::string why{};      // except for Yes: the reason
  bool operator==(const Answer&) const = default;
};

std::string to_text(const Answer& answer);
// An invalid message gives No with the reason.
Answer parse_answer(std::string_view text, std::size_t descriptors);

}  // namespace drun::worker::shm
