// edge. A number that tells the agents of one job on one host apart, and that an agent which is
// started again gets again: the lowest that no living agent holds.
//
// How:     a socket name in the kernel's abstract namespace, gone with its process. Agents of
//          different network namespaces do not see each other's; their hosts differ.
// Owner:   the agent, for as long as it takes part.   Thread: any.
// Errors:  none; where such names are not to be had, the number is the process's own.
#pragma once

#include <string>
#include <utility>

#include "rendezvous/base/unique_fd.h"

namespace drun::agent {

class HostSlot {
 public:
  // `job`: whatever tells this job from others on this host.
  static HostSlot take(const std::string& job);
  int number() const { return number_; }

 private:
  HostSlot(UniqueFd fd, int number) : fd_(std::move(fd)), number_(number) {}
  UniqueFd fd_;
  int number_ = 0;
};

}  // namespace drun::agent
