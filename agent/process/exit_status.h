// core. What waitid() said of a child, decoded once.
// Source: waitid(2): si_code is CLD_EXITED, CLD_KILLED or CLD_DUMPED; si_status is the code or the
// signal.
#pragma once

#include "rendezvous/job/outcome.h"

namespace drun::agent {

// siginfo_t's fields under other names: those of the system are macros.
struct ChildEnd {
  int how = 0;     // si_code
  int status = 0;  // si_status
};

// Any other `how` than those three is a broken invariant (drun only waits for ended children):
// asserted.
ExitStatus decode(const ChildEnd& end);

}  // namespace drun::agent
