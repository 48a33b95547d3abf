#include "worker_lib/tools/probe/pair_rate.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <set>
#include <vector>

#include "drun/process_group.h"

namespace drun::probe {
namespace {

// Edge e joins nodes e and e + 1. First the even ones, then the odd ones; the last of an odd number
// meets an even one at both ends.
int pass_of(int edge, int count) { return count % 2 == 1 && edge == count - 1 ? 2 : edge % 2; }

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kWaitAtMost{15'000};
constexpr std::chrono::milliseconds kPairAtMost{10'000};
constexpr std::size_t kElements = std::size_t{1} << 20;  // 4 MiB
constexpr int kBatches = 3;  // the best counts: others may be at work, too
constexpr double kBatchSeconds = 0.1;
constexpr double kMostRepeats = 200;

double timed(ProcessGroup& group, std::vector<float>& data, int repeats) {
  const auto began = Clock::now();
  for (int i = 0; i < repeats; ++i) group.all_reduce(data);
  return std::chrono::duration<double>(Clock::now() - began).count();
}

double gbytes_per_s(ProcessGroup& group) {
  std::vector<float> data(kElements, 0.0f);
  timed(group, data, 1);  // warm
  const double once = std::max(timed(group, data, 1), 1e-6);
  std::array<std::int32_t, 1> repeats{
      static_cast<std::int32_t>(std::clamp(kBatchSeconds / once, 1.0, kMostRepeats))};
  group.broadcast(repeats, 0);
  double shortest = timed(group, data, repeats[0]);
  for (int batch = 1; batch < kBatches; ++batch)
    shortest = std::min(shortest, timed(group, data, repeats[0]));
  return static_cast<double>(kElements * sizeof(float)) * repeats[0] / shortest / 1e9;
}

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

PairRate measure_pair(const Pairing& pairing, const std::shared_ptr<KeyStore>& store,
                      const std::string& network) {
  PairRate rate{.with = pairing.with, .gbytes_per_s = 0, .problem = {}};
  try {
    const auto own = make_prefix_key_store("pair/" + std::to_string(pairing.edge), store);
    own->set(pairing.is_first ? "first" : "second", "", kWaitAtMost);
    own->wait({pairing.is_first ? "second" : "first"}, kWaitAtMost);
    InitOptions options;
    options.backend = "tcp";
    options.rank = pairing.is_first ? 0 : 1;
    options.world_size = 2;
    options.timeout = kPairAtMost;
    options.store = own;
    options.network_interface = network;
    ProcessGroup group = ProcessGroup::connect(options);
    rate.gbytes_per_s = gbytes_per_s(group);
    group.barrier();
  } catch (const WorkerError& error) {
    rate.problem = error.message();
  }
  return rate;
}

}  // namespace drun::probe
