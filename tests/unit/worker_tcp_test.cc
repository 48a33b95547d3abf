// The frames of the TCP transport, and the matching of messages and receives.
#include <string_view>

#include "tests/support/catch.h"
#include "worker_lib/tcp/frames.h"
#include "worker_lib/tcp/pending_messages.h"

namespace drun::test {
namespace {

using namespace worker::tcp;
using Kind = Frame::Kind;
using Matcher = worker::Matcher<Receive*, std::shared_ptr<Arrival>>;

std::string_view text(const Head& head) { return {head.data(), head.size()}; }

std::shared_ptr<Arrival> arrival(int from, std::uint64_t slot) {
  auto made = std::make_shared<Arrival>();
  made->from = from;
  made->slot = slot;
  return made;
}

Receive receive(std::optional<int> from, std::uint64_t slot) {
  Receive made;
  made.from = from;
  made.slot = slot;
  return made;
}

}  // namespace

TEST_CASE("a hello of the TCP transport is decoded as it was encoded") {
  Hello hello{.rank = 0x01020304, .size = 0xFFFFFFFF, .lane = 3};
  for (std::size_t i = 0; i < hello.key.size(); ++i) hello.key[i] = static_cast<char>(200 + i);
  for (std::size_t i = 0; i < hello.nonce.size(); ++i) hello.nonce[i] = static_cast<char>(100 + i);
  const HelloBytes bytes = encode(hello);
  const std::string_view all(bytes.data(), bytes.size());
  CHECK(decode_hello(all) == hello);
  CHECK_FALSE(decode_frame(all));
}

TEST_CASE("a malformed hello is rejected") {
  const Hello good{.rank = 1, .size = 2};
  const auto is_rejected = [](HelloBytes bytes) {
    return !decode_hello(std::string_view(bytes.data(), bytes.size()));
  };
  CHECK_FALSE(is_rejected(encode(good)));
  HelloBytes other_version = encode(good);
  other_version[7] = '1';
  CHECK(is_rejected(other_version));
  Hello hello = good;
  hello.rank = 2;
  CHECK(is_rejected(encode(hello)));
  hello = good;
  hello.lane = kMostLanes;
  CHECK(is_rejected(encode(hello)));
}

TEST_CASE("a challenge of the TCP transport is decoded as it was encoded, and is no hello") {
  Challenge challenge;
  challenge.nonce.fill('n');
  challenge.proof.fill('p');
  HelloBytes bytes = encode(challenge);
  const std::string_view all(bytes.data(), bytes.size());
  CHECK(decode_challenge(all) == challenge);
  CHECK_FALSE(decode_hello(all));
  bytes[7] = '1';
  CHECK_FALSE(decode_challenge(all));
}

TEST_CASE("what two ranks prove depends on every part of the handshake") {
  const Hello hello{.rank = 1, .size = 2};
  const Key callers{};
  const Key called{};
  const std::string text = proven_text(Prover::Caller, hello, callers, called);
  CHECK(proven_text(Prover::Called, hello, callers, called) != text);
  Key other{};
  other.back() = 1;
  CHECK(proven_text(Prover::Caller, hello, other, called) != text);
  CHECK(proven_text(Prover::Caller, hello, callers, other) != text);
  for (const Hello& changed :
       {Hello{.key = other, .rank = 1, .size = 2}, Hello{.rank = 0, .size = 2},
        Hello{.rank = 1, .size = 3}, Hello{.rank = 1, .size = 2, .lane = 1},
        Hello{.rank = 1, .size = 2, .nonce = other}})
    CHECK(proven_text(Prover::Caller, changed, callers, called) != text);
}

TEST_CASE("a frame of the TCP transport is accepted up to the size limit of its kind") {
  struct Limit {
    Kind kind;
    std::size_t most_bytes;
  };
  for (const Limit limit :
       {Limit{Kind::Eager, kEagerBytes}, Limit{Kind::Ask, kMostMessageBytes}, Limit{Kind::Grant, 0},
        Limit{Kind::Data, kPartBytes}, Limit{Kind::Credit, kWindowBytes}}) {
    CAPTURE(static_cast<int>(limit.kind));
    Frame frame{.kind = limit.kind,
                .slot = 0xF1F2F3F4F5F6F7F8,
                .number = 0x0102030405060708,
                .size_bytes = limit.most_bytes};
    CHECK(decode_frame(text(encode(frame))) == frame);
    ++frame.size_bytes;
    CHECK_FALSE(decode_frame(text(encode(frame))));
  }
}

TEST_CASE("a frame of an unknown kind or with a damaged mark is rejected") {
  const Head good = encode(Frame{.kind = Kind::Grant, .number = 1});
  REQUIRE(decode_frame(text(good)));
  for (const int kind : {0, 6, 255}) {
    Head head = good;
    head[0] = static_cast<char>(kind);
    CHECK_FALSE(decode_frame(text(head)));
  }
  for (std::size_t at = 1; at < 8; ++at) {
    Head head = good;
    head[at] = static_cast<char>(head[at] + 1);
    CHECK_FALSE(decode_frame(text(head)));
  }
}

TEST_CASE("messages with one sender and slot match receives in the order in which both started") {
  Matcher matcher{kMostAnnounced};
  const auto first = arrival(1, 7);
  const auto second = arrival(1, 7);
  REQUIRE(matcher.keep(first));
  REQUIRE(matcher.keep(second));
  Receive other_slot = receive(1, 8);
  Receive other_rank = receive(2, 7);
  Receive a = receive(1, 7);
  Receive b = receive(1, 7);
  Receive c = receive(1, 7);
  CHECK(matcher.post(&other_slot) == nullptr);
  CHECK(matcher.post(&other_rank) == nullptr);
  CHECK(matcher.post(&a) == first);
  CHECK(matcher.post(&b) == second);
  CHECK(matcher.post(&c) == nullptr);
  CHECK(matcher.meet(1, 7) == &c);
  CHECK(matcher.meet(1, 7) == nullptr);
  CHECK(matcher.meet(2, 7) == &other_rank);
  CHECK(matcher.meet(1, 8) == &other_slot);
}

TEST_CASE("a receive from any rank matches the first message of its slot, in order") {
  Matcher matcher{kMostAnnounced};
  const auto early = arrival(3, 7);
  const auto late = arrival(1, 7);
  REQUIRE(matcher.keep(early));
  REQUIRE(matcher.keep(late));
  Receive any = receive(std::nullopt, 7);
  Receive next = receive(std::nullopt, 7);
  CHECK(matcher.post(&any) == early);
  CHECK(matcher.post(&next) == late);

  Receive before = receive(2, 7);
  Receive between = receive(std::nullopt, 7);
  Receive after = receive(2, 7);
  CHECK(matcher.post(&before) == nullptr);
  CHECK(matcher.post(&between) == nullptr);
  CHECK(matcher.post(&after) == nullptr);
  CHECK(matcher.meet(2, 7) == &before);
  CHECK(matcher.meet(2, 7) == &between);
  CHECK(matcher.meet(2, 7) == &after);
}

TEST_CASE("a withdrawn receive matches no message") {
  Matcher matcher{kMostAnnounced};
  Receive gone = receive(1, 7);
  Receive gone_too = receive(std::nullopt, 7);
  Receive stays = receive(1, 7);
  matcher.post(&gone);
  matcher.post(&gone_too);
  matcher.post(&stays);
  matcher.withdraw(&gone);
  matcher.withdraw(&gone_too);
  matcher.withdraw(&gone);
  CHECK(matcher.meet(1, 7) == &stays);
  CHECK(matcher.meet(1, 7) == nullptr);
}

TEST_CASE("a rank's unreceived messages are limited, and each receive frees space") {
  Matcher matcher{kMostAnnounced};
  const auto message = arrival(1, 7);
  for (std::size_t i = 0; i < kMostAnnounced; ++i) {
    if (!matcher.keep(message)) FAIL("rejected message " << i);
  }
  CHECK_FALSE(matcher.keep(message));
  CHECK(matcher.keep(arrival(2, 7)));
  Receive one = receive(1, 7);
  CHECK(matcher.post(&one) == message);
  CHECK(matcher.keep(message));
  CHECK_FALSE(matcher.keep(message));
}

TEST_CASE("a receive that waits on two transports gets one message, and the others stay") {
  Matcher one{kMostAnnounced};
  Matcher two{kMostAnnounced};
  worker::Claim claim;
  Receive first = receive(std::nullopt, 7);
  first.claim = {&claim, 0};
  Receive same = receive(std::nullopt, 7);
  same.claim = {&claim, 1};
  Receive next = receive(1, 7);
  CHECK(one.post(&first) == nullptr);
  CHECK(two.post(&same) == nullptr);
  CHECK(two.post(&next) == nullptr);
  CHECK(one.meet(0, 7) == &first);
  CHECK(claim.owner() == 0);
  CHECK(two.meet(1, 7) == &next);
  CHECK(two.meet(1, 7) == nullptr);

  const auto waiting = arrival(1, 7);
  REQUIRE(two.keep(waiting));
  CHECK(two.post(&same) == nullptr);  // its message arrived on the other one
  Receive last = receive(std::nullopt, 7);
  CHECK(two.post(&last) == waiting);
}

}  // namespace drun::test
