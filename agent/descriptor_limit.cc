#include "agent/descriptor_limit.h"

#include <sys/resource.h>

namespace drun::agent {

std::optional<std::uint64_t> raise_descriptor_limit() {
  rlimit before{};
  if (getrlimit(RLIMIT_NOFILE, &before) != 0 || before.rlim_cur >= before.rlim_max)
    return std::nullopt;
  rlimit raised = before;
  raised.rlim_cur = before.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &raised) != 0) return std::nullopt;
  return before.rlim_cur;
}

}  // namespace drun::agent
