#include "agent/process/exit_status.h"

#include <csignal>
#include <cstdlib>

namespace drun::agent {

ExitStatus decode(const ChildEnd& end) {
  switch (end.how) {
    case CLD_EXITED:
      return Exited{end.status};
    case CLD_KILLED:
      return Killed{.signal = end.status, .core_dumped = false};
    case CLD_DUMPED:
      return Killed{.signal = end.status, .core_dumped = true};
    default:
      std::abort();
  }
}

}  // namespace drun::agent
