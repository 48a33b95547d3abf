#include "rendezvous/protocol/control_wire.h"

#include <random>

#include "agent/stacks/evidence.h"
#include "agent/status/node_status.h"
#include "rendezvous/base/bytes.h"
#include "rendezvous/net/frame_reader.h"
#include "tests/support/catch.h"
#include "tests/support/control_fuzz.h"
#include "tests/support/messages.h"

namespace drun::rendezvous {
namespace {

constexpr std::size_t kLengthBytes = 4;

std::string_view body(const std::string& frame) {
  return std::string_view(frame).substr(kLengthBytes);
}

}  // namespace

TEST_CASE("every control message is decoded unchanged") {
  for (const MemberMessage& message : test::member_messages()) {
    const std::string frame = encode(message);
    const auto decoded = decode_member_message(body(frame));
    REQUIRE(decoded.has_value());
    CHECK(*decoded == message);
  }
  for (const CoordinatorMessage& message : test::coordinator_messages()) {
    const std::string frame = encode(message);
    const auto decoded = decode_coordinator_message(body(frame));
    REQUIRE(decoded.has_value());
    CHECK(*decoded == message);
  }
}

TEST_CASE("a shared result has the same bytes as a result for one recipient") {
  const QueryResult result{7, "", encode_census(test::full_census())};
  const SharedResult shared(result);
  CHECK(shared.head(7) + *shared.body() == encode(CoordinatorMessage(result)));
  CHECK(shared.head(8) + *shared.body() != encode(CoordinatorMessage(result)));
}

TEST_CASE("answers to queries are decoded unchanged, and rejected if they are truncated") {
  const auto check = [](const auto& value, const std::string& bytes, const auto& decode) {
    REQUIRE(decode(bytes));
    CHECK(*decode(bytes) == value);
    for (std::size_t size = 0; size < bytes.size(); ++size)
      CHECK_FALSE(decode(bytes.substr(0, size)));
    CHECK_FALSE(decode(bytes + '\0'));
  };
  const agent::NodeSummary summary{agent::NodePhase::Stopping, 3, 1, Milliseconds(4711)};
  check(summary, agent::encode_summary(summary), agent::decode_summary);
  CHECK(agent::encode_summary(summary).size() <= kMostStatusBytes);
  check(test::full_evidence(), agent::encode_evidence(test::full_evidence()),
        agent::decode_evidence);
  check(test::full_census(), encode_census(test::full_census()), decode_census);
}

TEST_CASE("a control message that is truncated or has an extra byte is rejected") {
  for (const MemberMessage& message : test::member_messages()) {
    const std::string frame = encode(message);
    for (std::size_t size = 0; size < body(frame).size(); ++size)
      CHECK_FALSE(decode_member_message(body(frame).substr(0, size)).has_value());
    CHECK_FALSE(decode_member_message(std::string(body(frame)) + '\0').has_value());
  }
  for (const CoordinatorMessage& message : test::coordinator_messages()) {
    const std::string frame = encode(message);
    for (std::size_t size = 0; size < body(frame).size(); ++size)
      CHECK_FALSE(decode_coordinator_message(body(frame).substr(0, size)).has_value());
    CHECK_FALSE(decode_coordinator_message(std::string(body(frame)) + '\0').has_value());
  }
}

TEST_CASE("roles that do not cover exactly the node's workers are rejected") {
  Hello hello;
  World world;
  hello.local_world_size = world.local_world_size = 3;
  const auto is_good = [&](std::vector<int> sizes) {
    hello.roles.clear();
    world.roles.clear();
    for (const int size : sizes) {
      hello.roles.push_back({.role = "r", .workers = size});
      world.roles.push_back({.role = "r", .workers = size});
    }
    const bool is_hello = decode_member_message(body(encode(MemberMessage(hello)))).has_value();
    const bool is_world =
        decode_coordinator_message(body(encode(CoordinatorMessage(WorldReady{world})))).has_value();
    CHECK(is_hello == is_world);
    return is_hello;
  };
  CHECK(is_good({}));
  CHECK(is_good({3}));
  CHECK(is_good({1, 2}));
  CHECK_FALSE(is_good({1, 1}));
  CHECK_FALSE(is_good({2, 2}));
  CHECK_FALSE(is_good({0, 3}));
  CHECK_FALSE(is_good({1 << 30, 1 << 30, 3}));
  hello.local_world_size = world.local_world_size = 1000;
  CHECK_FALSE(is_good(std::vector<int>(17, 1)));  // only 16 of them are encoded
}

TEST_CASE("a hello with every field at its limit fits into the hello frame limit") {
  Hello hello;
  hello.run_id = std::string(5000, 'i');
  hello.role = std::string(300, 'r');
  hello.host = std::string(300, 'h');
  hello.addresses.assign(100, std::string(100, 'a'));
  Past past{.coordinator = std::string(300, 'c')};
  past.restart_ages.assign(1000, Milliseconds(1));
  hello.past = past;
  hello.roles.assign(16, {.role = std::string(300, 'r'), .workers = 1});
  hello.local_world_size = 16;
  const std::string frame = encode(MemberMessage(hello));
  CHECK(frame.size() <= kHelloFrameLimitBytes);
  CHECK(decode_member_message(body(frame)).has_value());
}

TEST_CASE("an unknown kind of control message is rejected") {
  constexpr auto member_kinds = std::variant_size_v<MemberMessage>;
  constexpr auto coordinator_kinds = std::variant_size_v<CoordinatorMessage>;
  CHECK_FALSE(decode_member_message(std::string(1, char{member_kinds})).has_value());
  CHECK_FALSE(decode_coordinator_message(std::string(1, char{coordinator_kinds})).has_value());
}

TEST_CASE("random bytes and mutated messages do not break the control message decoder") {
  const std::uint32_t seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::vector<std::string> corpus;
  for (const auto& message : test::member_messages()) corpus.push_back(encode(message));
  for (const auto& message : test::coordinator_messages()) corpus.push_back(encode(message));
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = corpus[random() % corpus.size()];
    for (std::uint32_t flips = random() % 4; flips > 0; --flips)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    test::fuzz_control_wire(body(bytes));
    test::fuzz_control_wire(encode_preamble() + bytes + corpus[random() % corpus.size()]);
    std::string noise(random() % 64, '\0');
    for (char& byte : noise) byte = static_cast<char>(random());
    test::fuzz_control_wire(noise);
  }
}

TEST_CASE("text that exceeds its limit is cut between characters, never inside one") {
  Failure failure = test::full_failure(0);
  failure.host = std::string(255, 'x').append("\xc3\xa4");  // the 256-byte limit splits it
  failure.stderr_tail.assign(50, std::string(100'000, 'y'));
  failure.traceback = std::string(1'000'000, 'z');
  const std::string frame = encode(MemberMessage(rendezvous::Stopped{0, {{failure, {}}}, 0}));
  CHECK(frame.size() < kFrameLimitBytes);
  const auto decoded = decode_member_message(body(frame));
  REQUIRE(decoded.has_value());
  const Failure& read = std::get<rendezvous::Stopped>(*decoded).failures.front().failure;
  CHECK(read.host == std::string(255, 'x'));
  CHECK(read.stderr_tail.size() == 20);
}

TEST_CASE("text is cut to whole characters wherever the limit falls") {
  const std::string text = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80";  // 1, 2, 3 and 4 bytes
  const std::vector<std::size_t> whole = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};
  for (std::size_t limit = 0; limit < whole.size(); ++limit)
    CHECK(cut_text(text, limit).size() == whole[limit]);
}

TEST_CASE("frames are reassembled from pieces of any size") {
  const std::size_t piece = GENERATE(1u, 2u, 3u, 7u, 4096u);
  std::string stream = encode_preamble();
  const auto messages = test::member_messages();
  for (const auto& message : messages) stream += encode(message);
  FrameReader reader(kFrameLimitBytes);
  std::optional<std::uint16_t> version;
  std::vector<MemberMessage> seen;
  for (std::size_t at = 0; at < stream.size(); at += piece) {
    reader.push(std::string_view(stream).substr(at, piece));
    if (!version) {
      const auto preamble = reader.next_preamble();
      REQUIRE(preamble.has_value());
      version = *preamble;
      if (!version) continue;
    }
    for (auto frame = reader.next_frame(); frame && *frame; frame = reader.next_frame())
      seen.push_back(decode_member_message(**frame).value());
  }
  CHECK(version == kControlVersion);
  CHECK(seen == messages);
}

TEST_CASE("a foreign stream is rejected at its first wrong byte, and the error shows its bytes") {
  FrameReader reader(kFrameLimitBytes);
  reader.push("drHTTP\r\n");
  const auto preamble = reader.next_preamble();
  REQUIRE_FALSE(preamble.has_value());
  CHECK(preamble.error().message == R"("drHTTP\x0D\x0A")");
}

TEST_CASE("a frame length of zero or above the limit is rejected before the frame arrives") {
  const auto claim = GENERATE(std::uint32_t{0}, std::uint32_t{1025}, std::uint32_t{0xFFFFFFFF});
  FrameReader reader(1024);
  std::string length;
  ByteWriter(length).u32(claim);
  reader.push(length);
  CHECK_FALSE(reader.next_frame().has_value());
}

TEST_CASE("a read buffer grows under bulk traffic and shrinks under light traffic") {
  ReadBuffer buffer;
  CHECK(buffer.size() == ReadBuffer::kSmallestBytes);
  for (int i = 0; i < 10; ++i) buffer.adapt(buffer.size());
  CHECK(buffer.size() == ReadBuffer::kLargestBytes);
  buffer.adapt(buffer.size() / 2);
  CHECK(buffer.size() == ReadBuffer::kLargestBytes);
  for (int i = 0; i < 5; ++i) buffer.adapt(10);  // pings
  CHECK(buffer.size() == ReadBuffer::kSmallestBytes);
}

TEST_CASE("a frame reader frees the memory of a large frame when the next bytes arrive") {
  FrameReader reader(kFrameLimitBytes);
  std::string bytes(4, '\0');
  const std::size_t size = kFrameLimitBytes / 2;
  for (std::size_t i = 0; i < 4; ++i) bytes[i] = static_cast<char>((size >> (8 * i)) & 0xFFU);
  bytes += std::string(size, 'x');
  reader.push(bytes);
  const auto frame = reader.next_frame();
  REQUIRE(frame);
  REQUIRE(*frame);
  REQUIRE((*frame)->size() == size);
  CHECK(reader.capacity_bytes() >= size);
  reader.push(std::string(4, '\0'));
  CHECK(reader.capacity_bytes() <= 4096);
}

}  // namespace drun::rendezvous
