#include "rendezvous/job/slow_rank.h"

namespace drun {

std::string text_of(const SlowRank& slow) {
  const std::string node = "node " + std::to_string(slow.node_rank) + " (" + slow.host + ")";
  return (slow.rank ? "rank " + std::to_string(*slow.rank) + " on " + node : node) + " is " +
         std::to_string(slow.percent) + " % slower than the others: " + slow.evidence;
}

}  // namespace drun
