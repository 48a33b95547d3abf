// edge. PMIx, spoken by Open MPI 5 and other launchers with each process that they start. Passes
// one text from rank 0 to all ranks, and reports their number.
//
// A child process loads the launcher's library, exchanges the text and exits, so that threads and
// descriptors of the library do not stay in this process. The child is killed when this process
// ends. See the PMIx standard, version 2 and later: pmix.h.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "launcher/engines/engine_facts.h"

namespace drun::engines {

inline constexpr const char* kPmixLibrary = "libpmix.so.2";

// Whether drun was built with PMIx's headers.
bool has_pmix();

Result<MeetingResult> meet_by_pmix(const std::optional<std::string>& told,
                                   std::chrono::milliseconds limit,
                                   const std::string& library = kPmixLibrary);

}  // namespace drun::engines
