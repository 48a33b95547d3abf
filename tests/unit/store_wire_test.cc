#include "rendezvous/store/wire.h"

#include <algorithm>
#include <random>

#include "tests/support/catch.h"
#include "tests/support/store_fuzz.h"
#include "tests/support/store_requests.h"

namespace drun {
namespace {

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text.push_back(static_cast<char>(value));
  return text;
}
std::string u64(std::uint64_t value) {
  std::string text;
  put_u64(text, value);
  return text;
}
std::string counted(std::string_view value) {
  std::string text;
  put_text(text, value);
  return text;
}
const std::string kHello(kValidate);

struct Heard {
  std::vector<store::Request> requests;
  std::string malformed;
};

Heard hear(RequestDecoder& decoder, std::string_view input) {
  Heard heard;
  while (true) {
    Decoded decoded = decoder.next(input);
    if (std::holds_alternative<NeedMore>(decoded)) return heard;
    if (const Malformed* malformed = std::get_if<Malformed>(&decoded)) {
      heard.malformed = malformed->reason;
      return heard;
    }
    heard.requests.push_back(std::get<store::Request>(std::move(decoded)));
  }
}
Heard hear(std::string_view input, const StoreLimits& limits = {}) {
  RequestDecoder decoder(limits);
  return hear(decoder, input);
}

}  // namespace

TEST_CASE("requests have the bytes that PyTorch's clients send") {
  std::string out;
  SECTION("SET") {
    REQUIRE(encode(store::Set{"/k", "v"}, Dialect::Current, out));
    CHECK(out == bytes({1, 2, 0, 0, 0, 0, 0, 0, 0, '/', 'k', 1, 0, 0, 0, 0, 0, 0, 0, 'v'}));
  }
  SECTION("the counter of workers, current and legacy") {
    const Dialect dialect = GENERATE(Dialect::Current, Dialect::Legacy);
    REQUIRE(encode(store::Add{"init/", 1}, dialect, out));
    CHECK(out == bytes({dialect == Dialect::Current ? 4 : 3,
                        5,
                        0,
                        0,
                        0,
                        0,
                        0,
                        0,
                        0,
                        'i',
                        'n',
                        'i',
                        't',
                        '/',
                        1,
                        0,
                        0,
                        0,
                        0,
                        0,
                        0,
                        0}));
  }
  SECTION("WAIT") {
    REQUIRE(encode(store::Wait{{"/a", "/b"}}, Dialect::Current, out));
    CHECK(out == "\6" + u64(2) + counted("/a") + counted("/b"));
  }
  SECTION("BARRIER") {
    REQUIRE(encode(store::Barrier{"/b", 3}, Dialect::Current, out));
    CHECK(out == "\x12" + counted("/b") + u64(3));
  }
  SECTION("WATCH_KEY exists only in the legacy dialect") {
    CHECK_FALSE(encode(store::WatchKey{"k"}, Dialect::Current, out));
    CHECK(out.empty());
    REQUIRE(encode(store::WatchKey{"k"}, Dialect::Legacy, out));
    CHECK(out == "\7" + counted("k"));
  }
  SECTION("newer operations do not exist in the legacy dialect") {
    CHECK_FALSE(encode(store::Append{"k", ""}, Dialect::Legacy, out));
    CHECK_FALSE(encode(store::CancelWait{}, Dialect::Legacy, out));
    CHECK(out.empty());
  }
}

TEST_CASE("every operation has a unique number in both dialects") {
  const Dialect dialect = GENERATE(Dialect::Legacy, Dialect::Current);
  int known = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const std::optional<Opcode> opcode = to_opcode(static_cast<std::uint8_t>(byte), dialect);
    if (!opcode) continue;
    ++known;
    CHECK(to_byte(*opcode, dialect) == static_cast<std::uint8_t>(byte));
  }
  CHECK(known == (dialect == Dialect::Legacy ? 9 : 19));
}

TEST_CASE("requests are decoded identically for any split of the bytes") {
  const Dialect dialect = GENERATE(Dialect::Legacy, Dialect::Current);
  const std::uint64_t seed = std::random_device{}();
  CAPTURE(seed);
  Random random(seed);
  std::string input = dialect == Dialect::Current ? kHello : "";
  std::vector<std::string> sent;
  while (sent.size() < 40) {
    std::string one;
    if (!encode(random_request(random), dialect, one)) continue;
    sent.push_back(one);
    input += one;
  }
  const auto encoded = [dialect](const std::vector<store::Request>& requests) {
    std::vector<std::string> texts;
    for (const store::Request& request : requests) {
      texts.emplace_back();
      if (!encode(request, dialect, texts.back())) texts.back() = "not to be encoded";
    }
    return texts;
  };
  SECTION("in two parts, split at each of the first 3000 bytes") {
    for (std::size_t at = 0; at <= std::min<std::size_t>(input.size(), 3000); ++at) {
      CAPTURE(at);
      RequestDecoder decoder{StoreLimits{}};
      Heard heard = hear(decoder, std::string_view(input).substr(0, at));
      Heard rest = hear(decoder, std::string_view(input).substr(at));
      std::move(rest.requests.begin(), rest.requests.end(), std::back_inserter(heard.requests));
      REQUIRE(rest.malformed.empty());
      REQUIRE(encoded(heard.requests) == sent);
      REQUIRE(decoder.dialect() == dialect);
    }
  }
  SECTION("byte by byte") {
    RequestDecoder decoder{StoreLimits{}};
    std::vector<store::Request> requests;
    for (const char& byte : input) {
      Heard heard = hear(decoder, {&byte, 1});
      std::move(heard.requests.begin(), heard.requests.end(), std::back_inserter(requests));
    }
    CHECK(encoded(requests) == sent);
  }
}

TEST_CASE("a legacy SET is accepted if its key length resembles the start of VALIDATE") {
  const std::string key(0xCE, 'k');
  const Heard heard = hear(bytes({0}) + counted(key) + counted("v"));
  REQUIRE(heard.requests.size() == 1);
  CHECK(std::get<store::Set>(heard.requests[0]).key == key);
}

TEST_CASE("malformed input closes the connection") {
  const auto [what, input, reason] = GENERATE(table<std::string, std::string, std::string>({
      {"PING before VALIDATE", bytes({13, 1, 0, 0, 0}), "does not begin"},
      {"VALIDATE with a wrong magic", bytes({0, 0xCE, 0xF7, 0x85, 0x3D}), "key of more than"},
      {"VALIDATE with another wrong magic", bytes({0, 1, 2, 3, 4}), "key of more than"},
      {"VALIDATE twice", kHello + kHello, "unknown operation 0"},
      {"an unknown operation", kHello + bytes({19}), "unknown operation 19"},
      {"WATCH_KEY's own number", kHello + bytes({255}), "unknown operation 255"},
      {"an unknown legacy operation", bytes({9}), "unknown operation 9"},
      {"an unknown legacy operation later", bytes({2}) + counted("k") + bytes({12}),
       "unknown operation 12"},
      {"HTTP", "GET / HTTP/1.1\r\n", "does not begin"},
      {"TLS", bytes({0x16, 3, 1}), "does not begin"},
      {"a key too long", kHello + bytes({1}) + u64(8193), "key of more than 8192 bytes in SET"},
      {"a value too long", kHello + bytes({1}) + counted("k") + u64((8u << 20) + 1),
       "value of more than 8388608 bytes in SET"},
      {"a length with its highest bit set", kHello + bytes({3}) + u64(UINT64_MAX),
       "key of more than"},
      {"too many keys", kHello + bytes({6}) + u64(131073), "more than 131072 keys in WAIT"},
      {"too many entries", kHello + bytes({11}) + u64(131073),
       "more than 131072 keys in MULTI_SET"},
      {"the second value of COMPARE_SET too long",
       kHello + bytes({2}) + counted("k") + counted("") + u64(1u << 30), "in COMPARE_SET"},
      {"the second key of MULTI_SET too long",
       kHello + bytes({11}) + u64(2) + counted("k") + counted("v") + u64(9000),
       "key of more than 8192 bytes in MULTI_SET"},
  }));
  CAPTURE(what);
  CHECK_THAT(hear(input).malformed, ContainsSubstring(reason));
  RequestDecoder decoder{StoreLimits{}};
  Heard last;
  for (const char& byte : input) last = hear(decoder, {&byte, 1});
  CHECK_THAT(last.malformed, ContainsSubstring(reason));
  CHECK(last.requests.empty());
}

TEST_CASE("unusual but valid input is accepted") {
  CHECK(hear(kHello + bytes({5}) + u64(0)).requests.size() == 1);
  CHECK(hear(kHello + bytes({6}) + u64(0)).requests.size() == 1);
  CHECK(hear(kHello + bytes({11}) + u64(0)).requests.size() == 1);
  CHECK(hear(kHello + bytes({12})).requests.size() == 1);
  CHECK(hear(kHello + bytes({1}) + counted("") + counted("")).requests.size() == 1);
  CHECK(hear(kHello + bytes({1}) + counted(std::string(8192, 'k')) + counted("")).requests.size() ==
        1);
  const Heard ping = hear(kHello + bytes({13, 1, 2, 3, 4}));
  REQUIRE(ping.requests.size() == 1);
  CHECK(std::get<store::Ping>(ping.requests[0]).nonce == 0x04030201);
}

TEST_CASE("the total size of a request's keys and values is limited") {
  StoreLimits limits;
  limits.request_bytes = 100;
  const std::string fits =
      kHello + bytes({11}) + u64(2) + counted("a") + counted(std::string(98, 'v'));
  CHECK(hear(fits + counted("b") + u64(0), limits).requests.size() == 1);
  CHECK_THAT(hear(fits + counted("bc"), limits).malformed,
             ContainsSubstring("more than 100 bytes in MULTI_SET"));
  CHECK(hear(kHello + bytes({1}) + counted("a") + counted(std::string(99, 'v')) + bytes({1}) +
                 counted("b") + counted(std::string(99, 'v')),
             limits)
            .requests.size() == 2);
}

TEST_CASE("a larger value is accepted if the limit is raised") {
  StoreLimits limits;
  limits.value_bytes = 32u << 20;
  const Heard heard =
      hear(kHello + bytes({1}) + counted("k") + counted(std::string(20u << 20, 'v')), limits);
  REQUIRE(heard.requests.size() == 1);
  CHECK(std::get<store::Set>(heard.requests[0]).value.size() == 20u << 20);
}

TEST_CASE("a large request in small pieces is parsed in linear time") {
  // Quadratic parsing would read 10^12 bytes here.
  std::string input = kHello + bytes({11}) + u64(131072);
  for (int i = 0; i < 131072; ++i) input += counted("key" + std::to_string(i)) + counted("value");
  RequestDecoder decoder{StoreLimits{}};
  std::size_t requests = 0;
  for (std::size_t at = 0; at < input.size(); at += 7) {
    requests += hear(decoder, std::string_view(input).substr(at, 7)).requests.size();
  }
  CHECK(requests == 1);
}

TEST_CASE("the bytes of queued replies are complete and in order for any sizes of writes") {
  const std::uint64_t seed = std::random_device{}();
  CAPTURE(seed);
  Random random(seed);
  for (int run = 0; run < 50; ++run) {
    OutQueue out;
    std::string sent;
    std::string got;
    std::vector<std::string_view> pieces;
    for (int i = 0; i < 200; ++i) {
      const std::string text(below(random, below(random, 4) == 0 ? 20000 : 20),
                             static_cast<char>('a' + below(random, 26)));
      sent += text;
      if (below(random, 2) == 0) {
        out.append(text);
      } else {
        out.append(std::make_shared<const std::string>(text));
      }
      if (below(random, 3) != 0) continue;
      out.front(1 + below(random, 5), pieces);
      std::string front;
      for (const std::string_view piece : pieces) front += piece;
      const std::size_t taken_bytes = below(random, front.size() + 1);
      got += front.substr(0, taken_bytes);
      out.consume(taken_bytes);
      REQUIRE(out.size_bytes() == sent.size() - got.size());
    }
    out.front(1000, pieces);
    for (const std::string_view piece : pieces) got += piece;
    REQUIRE(got == sent);
    out.consume(out.size_bytes());
    REQUIRE(out.empty());
  }
}

TEST_CASE("random and corrupted requests never break the decoder") {
  const std::uint64_t seed = std::random_device{}();
  CAPTURE(seed);
  Random random(seed);
  for (int run = 0; run < 5000; ++run) {
    const Dialect dialect = below(random, 2) == 0 ? Dialect::Legacy : Dialect::Current;
    std::string input = dialect == Dialect::Current ? kHello : "";
    for (std::size_t i = below(random, 6); i-- > 0;) {
      if (!encode(random_request(random), dialect, input)) continue;
    }
    input.resize(std::min<std::size_t>(input.size(), 2000));
    for (std::size_t i = below(random, 4); i-- > 0 && !input.empty();) {
      input[below(random, input.size())] = static_cast<char>(below(random, 20));
    }
    abuse_store(input);  // aborts on failure
  }
  SUCCEED();
}

}  // namespace drun
