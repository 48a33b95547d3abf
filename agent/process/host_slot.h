// edge. A number that distinguishes the agents of one job on a host: the lowest that no living
// agent holds, so that a restarted agent usually gets its number again.
//
// Implemented by a socket name in the kernel's abstract namespace, which ends with its process.
// Agents in different network namespaces do not see each other's numbers; they count as different
// hosts.
// Errors:  none; if such names are not available, the number is unique to this process only.
#pragma once

#include <string>
#include <utility>

#include "rendezvous/base/unique_fd.h"

namespace drun::agent {

class HostSlot {
 public:
  // `job`: identifies the job on this host.
  static HostSlot take(const std::string& job);
  int number() const { return number_; }

 private:
  HostSlot(UniqueFd fd, int number) : fd_(std::move(fd)), number_(number) {}
  UniqueFd fd_;
  int number_ = 0;
};

}  // namespace drun::agent
