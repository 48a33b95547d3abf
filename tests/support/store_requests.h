// Requests to a store: their bytes, and random ones for comparison tests and
// fuzz tests.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rendezvous/store/message.h"
#include "rendezvous/store/wire.h"

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

// --- Requests as bytes

inline void put_keys(std::string& out, const std::vector<std::string>& keys) {
  put_u64(out, keys.size());
  for (const std::string& key : keys) put_text(out, key);
}

struct FieldsWriter {
  std::string& out;

  void operator()(const store::Ping& r) { put_u32(out, r.nonce); }
  void operator()(const store::Set& r) { texts({r.key, r.value}); }
  void operator()(const store::CompareSet& r) { texts({r.key, r.expected, r.desired}); }
  void operator()(const store::Get& r) { texts({r.key}); }
  void operator()(const store::Add& r) {
    texts({r.key});
    put_u64(out, static_cast<std::uint64_t>(r.delta));
  }
  void operator()(const store::Check& r) { put_keys(out, r.keys); }
  void operator()(const store::Wait& r) { put_keys(out, r.keys); }
  void operator()(const store::CancelWait&) {}
  void operator()(const store::NumKeys&) {}
  void operator()(const store::WatchKey& r) { texts({r.key}); }
  void operator()(const store::DeleteKey& r) { texts({r.key}); }
  void operator()(const store::Append& r) { texts({r.key, r.bytes}); }
  void operator()(const store::MultiGet& r) { put_keys(out, r.keys); }
  void operator()(const store::MultiSet& r) {
    put_u64(out, r.entries.size());
    for (const auto& [key, value] : r.entries) texts({key, value});
  }
  void operator()(const store::QueuePush& r) { texts({r.queue, r.value}); }
  void operator()(const store::QueuePop& r) { texts({r.queue}); }
  void operator()(const store::QueueLen& r) { texts({r.queue}); }
  void operator()(const store::ListKeys&) {}
  void operator()(const store::Barrier& r) {
    texts({r.key});
    put_u64(out, static_cast<std::uint64_t>(r.world_size));
  }

  void texts(std::initializer_list<std::string_view> list) {
    for (const std::string_view text : list) put_text(out, text);
  }
};

// In the order of store::Request's alternatives.
inline constexpr Opcode kOpcodes[] = {
    Opcode::Ping,      Opcode::Set,      Opcode::CompareSet, Opcode::Get,      Opcode::Add,
    Opcode::Check,     Opcode::Wait,     Opcode::CancelWait, Opcode::NumKeys,  Opcode::WatchKey,
    Opcode::DeleteKey, Opcode::Append,   Opcode::MultiGet,   Opcode::MultiSet, Opcode::QueuePush,
    Opcode::QueuePop,  Opcode::QueueLen, Opcode::ListKeys,   Opcode::Barrier};
static_assert(std::size(kOpcodes) == std::variant_size_v<store::Request>);

// Returns false, and appends nothing, if the dialect has no such operation.
[[nodiscard]] inline bool encode(const store::Request& request, Dialect dialect, std::string& out) {
  const std::optional<std::uint8_t> byte = to_byte(kOpcodes[request.index()], dialect);
  if (!byte) return false;
  out.push_back(static_cast<char>(*byte));
  std::visit(FieldsWriter{out}, request);
  return true;
}

}  // namespace drun
