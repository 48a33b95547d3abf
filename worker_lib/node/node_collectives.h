// core. The collectives of a group over several nodes. Each consists of collectives of the ranks of
// one node, of a rail, or of all ranks.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "drun/backend.h"
#include "worker_lib/node/node_layout.h"

namespace drun::worker {

// A backend of some of a group's ranks, which numbers them from 0.
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

// The backends of one rank.
struct NodeMembers {
  Member all;
  Member node;  // none: this rank is alone on its node
  Member rail;  // the ranks with this local rank; none: this rank has no peer on some node
};

// Thread:  one at a time. With `overlaps`, the first large all_reduce starts another thread, which
//          exchanges data between the nodes while the ranks of a node work on other data.
// Errors:  throws BackendFailure. After a failure that thread runs until the members are aborted.
class NodeCollectives {
 public:
  // Waits for the thread: if an operation has failed, requires that the members are aborted.
  virtual ~NodeCollectives() = default;
  virtual void run(const Call& call, const Turn& turn) = 0;
};

struct NodeOptions {
  bool is_debug = false;  // the ranks compare their calls first; the same on all ranks
  bool overlaps = false;
};

// The layout and the members must outlive it.
std::unique_ptr<NodeCollectives> make_node_collectives(const NodeLayout& layout,
                                                       const NodeMembers& members, int rank,
                                                       NodeOptions options);

// The number of one of the members' collectives that belong to one of the group's.
Turn numbered(const NodeLayout& layout, const Turn& turn, std::size_t which);

}  // namespace drun::worker
