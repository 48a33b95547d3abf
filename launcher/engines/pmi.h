// edge. PMI-1, as Hydra speaks it to each process that it starts: one text from rank 0 to all.
//
// Shape:   every rank calls it once, rank 0 with the text; each gets that text. Lines of the form
//          "cmd=put kvsname=kvs_1 key=k value=v\n" over the inherited descriptor PMI_FD.
// Owner:   `fd` stays the caller's; workers do not inherit it.
// Thread:  any; waits until all ranks have come, at most `limit` for each answer.
// Errors:  Refused (what answers is not PMI-1, or says no), Timeout, Closed, System.
// Source:  MPICH's src/pmi, the protocol's version 1.1.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "rendezvous/base/result.h"

namespace drun::engines {

// A text has no blanks, and at most this many bytes: servers promise no more.
inline constexpr std::size_t kMostPmiBytes = 512;

Result<std::string> meet_by_pmi(int fd, const std::optional<std::string>& told,
                                std::chrono::milliseconds limit);

}  // namespace drun::engines
