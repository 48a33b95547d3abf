#include "rendezvous/store/store.h"

#include <algorithm>
#include <map>

#include "tests/support/answer_bytes.h"
#include "tests/support/catch.h"

namespace drun {
namespace {

// The bytes that each connection was sent, as text that reads well in a test: "01", "7" ...
class Bench {
 public:
  explicit Bench(const StoreLimits& limits = {}) : store(limits) {}

  // What was sent by this request, to anybody.
  std::map<ConnectionId, std::string> ask(ConnectionId from, store::Request request) {
    std::vector<StoreReply> replies;
    const Result<void> result = store.apply(from, std::move(request), replies);
    error = result ? "" : result.error().message;
    if (!result) CHECK(replies.empty());
    std::map<ConnectionId, std::string> sent;
    for (const StoreReply& reply : replies) sent[reply.to] += test::answer_bytes(reply.answer);
    return sent;
  }
  // The one answer, a blob.
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

TEST_CASE("a value that was set can be got, and a missing one is empty") {
  Bench bench;
  CHECK(bench.ask(1, store::Set{"k", "v"}).empty());
  CHECK(bench.blob(2, store::Get{"k"}) == "v");
  CHECK(bench.blob(2, store::Get{"other"}).empty());
  bench.ask(1, store::Set{"k", ""});
  CHECK(bench.blob(2, store::Get{"k"}).empty());
  CHECK(bench.number(1, store::NumKeys{}) == 1);
}

TEST_CASE("ADD counts from nothing, in decimal text, as stoll reads it") {
  Bench bench;
  CHECK(bench.number(1, store::Add{"n", 5}) == 5);
  CHECK(bench.number(1, store::Add{"n", -7}) == -2);
  CHECK(bench.blob(1, store::Get{"n"}) == "-2");
  const auto [text, sum] = GENERATE(table<std::string, std::int64_t>(
      {{"12xyz", 13}, {"  7", 8}, {"+5", 6}, {"-3", -2}, {"0x10", 1}, {"\t-0", 1}}));
  bench.ask(1, store::Set{"n", text});
  CHECK(bench.number(1, store::Add{"n", 1}) == sum);
}

TEST_CASE("ADD to something that is no number is refused and changes nothing") {
  Bench bench;
  const std::string text = GENERATE("", "x1", "+-5", "-", "  ", "99999999999999999999");
  bench.ask(1, store::Set{"n", text});
  CHECK(bench.ask(1, store::Add{"n", 1}).empty());
  CHECK_THAT(bench.error, ContainsSubstring("\"n\""));
  CHECK(bench.blob(1, store::Get{"n"}) == text);
  CHECK(bench.ask(1, store::Barrier{"n", 2}).empty());
  CHECK_FALSE(bench.error.empty());
}

TEST_CASE("ADD beyond the largest number goes round like the machine's addition") {
  Bench bench;
  bench.ask(1, store::Set{"n", "9223372036854775807"});
  CHECK(bench.number(1, store::Add{"n", 1}) == INT64_MIN);
}

TEST_CASE("COMPARE_SET stores only what was expected, and lies about a missing key") {
  Bench bench;
  CHECK(bench.blob(1, store::CompareSet{"k", "x", "new"}) == "x");
  CHECK(bench.number(1, store::NumKeys{}) == 0);
  CHECK(bench.blob(1, store::CompareSet{"k", "", "a"}) == "a");
  CHECK(bench.blob(1, store::CompareSet{"k", "b", "c"}) == "a");
  CHECK(bench.blob(1, store::CompareSet{"k", "", "c"}) == "a");
  CHECK(bench.blob(1, store::CompareSet{"k", "a", "c"}) == "c");
  CHECK(bench.blob(1, store::Get{"k"}) == "c");
}

TEST_CASE("whoever waits is woken by each operation that makes its key") {
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

TEST_CASE("a wait ends when every missing key was made once, in any order") {
  Bench bench;
  bench.ask(9, store::Set{"there", ""});
  CHECK(bench.ask(1, store::Wait{{"a", "there", "b"}}).empty());
  const bool is_b_first = GENERATE(true, false);
  CHECK(bench.ask(9, store::Set{is_b_first ? "b" : "a", ""}).empty());
  SECTION("also when one was deleted again meanwhile") {
    bench.ask(9, store::DeleteKey{is_b_first ? "b" : "a"});
  }
  CHECK(bench.ask(9, store::Set{is_b_first ? "a" : "b", ""}) == Sent{{1, kStop}});
  CHECK(bench.ask(9, store::Set{"a", ""}).empty());
}

TEST_CASE("a wait for nothing, or for what is there, ends at once") {
  Bench bench;
  CHECK(bench.ask(1, store::Wait{}) == Sent{{1, kStop}});
  CHECK(bench.ask(1, store::Check{}) == Sent{{1, std::string(1, '\0')}});
  bench.ask(1, store::Set{"k", ""});
  CHECK(bench.ask(1, store::Wait{{"k", "k"}}) == Sent{{1, kStop}});
}

TEST_CASE("CHECK says 0 if all are there, queues included, else 1") {
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

TEST_CASE("a new wait takes the place of the old one") {
  Bench bench;
  bench.ask(1, store::Wait{{"a", "b"}});
  bench.ask(1, store::Wait{{"b", "b"}});
  CHECK(bench.ask(2, store::Set{"a", ""}).empty());
  CHECK(bench.ask(2, store::Set{"b", ""}) == Sent{{1, kStop}});
  bench.ask(1, store::Wait{{"c"}});
  CHECK(bench.ask(1, store::Wait{{"a"}}) == Sent{{1, kStop}});
  CHECK(bench.ask(2, store::Set{"c", ""}).empty());
}

TEST_CASE("a connection that is gone waits for nothing and watches nothing") {
  Bench bench;
  bench.ask(1, store::Wait{{"a", "b", "a"}});
  bench.ask(1, store::WatchKey{"w"});
  bench.store.forget(1);
  bench.store.forget(1);
  CHECK(bench.store.waiting_count() == 0);
  CHECK(bench.ask(2, store::MultiSet{{{"a", ""}, {"b", ""}, {"w", ""}}}).empty());
}

TEST_CASE("DELETE_KEY counts, and wakes nobody") {
  Bench bench;
  CHECK(bench.number(1, store::DeleteKey{"k"}) == 0);
  bench.ask(1, store::Set{"k", "v"});
  CHECK(bench.number(1, store::DeleteKey{"k"}) == 1);
  CHECK(bench.number(1, store::NumKeys{}) == 0);
}

TEST_CASE("APPEND grows a value, not those who got it before, and not beyond the limit") {
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

TEST_CASE("a queue gives out what was pushed, oldest first, and is no key") {
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

TEST_CASE("a push wakes one waiter, the one that has waited longest") {
  Bench bench;
  bench.ask(1, store::Wait{{"q"}});
  bench.ask(2, store::Wait{{"q"}});
  CHECK(bench.ask(3, store::QueuePush{"q", "a"}) == Sent{{1, kStop}});
  CHECK(bench.ask(3, store::QueuePush{"q", "b"}) == Sent{{2, kStop}});
}

TEST_CASE("LIST_KEYS gives every key as it is, slash or not") {
  Bench bench;
  bench.ask(1, store::Add{"init/", 1});
  bench.ask(1, store::Set{"//a", ""});
  std::vector<StoreReply> replies;
  REQUIRE(bench.store.apply(1, store::ListKeys{}, replies));
  std::vector<std::string> keys = std::get<store::Keys>(replies.at(0).answer).keys;
  std::sort(keys.begin(), keys.end());
  CHECK(keys == std::vector<std::string>{"//a", "init/"});
}

TEST_CASE("a barrier lets everybody go when the last one comes, and later ones at once") {
  Bench bench;
  CHECK(bench.ask(1, store::Barrier{"b", 3}).empty());
  CHECK(bench.blob(9, store::Get{"b"}) == "1");
  CHECK(bench.ask(2, store::Barrier{"b", 3}).empty());
  CHECK(bench.ask(3, store::Barrier{"b", 3}) == Sent{{1, kStop}, {2, kStop}, {3, kStop}});
  CHECK(bench.ask(4, store::Barrier{"b", 3}) == Sent{{4, kStop}});
}

TEST_CASE("who leaves a barrier is still counted, but not told") {
  Bench bench;
  bench.ask(1, store::Barrier{"b", 2});
  CHECK(bench.ask(1, store::CancelWait{}) == Sent{{1, kCanceled}});
  CHECK(bench.ask(2, store::Barrier{"b", 2}) == Sent{{2, kStop}});
}

TEST_CASE("a key that is a barrier's ends a plain wait when the first one comes") {
  Bench bench;
  bench.ask(1, store::Wait{{"b"}});
  CHECK(bench.ask(2, store::Barrier{"b", 2}) == Sent{{1, kStop}});
}

TEST_CASE("who watches a key is told of each change, with both values") {
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

TEST_CASE("a cleared store has forgotten keys, queues, waits and watches") {
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

TEST_CASE("waiting, waking and leaving cost a connection its own keys only") {
  // With a quadratic step in any of the three, this would take minutes.
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
