// core. drun's exit codes, which are a public interface: see docs/reference/exit-codes.md.
#pragma once

#include "launcher/cli/options.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/outcome.h"

namespace drun {

inline constexpr int kUsage = 2;
inline constexpr int kRendezvousTimeout = 120;
inline constexpr int kRendezvousRefused = 121;
inline constexpr int kNodeLost = 122;
inline constexpr int kPreempted = 124;
inline constexpr int kSystemError = 125;
inline constexpr int kNotExecutable = 126;
inline constexpr int kNotFound = 127;

// 0 only for Succeeded. In torchrun's style all failures give 1, and usage errors give 2.
int exit_code(const Outcome& outcome, ExitCodeStyle style);
int exit_code(const Error& error, ExitCodeStyle style);

}  // namespace drun
