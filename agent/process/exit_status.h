// core. Decodes the result of waitid(2): si_code is CLD_EXITED, CLD_KILLED or CLD_DUMPED; si_status
// is the exit code or the signal.
#pragma once

#include "rendezvous/job/outcome.h"

namespace drun::agent {

// Fields of siginfo_t, under other names because the system's are macros.
struct ChildEnd {
  int how = 0;     // si_code
  int status = 0;  // si_status
};

// Asserts that `how` is one of the three codes, because drun only waits for ended children.
ExitStatus decode(const ChildEnd& end);

}  // namespace drun::agent
