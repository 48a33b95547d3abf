// edge. The network of --local-nodes=N,netns: a network namespace for each node, each with one
// interface and one address, on a bridge in a namespace of its own. None has a name, and none is
// connected to this machine's network: descriptors of this process and the processes inside keep
// them, and they vanish with those, also after SIGKILL.
// Thread:  any.
// Errors:  Usage where this process may not make namespaces; System.
// Source:  veth(4), rtnetlink(7), network_namespaces(7).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/base/unique_fd.h"

namespace drun::hosts {

class LocalNetwork {
 public:
  struct Node {
    std::string address{};  // IPv4
  };
  static Result<LocalNetwork> make(const std::vector<Node>& nodes, const std::string& interface,
                                   int prefix_bits);

  int of_node(std::size_t node) const { return nodes_.at(node).get(); }

 private:
  UniqueFd hub_;
  std::vector<UniqueFd> nodes_;
};

}  // namespace drun::hosts
