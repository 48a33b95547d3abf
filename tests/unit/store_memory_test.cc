// The memory that a store's clients can make it use.
#include "rendezvous/store/store.h"

#include <random>

#include "rendezvous/store/wire.h"
#include "tests/support/catch.h"
#include "tests/support/store_requests.h"

namespace drun {
namespace {

constexpr std::size_t kEntry = kStoreEntryBytes;

StoreLimits at_most(std::size_t bytes) {
  StoreLimits limits;
  limits.memory_bytes = bytes;
  return limits;
}

struct MemoryBench {
  explicit MemoryBench(std::size_t bytes) : store(at_most(bytes)) {}
  // Returns the error message, or an empty string on success.
  std::string ask(ConnectionId from, store::Request request) {
    replies.clear();
    const Result<void> result = store.apply(from, std::move(request), replies);
    return result ? "" : result.error().message;
  }
  std::size_t used() { return store.memory().used_bytes(); }

  Store store;
  std::vector<StoreReply> replies;
};

std::string text(std::size_t size) { return std::string(size, 'x'); }

}  // namespace

TEST_CASE("a key and its value count as their bytes plus a fixed overhead until they are deleted") {
  MemoryBench bench(1 << 20);
  CHECK(bench.ask(1, store::Set{"key", text(1000)}).empty());
  CHECK(bench.used() == 3 + 1000 + 2 * kEntry);
  CHECK(bench.ask(1, store::Set{"key", text(10)}).empty());
  CHECK(bench.used() == 3 + 10 + 2 * kEntry);
  CHECK(bench.ask(1, store::Append{"key", text(5)}).empty());
  CHECK(bench.used() == 3 + 15 + 2 * kEntry);
  CHECK(bench.ask(1, store::DeleteKey{"key"}).empty());
  CHECK(bench.used() == 0);
}

TEST_CASE(
    "a request beyond the memory limit is refused without effect, and others are still served") {
  MemoryBench bench(10'000);
  CHECK(bench.ask(1, store::Set{"a", text(5000)}).empty());
  const std::size_t before = bench.used();
  const store::Request too_much = GENERATE_COPY(
      store::Request(store::Set{"b", text(5000)}), store::Request(store::Append{"a", text(5000)}),
      store::Request(store::Append{"b", text(5000)}),
      store::Request(store::CompareSet{"b", "", text(5000)}),
      store::Request(store::MultiSet{{{"b", text(2500)}, {"c", text(2500)}}}),
      store::Request(store::QueuePush{"q", text(5000)}),
      store::Request(store::Wait{{text(4000), text(900) + "y"}}),
      store::Request(store::WatchKey{text(2500)}));
  const std::string reason = bench.ask(2, too_much);
  CHECK_THAT(reason, ContainsSubstring("beyond its limit of 10000 bytes; raise --store-memory"));
  CHECK(bench.replies.empty());
  CHECK(bench.used() == before);
  CHECK(bench.store.key_count() == 1);
  CHECK(bench.ask(1, store::Set{"b", text(10)}).empty());
  CHECK(bench.ask(1, store::Set{"a", text(6000)}).empty());  // replaces the old value
}

TEST_CASE("counters, barriers and lists of keys are refused in a full store") {
  MemoryBench bench(1000);
  CHECK(bench.ask(1, store::Set{"a", text(1000 - 2 * kEntry - 1)}).empty());
  CHECK_FALSE(bench.ask(1, store::Add{"n", 1}).empty());
  CHECK_FALSE(bench.ask(1, store::Barrier{"b", 2}).empty());
  CHECK_FALSE(bench.ask(1, store::ListKeys{}).empty());
  CHECK(bench.ask(1, store::Get{"a"}).empty());
  CHECK(bench.ask(1, store::Check{{"a", "b"}}).empty());
  CHECK(bench.ask(1, store::DeleteKey{"a"}).empty());
  CHECK(bench.ask(1, store::Add{"n", 1}).empty());
}

TEST_CASE("a replaced value counts as long as a reply holds it") {
  MemoryBench bench(1 << 20);
  CHECK(bench.ask(1, store::Set{"key", text(1000)}).empty());
  CHECK(bench.ask(2, store::Get{"key"}).empty());
  const std::vector<StoreReply> unsent = std::exchange(bench.replies, {});
  CHECK(bench.ask(1, store::Set{"key", text(10)}).empty());
  CHECK(bench.used() == 3 + 1010 + 3 * kEntry);
}

TEST_CASE("waits and watches count until their connection is closed") {
  MemoryBench bench(1 << 20);
  CHECK(bench.ask(1, store::Wait{{"a", "bb"}}).empty());
  CHECK(bench.used() == 3 + 2 * kEntry);
  CHECK(bench.ask(2, store::Wait{{"a"}}).empty());
  CHECK(bench.ask(2, store::WatchKey{"a"}).empty());
  CHECK(bench.ask(2, store::WatchKey{"a"}).empty());
  CHECK(bench.used() == 4 + 3 * kEntry + 2 * (1 + kEntry));
  CHECK(bench.ask(3, store::Set{"a", ""}).empty());
  CHECK(bench.used() == 2 + kEntry + 2 * (1 + kEntry) + 1 + 2 * kEntry);
  bench.store.forget(1);
  bench.store.forget(2);
  CHECK(bench.used() == 1 + 2 * kEntry);
}

TEST_CASE(
    "for random requests an empty store counts nothing and a full one stays within its limit") {
  const std::uint32_t seed = GENERATE(1u, 2u, 3u, 4u);
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto below = [&random](std::size_t n) { return random() % n; };
  const auto key = [&] { return std::string(1 + below(3), static_cast<char>('a' + below(3))); };
  MemoryBench bench(20'000);
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    const ConnectionId from = 1 + below(4);
    const std::vector<store::Request> requests{
        store::Set{key(), text(below(3000))},
        store::Append{key(), text(below(500))},
        store::CompareSet{key(), text(below(2)), text(below(2000))},
        store::DeleteKey{key()},
        store::Wait{{key(), key()}},
        store::CancelWait{},
        store::WatchKey{key()},
        store::QueuePush{key(), text(below(1000))},
        store::QueuePop{key()},
        store::Add{"n" + key(), 1},
        store::Barrier{"w" + key(), 3},
        store::MultiSet{{{key(), text(below(900))}, {key(), text(below(900))}}},
        store::MultiGet{{key(), key()}},
        store::ListKeys{}};
    refused += bench.ask(from, requests[below(requests.size())]).empty() ? 0 : 1;
    REQUIRE(bench.used() <= 20'000);
    if (below(20) == 0) bench.store.forget(from);
  }
  CHECK(refused > 0);
  bench.replies.clear();
  bench.store.clear();
  CHECK(bench.used() == 0);
}

TEST_CASE("a decoder reports how many bytes of a request have arrived") {
  RequestDecoder decoder{StoreLimits{}};
  std::string bytes(kValidate);
  REQUIRE(encode(store::Set{"key", text(5000)}, Dialect::Current, bytes));
  std::string_view half = std::string_view(bytes).substr(0, bytes.size() - 1);
  CHECK(std::holds_alternative<NeedMore>(decoder.next(half)));
  CHECK(decoder.held_bytes() == 3 + 4999 + 2 * sizeof(std::string));
  std::string_view rest = std::string_view(bytes).substr(bytes.size() - 1);
  CHECK(std::holds_alternative<store::Request>(decoder.next(rest)));
  CHECK(decoder.held_bytes() == 0);
}

}  // namespace drun
