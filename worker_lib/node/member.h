// core. A backend of some of a group's ranks, which numbers them from 0.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "drun/backend.h"

namespace drun::worker {

struct Member {
  std::unique_ptr<Backend> backend;
  std::vector<int> ranks;  // the group's numbers of its ranks
  std::string what;        // "the leaders"
};

// `ranks`: with this one. `name`: the prefix of its keys in the store.
Member connect_member(const BackendContext& group, std::vector<int> ranks, std::string name,
                      std::string what, const BackendFactory& factory);

// The same failure with the group's ranks.
BackendFailure translated(const Member& member, const BackendFailure& failure);

// Runs an action on the backend. Its failures have the group's ranks.
template <typename Action>
auto within(const Member& member, Action&& action) {
  try {
    return action();
  } catch (const BackendFailure& failure) {
    throw translated(member, failure);
  }
}

}  // namespace drun::worker
