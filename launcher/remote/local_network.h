// edge. The network of --local-nodes=N,netns: one network namespace per node, each with one
// interface and one address, on a bridge in a separate namespace. The namespaces have no names and
// no connection to this machine's network. Only descriptors of this process and the processes
// inside keep them alive, so they vanish with these, even after SIGKILL. See veth(4), rtnetlink(7),
// network_namespaces(7).
// Errors:  Usage if this process may not create namespaces; System.
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
