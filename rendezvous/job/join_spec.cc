#include "rendezvous/job/join_spec.h"

#include <algorithm>

namespace drun::rendezvous {

std::chrono::milliseconds election_lease(const JoinSpec& spec) {
  return std::clamp<std::chrono::milliseconds>(
      spec.heartbeat_timeout / 3, std::chrono::milliseconds(200), std::chrono::seconds(5));
}

std::chrono::seconds etcd_lease(const JoinSpec& spec) {
  return std::clamp(std::chrono::floor<std::chrono::seconds>(spec.heartbeat_timeout / 2),
                    std::chrono::seconds(2), std::chrono::seconds(30));
}

std::chrono::seconds etcd_keep(const JoinSpec& spec) {
  return std::clamp<std::chrono::seconds>(
      std::chrono::ceil<std::chrono::seconds>(spec.join_timeout), std::chrono::minutes(1),
      std::chrono::hours(24));
}

}  // namespace drun::rendezvous
