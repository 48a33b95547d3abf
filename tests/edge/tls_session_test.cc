#include "rendezvous/tls/tls_session.h"

#include <random>

#include "rendezvous/net/frame_reader.h"
#include "tests/support/catch.h"
#include "tests/support/tls_fuzz.h"

namespace drun::rendezvous {
namespace {

using Side = TlsSession::Side;

const std::string kSecret = "0123456789abcdef0123456789abcdef";

std::shared_ptr<const TlsContext> context_of(const std::string& secret, const std::string& run_id) {
  const auto made = Secret::make(secret, "test");
  REQUIRE(made);
  auto context = TlsContext::make(*made, run_id);
  REQUIRE(context);
  return *context;
}

// One end: a session, the data that it decrypted, and its error.
struct End {
  End(std::shared_ptr<const TlsContext> context, Side side) : session(std::move(context), side) {}
  void take(std::string_view bytes) {
    if (auto found = session.take(bytes, plain)) trouble = found;
  }

  TlsSession session;
  std::string plain{};
  std::optional<TlsSession::Trouble> trouble{};
};

struct Wire {
  std::string to_server{};
  std::string to_client{};
};

// Exchanges data until both ends have sent everything, in pieces of at most `piece` bytes.
Wire exchange(End& client, End& server, std::size_t piece = 1 << 20) {
  Wire wire;
  for (;;) {
    const std::string up = client.session.outgoing();
    const std::string down = server.session.outgoing();
    if (up.empty() && down.empty()) return wire;
    wire.to_server += up;
    wire.to_client += down;
    for (std::size_t at = 0; at < up.size(); at += piece) server.take(up.substr(at, piece));
    for (std::size_t at = 0; at < down.size(); at += piece) client.take(down.substr(at, piece));
  }
}

}  // namespace

TEST_CASE(
    "with the same secret and run id each end receives the other's data, in pieces of any size") {
  const std::size_t piece = GENERATE(1U, 7U, 1U << 20U);
  const auto context = context_of(kSecret, "job7");
  End client(context, Side::Connecting);
  End server(context_of(kSecret, "job7"), Side::Accepting);
  REQUIRE_FALSE(client.session.start());
  client.session.seal("said before the handshake");
  exchange(client, server, piece);
  CHECK(client.session.is_established());
  CHECK(server.session.is_established());
  const std::string long_text(100'000, 'x');
  server.session.seal(long_text);
  exchange(client, server, piece);
  CHECK(server.plain == "said before the handshake");
  CHECK(client.plain == long_text);
  CHECK_FALSE(client.trouble);
  CHECK_FALSE(server.trouble);
}

TEST_CASE("the traffic shows no run id, secret or plain text, and every hello is different") {
  const auto context = context_of(kSecret, "job-of-a-name");
  std::vector<std::string> hellos;
  for (int i = 0; i < 2; ++i) {
    End client(context, Side::Connecting);
    End server(context, Side::Accepting);
    REQUIRE_FALSE(client.session.start());
    client.session.seal("what is said");
    const Wire wire = exchange(client, server);
    for (const std::string& bytes : {wire.to_server, wire.to_client}) {
      CHECK(bytes.find("job-of-a-name") == bytes.npos);
      CHECK(bytes.find(kSecret) == bytes.npos);
      CHECK(bytes.find("what is said") == bytes.npos);
    }
    CHECK(wire.to_server.front() == kTlsFirstByte);
    hellos.push_back(wire.to_server);
  }
  CHECK(hellos[0] != hellos[1]);
}

TEST_CASE("a different secret or run id is reported on both ends") {
  const auto [secret, run_id, words] = GENERATE(table<std::string, std::string, std::string>({
      {"fedcba9876543210", "job7", "has another secret than this "},
      {kSecret, "job8", "has the same secret, but another run id"},
  }));
  End client(context_of(secret, run_id), Side::Connecting);
  End server(context_of(kSecret, "job7"), Side::Accepting);
  REQUIRE_FALSE(client.session.start());
  client.session.seal("hello");
  exchange(client, server);
  REQUIRE(client.trouble);
  REQUIRE(server.trouble);
  CHECK_THAT(client.trouble->reason, ContainsSubstring(words));
  CHECK_THAT(server.trouble->reason, ContainsSubstring(words));
  CHECK(client.trouble->is_other_job);
  CHECK(server.trouble->is_other_job);
  CHECK_FALSE(client.session.is_established());
  CHECK(server.plain.empty());
}

TEST_CASE("a replayed hello cannot complete the handshake") {
  const auto context = context_of(kSecret, "job7");
  End client(context, Side::Connecting);
  REQUIRE_FALSE(client.session.start());
  const std::string hello = client.session.outgoing();
  End server(context, Side::Accepting);
  server.take(hello);
  CHECK_FALSE(server.trouble);
  const std::string answer = server.session.outgoing();
  CHECK_FALSE(answer.empty());
  CHECK_FALSE(server.session.is_established());
  server.take(hello);
  CHECK(server.trouble);
  CHECK_FALSE(server.session.is_established());
  End again(context, Side::Accepting);
  again.take(hello);
  REQUIRE(again.trouble);
  CHECK_THAT(again.trouble->reason, ContainsSubstring("repeats a hello"));
  CHECK(again.session.outgoing().empty());
}

TEST_CASE("a drun without a secret, and other programs, are recognized by their first bytes") {
  const auto [bytes, words, is_other_job] = GENERATE(table<std::string, std::string, bool>({
      {encode_preamble(), "has no secret, but this node has one", true},
      {"HTTP/1.1 400 Bad Request", "is not a drun (its first bytes are \"HTTP/1.1 400 Bad", false},
      {"drum", "is not a drun", false},
  }));
  End client(context_of(kSecret, "job7"), Side::Connecting);
  REQUIRE_FALSE(client.session.start());
  const std::size_t piece = is_other_job ? 1 : bytes.size();
  for (std::size_t at = 0; at < bytes.size(); at += piece) client.take(bytes.substr(at, piece));
  REQUIRE(client.trouble);
  CHECK_THAT(client.trouble->reason, ContainsSubstring(words));
  CHECK(client.trouble->is_other_job == is_other_job);
}

TEST_CASE("a byte changed in transit breaks the connection") {
  const auto context = context_of(kSecret, "job7");
  End client(context, Side::Connecting);
  End server(context, Side::Accepting);
  REQUIRE_FALSE(client.session.start());
  exchange(client, server);
  client.session.seal("an order");
  std::string bytes = client.session.outgoing();
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  server.take(bytes);
  REQUIRE(server.trouble);
  CHECK_THAT(server.trouble->reason, ContainsSubstring("broke its encrypted connection"));
  CHECK(server.plain.empty());
}

TEST_CASE("random bytes after a TLS header, and modified hellos, break only their session") {
  const auto seed = static_cast<unsigned>(GENERATE(1, 2, 3, 4));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto context = context_of("0123456789abcdef", "run id");  // the same as in fuzz_tls_session
  for (int i = 0; i < 300; ++i) {
    std::string bytes(random() % 600 + 6, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (random() % 2 == 0) {
      End client(context, Side::Connecting);
      REQUIRE_FALSE(client.session.start());
      bytes = client.session.outgoing();
      const std::size_t at = 5 + random() % (bytes.size() - 5);
      bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ (1 + random() % 255));
    }
    bytes[0] = kTlsFirstByte;
    if (random() % 4 != 0) {  // otherwise its length is random, too
      bytes[1] = 3;
      bytes[3] = static_cast<char>((bytes.size() - 5) >> 8U);
      bytes[4] = static_cast<char>(bytes.size() - 5);
    }
    const std::string manner{static_cast<char>(random()), static_cast<char>(random())};
    test::fuzz_tls_session(manner + bytes);
  }
}

TEST_CASE(
    "modified, repeated, lost and foreign records after the handshake break only their session") {
  const auto seed = static_cast<unsigned>(GENERATE(1, 2, 3, 4));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 100; ++i) {
    std::string actions(random() % 200, '\0');
    for (char& byte : actions) byte = static_cast<char>(random());
    test::fuzz_tls_records(actions);
  }
}

TEST_CASE("a hello that claims to be long is rejected before memory is allocated") {
  End server(context_of(kSecret, "job7"), Side::Accepting);
  server.take(std::string("\x16\x03\x01\x40\x00", 5));
  REQUIRE(server.trouble);
  CHECK_THAT(server.trouble->reason, ContainsSubstring("is not a drun"));
}

}  // namespace drun::rendezvous
