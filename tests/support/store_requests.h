// Random requests to a store, for comparison tests and fuzz tests.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "rendezvous/store/message.h"

namespace drun {

using Random = std::mt19937_64;

inline std::size_t below(Random& random, std::size_t limit) { return random() % limit; }

// Few different keys, so that requests collide.
inline std::string random_key(Random& random) {
  return std::string(1, static_cast<char>('a' + below(random, 6)));
}
inline std::string random_value(Random& random) {
  const std::size_t kind = below(random, 4);
  if (kind == 0) return "";
  if (kind == 1) return std::to_string(below(random, 100));
  if (kind == 2) return std::string(below(random, 5000), 'v');
  return random_key(random);
}
inline std::vector<std::string> random_keys(Random& random) {
  std::vector<std::string> keys(below(random, 4));
  for (std::string& key : keys) key = random_key(random);
  return keys;
}

inline store::Request random_request(Random& random) {
  const std::string key = random_key(random);
  switch (below(random, 19)) {
    case 0:
      return store::Ping{static_cast<std::uint32_t>(random())};
    case 1:
      return store::Set{key, random_value(random)};
    case 2:
      return store::CompareSet{key, random_value(random), random_value(random)};
    case 3:
      return store::Get{key};
    case 4:
      return store::Add{key, static_cast<std::int64_t>(below(random, 9)) - 4};
    case 5:
      return store::Check{random_keys(random)};
    case 6:
      return store::Wait{random_keys(random)};
    case 7:
      return store::CancelWait{};
    case 8:
      return store::NumKeys{};
    case 9:
      return store::DeleteKey{key};
    case 10:
      return store::Append{key, random_value(random)};
    case 11:
      return store::MultiGet{random_keys(random)};
    case 12: {
      store::MultiSet set;
      for (const std::string& one : random_keys(random))
        set.entries.emplace_back(one, random_value(random));
      return set;
    }
    case 13:
      return store::QueuePush{key, random_value(random)};
    case 14:
      return store::QueuePop{key};
    case 15:
      return store::QueueLen{key};
    case 16:
      return store::ListKeys{};
    case 17:
      return store::DeleteKey{random_key(random)};
    default:
      return store::Barrier{"barrier" + key, static_cast<std::int64_t>(below(random, 5))};
  }
}

}  // namespace drun
