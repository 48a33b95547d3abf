// edge. PMIx, as Open MPI 5 and other launchers speak it to each process that they start: one text
// from rank 0 to all, and how many there are.
//
// Shape:   every rank calls it once, rank 0 with the text; each gets that text.
// How:     a process of its own loads the launcher's library, talks, and ends: what
//          that library leaves behind, threads and descriptors, is not ours to live with.
// Thread:  the process has one only: it forks. Waits until all ranks have come, at most `limit`.
// Errors:  Unreachable: there is no such library here, or the launcher does not talk to it, or drun
//          was built without PMIx's headers; Refused: it reports an error; Timeout; System.
// Source:  the PMIx standard, version 2 and later: pmix.h. The library is loaded when it is needed;
//          its process is killed when this one ends.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "launcher/engines/engine_facts.h"

namespace drun::engines {

inline constexpr const char* kPmixLibrary = "libpmix.so.2";

// PMIx's headers were there when drun was built.
bool has_pmix();

Result<Met> meet_by_pmix(const std::optional<std::string>& told, std::chrono::milliseconds limit,
                         const std::string& library = kPmixLibrary);

}  // namespace drun::engines
