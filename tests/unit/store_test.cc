#include "rendezvous/store/store.h"

#include <algorithm>
#include <map>

#include "tests/support/answer_bytes.h"
#include "tests/support/catch.h"

namespace drun {
namespace {

// Collects the bytes sent to each connection, as readable text.
class Bench {
 public:
  explicit Bench(const StoreLimits& limits = {}) : store(limits) {}

  // Returns what this request sent, by connection.
  std::map<ConnectionId, std::string> ask(ConnectionId from, store::Request request) {
    std::vector<StoreReply> replies;
    const Result<void> result = store.apply(from, std::move(request), replies);
    error = result ? "" : result.error().message;
    if (!result) CHECK(replies.empty());
    std::map<ConnectionId, std::string> sent;
    for (const StoreReply& reply : replies) sent[reply.to] += test::answer_bytes(reply.answer);
    return sent;
  }
  // Returns the one reply, which is a blob.
  std::string blob(ConnectionId from, store::Request request) {
    const std::string bytes = ask(from, std::move(request))[from];
    REQUIRE(bytes.size() >= 8);
    return bytes.substr(8);
  }
  std::int64_t number(ConnectionId from, store::Request request) {
    const std::string bytes = ask(from, std::move(request))[from];
    REQUIRE(bytes.size() == 8);
    std::int64_t value = 0;
    for (std::size_t i = 8; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return value;
  }

  Store store;
  std::string error;
};

using Sent = std::map<ConnectionId, std::string>;
const std::string kStop(1, '\0');
const std::string kCanceled(1, '\1');

}  // namespace

TEST_CASE("a stored value is returned, and a missing one is empty") {
  Bench bench;
  CHECK(bench.ask(1, store::Set{"k", "v"}).empty());
  CHECK(bench.blob(2, store::Get{"k"}) == "v");
  CHECK(bench.blob(2, store::Get{"other"}).empty());
  bench.ask(1, store::Set{"k", ""});
  CHECK(bench.blob(2, store::Get{"k"}).empty());
  CHECK(bench.number(1, store::NumKeys{}) == 1);
}

TEST_CASE("ADD starts at zero and uses decimal text as std::stoll parses it") {
  Bench bench;
  CHECK(bench.number(1, store::Add{"n", 5}) == 5);
  CHECK(bench.number(1, store::Add{"n", -7}) == -2);
  CHECK(bench.blob(1, store::Get{"n"}) == "-2");
  const auto [text, sum] = GENERATE(table<std::string, std::int64_t>(
      {{"12xyz", 13}, {"  7", 8}, {"+5", 6}, {"-3", -2}, {"0x10", 1}, {"\t-0", 1}}));
  bench.ask(1, store::Set{"n", text});
  CHECK(bench.number(1, store::Add{"n", 1}) == sum);
}

TEST_CASE("ADD to a value that is not a number is refused and changes nothing") {
  Bench bench;
  const std::string text = GENERATE("", "x1", "+-5", "-", "  ", "99999999999999999999");
  bench.ask(1, store::Set{"n", text});
  CHECK(bench.ask(1, store::Add{"n", 1}).empty());
  CHECK_THAT(bench.error, ContainsSubstring("\"n\""));
  CHECK(bench.blob(1, store::Get{"n"}) == text);
  CHECK(bench.ask(1, store::Barrier{"n", 2}).empty());
  CHECK_FALSE(bench.error.empty());
}

TEST_CASE("ADD beyond the largest number wraps around") {
  Bench bench;
  bench.ask(1, store::Set{"n", "9223372036854775807"});
  CHECK(bench.number(1, store::Add{"n", 1}) == INT64_MIN);
}

TEST_CASE("COMPARE_SET stores only if the value is as expected, and echoes it for a missing key") {
  Bench bench;
  CHECK(bench.blob(1, store::CompareSet{"k", "x", "new"}) == "x");
  CHECK(bench.number(1, store::NumKeys{}) == 0);
  CHECK(bench.blob(1, store::CompareSet{"k", "", "a"}) == "a");
  CHECK(bench.blob(1, store::CompareSet{"k", "b", "c"}) == "a");
  CHECK(bench.blob(1, store::CompareSet{"k", "", "c"}) == "a");
  CHECK(bench.blob(1, store::CompareSet{"k", "a", "c"}) == "c");
  CHECK(bench.blob(1, store::Get{"k"}) == "c");
}

TEST_CASE("a wait is woken by each operation that creates its key") {
  Bench bench;
  const store::Request maker = GENERATE(
      store::Request(store::Set{"k", ""}), store::Request(store::Add{"k", 1}),
      store::Request(store::CompareSet{"k", "", "v"}), store::Request(store::Append{"k", "v"}),
      store::Request(store::MultiSet{{{"a", "1"}, {"k", "2"}}}),
      store::Request(store::QueuePush{"k", "v"}), store::Request(store::Barrier{"k", 1}));
  CHECK(bench.ask(1, store::Wait{{"k"}}).empty());
  CHECK(bench.ask(2, maker)[1] == kStop);
  CHECK(bench.store.waiting_count() == 0);
}

TEST_CASE("a wait ends when every missing key has been created, in any order") {
  Bench bench;
  bench.ask(9, store::Set{"there", ""});
  CHECK(bench.ask(1, store::Wait{{"a", "there", "b"}}).empty());
  const bool is_b_first = GENERATE(true, false);
  CHECK(bench.ask(9, store::Set{is_b_first ? "b" : "a", ""}).empty());
  SECTION("even if one was deleted meanwhile") {
    bench.ask(9, store::DeleteKey{is_b_first ? "b" : "a"});
  }
  CHECK(bench.ask(9, store::Set{is_b_first ? "a" : "b", ""}) == Sent{{1, kStop}});
  CHECK(bench.ask(9, store::Set{"a", ""}).empty());
}

TEST_CASE("a wait for no keys or for existing keys ends at once") {
  Bench bench;
  CHECK(bench.ask(1, store::Wait{}) == Sent{{1, kStop}});
  CHECK(bench.ask(1, store::Check{}) == Sent{{1, std::string(1, '\0')}});
  bench.ask(1, store::Set{"k", ""});
  CHECK(bench.ask(1, store::Wait{{"k", "k"}}) == Sent{{1, kStop}});
}

TEST_CASE("CHECK returns 0 if all keys or queues exist, and 1 otherwise") {
  Bench bench;
  CHECK(bench.ask(1, store::Check{{"k"}}) == Sent{{1, "\1"}});
  bench.ask(1, store::Set{"k", ""});
  CHECK(bench.ask(1, store::Check{{"k"}}) == Sent{{1, std::string(1, '\0')}});
  CHECK(bench.ask(1, store::Check{{"k", "q"}}) == Sent{{1, "\1"}});
  bench.ask(1, store::QueuePush{"q", ""});
  CHECK(bench.ask(1, store::Check{{"k", "q"}}) == Sent{{1, std::string(1, '\0')}});
}

TEST_CASE("each CANCEL_WAIT is answered once, and no wake follows it") {
  Bench bench;
  CHECK(bench.ask(1, store::CancelWait{}) == Sent{{1, kCanceled}});
  bench.ask(1, store::Wait{{"k"}});
  CHECK(bench.ask(1, store::CancelWait{}) == Sent{{1, kCanceled}});
  CHECK(bench.ask(1, store::CancelWait{}) == Sent{{1, kCanceled}});
  CHECK(bench.ask(2, store::Set{"k", ""}).empty());
}

TEST_CASE("a new wait replaces the old one") {
  Bench bench;
  bench.ask(1, store::Wait{{"a", "b"}});
  bench.ask(1, store::Wait{{"b", "b"}});
  CHECK(bench.ask(2, store::Set{"a", ""}).empty());
  CHECK(bench.ask(2, store::Set{"b", ""}) == Sent{{1, kStop}});
  bench.ask(1, store::Wait{{"c"}});
  CHECK(bench.ask(1, store::Wait{{"a"}}) == Sent{{1, kStop}});
  CHECK(bench.ask(2, store::Set{"c", ""}).empty());
}

TEST_CASE("a closed connection has no waits and no watches") {
  Bench bench;
  bench.ask(1, store::Wait{{"a", "b", "a"}});
  bench.ask(1, store::WatchKey{"w"});
  bench.store.forget(1);
  bench.store.forget(1);
  CHECK(bench.store.waiting_count() == 0);
  CHECK(bench.ask(2, store::MultiSet{{{"a", ""}, {"b", ""}, {"w", ""}}}).empty());
}

TEST_CASE("DELETE_KEY returns the number of deleted keys and wakes no wait") {
  Bench bench;
  CHECK(bench.number(1, store::DeleteKey{"k"}) == 0);
  bench.ask(1, store::Set{"k", "v"});
  CHECK(bench.number(1, store::DeleteKey{"k"}) == 1);
  CHECK(bench.number(1, store::NumKeys{}) == 0);
}

TEST_CASE("APPEND extends a value up to the limit, without changing replies sent before") {
  StoreLimits limits;
  limits.value_bytes = 6;
  Bench bench(limits);
  bench.ask(1, store::Append{"k", "ab"});
  std::vector<StoreReply> before;
  REQUIRE(bench.store.apply(1, store::Get{"k"}, before));
  bench.ask(1, store::Append{"k", "cdef"});
  CHECK(*std::get<Blob>(before.at(0).answer) == "ab");
  CHECK(bench.blob(1, store::Get{"k"}) == "abcdef");
  bench.ask(1, store::Append{"k", "g"});
  CHECK_THAT(bench.error, ContainsSubstring("longer than 6 bytes"));
  CHECK(bench.blob(1, store::Get{"k"}) == "abcdef");
}

TEST_CASE("MULTI_GET answers in the order of the keys") {
  Bench bench;
  bench.ask(1, store::MultiSet{{{"a", "x"}, {"b", "yy"}}});
  const std::string bytes = bench.ask(1, store::MultiGet{{"b", "none", "a", "b"}})[1];
  CHECK(bytes == std::string("\2\0\0\0\0\0\0\0yy", 10) + std::string(8, '\0') +
                     std::string("\1\0\0\0\0\0\0\0x", 9) + std::string("\2\0\0\0\0\0\0\0yy", 10));
}

TEST_CASE("a queue returns values in the order of pushes and does not count as a key") {
  Bench bench;
  CHECK(bench.number(1, store::QueueLen{"q"}) == 0);
  CHECK(bench.number(1, store::QueuePop{"q"}) == 0);
  bench.ask(1, store::QueuePush{"q", "a"});
  bench.ask(1, store::QueuePush{"q", "b"});
  CHECK(bench.number(1, store::QueueLen{"q"}) == 2);
  CHECK(bench.number(1, store::NumKeys{}) == 0);
  CHECK(bench.ask(1, store::QueuePop{"q"})[1] ==
        std::string("\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0a", 17));
  CHECK(bench.ask(1, store::QueuePop{"q"})[1] ==
        std::string("\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0b", 17));
  CHECK(bench.number(1, store::QueuePop{"q"}) == 0);
}

TEST_CASE("a push wakes only the oldest waiter") {
  Bench bench;
  bench.ask(1, store::Wait{{"q"}});
  bench.ask(2, store::Wait{{"q"}});
  CHECK(bench.ask(3, store::QueuePush{"q", "a"}) == Sent{{1, kStop}});
  CHECK(bench.ask(3, store::QueuePush{"q", "b"}) == Sent{{2, kStop}});
}

TEST_CASE("LIST_KEYS returns every key unchanged, with or without slashes") {
  Bench bench;
  bench.ask(1, store::Add{"init/", 1});
  bench.ask(1, store::Set{"//a", ""});
  std::vector<StoreReply> replies;
  REQUIRE(bench.store.apply(1, store::ListKeys{}, replies));
  std::vector<std::string> keys = std::get<store::Keys>(replies.at(0).answer).keys;
  std::sort(keys.begin(), keys.end());
  CHECK(keys == std::vector<std::string>{"//a", "init/"});
}

TEST_CASE("a barrier releases all when the last one arrives, and later arrivals at once") {
  Bench bench;
  CHECK(bench.ask(1, store::Barrier{"b", 3}).empty());
  CHECK(bench.blob(9, store::Get{"b"}) == "1");
  CHECK(bench.ask(2, store::Barrier{"b", 3}).empty());
  CHECK(bench.ask(3, store::Barrier{"b", 3}) == Sent{{1, kStop}, {2, kStop}, {3, kStop}});
  CHECK(bench.ask(4, store::Barrier{"b", 3}) == Sent{{4, kStop}});
}

TEST_CASE("a connection that cancels a barrier still counts but is not woken") {
  Bench bench;
  bench.ask(1, store::Barrier{"b", 2});
  CHECK(bench.ask(1, store::CancelWait{}) == Sent{{1, kCanceled}});
  CHECK(bench.ask(2, store::Barrier{"b", 2}) == Sent{{2, kStop}});
}

TEST_CASE("the first arrival at a barrier ends a plain wait for its key") {
  Bench bench;
  bench.ask(1, store::Wait{{"b"}});
  CHECK(bench.ask(2, store::Barrier{"b", 2}) == Sent{{1, kStop}});
}

TEST_CASE("a watch reports each change of its key with both values") {
  Bench bench;
  CHECK(bench.ask(1, store::WatchKey{"k"}) == Sent{{1, "\3"}});
  CHECK(bench.ask(1, store::WatchKey{"k"}) == Sent{{1, "\3"}});
  const std::string key("\1\0\0\0\0\0\0\0k", 9);
  const std::string a("\1\0\0\0\0\0\0\0a", 9);
  const std::string ab("\2\0\0\0\0\0\0\0ab", 10);
  const std::string none(8, '\0');
  CHECK(bench.ask(2, store::Set{"k", "a"}) == Sent{{1, "\1" + key + none + a}});
  CHECK(bench.ask(2, store::Append{"k", "b"}) == Sent{{1, std::string(1, '\0') + key + a + ab}});
  CHECK(bench.ask(2, store::DeleteKey{"k"})[1] == "\2" + key + ab + none);
}

TEST_CASE("a cleared store has no keys, queues, waits or watches") {
  Bench bench;
  bench.ask(1, store::Set{"k", "v"});
  bench.ask(1, store::QueuePush{"q", "v"});
  bench.ask(1, store::WatchKey{"n"});
  bench.ask(2, store::Wait{{"n"}});
  bench.ask(3, store::Barrier{"b", 2});
  bench.store.clear();
  CHECK(bench.store.waiting_count() == 0);
  CHECK(bench.number(4, store::NumKeys{}) == 0);
  CHECK(bench.number(4, store::QueueLen{"q"}) == 0);
  CHECK(bench.ask(4, store::Set{"n", ""}).empty());
  CHECK(bench.ask(4, store::Barrier{"b", 2}).empty());
}

TEST_CASE("the cost of waiting, waking and leaving depends only on the connection's own keys") {
  // A quadratic step in any of the three would take minutes here.
  constexpr ConnectionId kConnections = 100'000;
  Bench bench;
  std::vector<StoreReply> replies;
  for (ConnectionId id = 0; id < kConnections; ++id) {
    REQUIRE(bench.store.apply(id, store::Wait{{"all", "own" + std::to_string(id)}}, replies));
    REQUIRE(bench.store.apply(id, store::WatchKey{"watched"}, replies));
  }
  replies.clear();
  REQUIRE(bench.store.apply(0, store::Set{"all", ""}, replies));
  CHECK(replies.empty());
  for (ConnectionId id = 0; id < kConnections; id += 2) bench.store.forget(id);
  for (ConnectionId id = 1; id < kConnections; id += 2) {
    REQUIRE(bench.store.apply(0, store::Set{"own" + std::to_string(id), ""}, replies));
  }
  CHECK(replies.size() == kConnections / 2);
  std::vector<std::string> many;
  for (int i = 0; i < 100'000; ++i) many.push_back("many" + std::to_string(i));
  REQUIRE(bench.store.apply(1, store::Wait{many}, replies));
  for (std::string& key : many) REQUIRE(bench.store.apply(2, store::Set{key, ""}, replies));
  CHECK(bench.store.waiting_count() == 0);
  for (int i = 0; i < 100'000; ++i) {
    REQUIRE(bench.store.apply(2, store::Append{"log", "0123456789"}, replies));
  }
}

}  // namespace drun
