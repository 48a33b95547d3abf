#include "worker_lib/probe/pairs.h"

#include <algorithm>
#include <set>

namespace drun::probe {
namespace {

// Edge e joins nodes e and e + 1. Even ones come first, then odd ones; the last of an odd number
// meets an even one at both ends.
int pass_of(int edge, int count) { return count % 2 == 1 && edge == count - 1 ? 2 : edge % 2; }

}  // namespace

std::vector<Pairing> pairings(int node, int count) {
  if (count < 2) return {};
  const int next = (node + 1) % count;
  const int before = (node + count - 1) % count;
  if (count == 2) return {{.with = next, .edge = 0, .is_first = node == 0}};
  std::vector<Pairing> both{{.with = next, .edge = node, .is_first = true},
                            {.with = before, .edge = before, .is_first = false}};
  std::sort(both.begin(), both.end(), [count](const Pairing& left, const Pairing& right) {
    return pass_of(left.edge, count) < pass_of(right.edge, count);
  });
  return both;
}

std::vector<int> visits_of(int node, int count) {
  std::set<int> others{0, (node + 1) % count, (node + count - 1) % count};
  for (int each = 0; node == 0 && each < count; ++each) others.insert(each);
  others.erase(node);
  return {others.begin(), others.end()};
}

}  // namespace drun::probe
