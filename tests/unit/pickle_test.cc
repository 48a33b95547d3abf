#include "agent/diagnosis/pickle.h"

#include <random>
#include <string>

#include "tests/support/catch.h"

namespace drun::agent::pickle {
namespace {

using namespace std::string_literals;

Document good(const std::string& bytes) {
  Result<Document> decoded = decode(bytes);
  REQUIRE(decoded.has_value());
  return *std::move(decoded);
}

std::string reason(const std::string& bytes) {
  const Result<Document> decoded = decode(bytes);
  return decoded ? "it was read" : decoded.error().message;
}

}  // namespace

TEST_CASE("a pickle's numbers, texts, bytes, flags and None are read") {
  // Each value by Python's pickle.dumps.
  CHECK(good("\x80\x02K\x07."s).number(0) == 7);
  CHECK(good("\x80\x02M\x00\x01."s).number(0) == 256);
  CHECK(good("\x80\x02J\xfe\xff\xff\xff."s).number(0) == -2);
  CHECK(good("\x80\x02\x8a\x05\x00\x00\x00\x00\x01."s).number(0) == std::int64_t{1} << 32);
  CHECK(good("\x80\x02\x8a\x05\x00\x00\x00\x00\xff."s).number(0) == -(std::int64_t{1} << 32));
  CHECK(good("\x80\x02\x8a\x00."s).number(0) == 0);
  CHECK(std::get<double>(good("\x80\x02G?\xf8\x00\x00\x00\x00\x00\x00."s).at(0)) == 1.5);
  CHECK(good("\x80\x02X\x02\x00\x00\x00hi."s).text(0) == "hi");
  CHECK(good("\x80\x04\x95\x06\x00\x00\x00\x00\x00\x00\x00\x8c\x02hi\x94."s).text(0) == "hi");
  CHECK(std::get<Bytes>(good("\x80\x03"
                             "C\x02\x00\xff."s)
                            .at(0))
            .value == "\x00\xff"s);
  CHECK(good("\x80\x02\x88."s).flag(0) == true);
  CHECK(good("\x80\x02\x89."s).flag(0) == false);
  CHECK(std::holds_alternative<None>(good("\x80\x02N."s).at(0)));
}

TEST_CASE("a pickle's lists, tuples, dicts and references are read") {
  const std::string bytes =
      "\x80\x02}q\x00(X\x01\x00\x00\x00"
      "aq\x01]q\x02(K\x01h\x01K\x02K\x03"
      "\x87q\x03"
      "eX\x01\x00\x00\x00"
      "bh\x02u."s;
  const Document document = good(bytes);
  const auto list = document.find(document.root(), "a");
  REQUIRE(list.has_value());
  CHECK(document.find(document.root(), "b") == list);
  REQUIRE(document.items(*list) != nullptr);
  const std::vector<NodeId> items = *document.items(*list);
  REQUIRE(items.size() == 2);
  CHECK(document.items(items[0]) == nullptr);
  const auto* tuple = document.items(items[1]);
  REQUIRE(tuple != nullptr);
  CHECK(tuple->size() == 3);
  CHECK(document.text(tuple->front()) == "a");
}

TEST_CASE("a list that contains itself is read without recursion") {
  const std::string bytes =
      "\x80\x02]q\x00h\x00"
      "a."s;
  const Document document = good(bytes);
  REQUIRE(document.items(0) != nullptr);
  CHECK(*document.items(0) == std::vector<NodeId>{0});
}

TEST_CASE("whatever names a class or calls a function is an error") {
  // os.system("true"), and the same in protocol 4.
  CHECK_THAT(reason("\x80\x02"
                    "cos\nsystem\nX\x04\x00\x00\x00true\x85R."s),
             ContainsSubstring("something else than plain values"));
  for (const char opcode : "cRiobdIFLSUVlgpP\x81\x82\x83\x84\x8f\x90\x91\x92\x93\x96\x97\x98"s) {
    INFO(int{opcode});
    CHECK_THAT(reason("\x80\x04]]]"s + opcode), ContainsSubstring("something else"));
  }
}

TEST_CASE("broken pickles are errors") {
  CHECK_THAT(reason(""), ContainsSubstring("ends too early"));
  CHECK_THAT(reason("\x80"), ContainsSubstring("ends too early"));
  CHECK_THAT(reason("\x80\x05N."s), ContainsSubstring("another protocol"));
  CHECK_THAT(reason("\x80\x02."s), ContainsSubstring("no single value"));
  CHECK_THAT(reason("\x80\x02NN."s), ContainsSubstring("no single value"));
  CHECK_THAT(reason("\x80\x02(N."s), ContainsSubstring("no single value"));
  CHECK_THAT(reason("\x80\x02X\xff\xff\xff\xffhi."s), ContainsSubstring("longer than the rest"));
  CHECK_THAT(reason("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffhi."s),
             ContainsSubstring("longer than the rest"));
  CHECK_THAT(reason("\x80\x02h\x07."s), ContainsSubstring("not there"));
  CHECK_THAT(reason("\x80\x02Nr\xff\xff\xff\xff."s), ContainsSubstring("out of range"));
  CHECK_THAT(reason("\x80\x02\x8a\x09"
                    "123456789."s),
             ContainsSubstring("too large"));
  CHECK_THAT(reason("\x80\x02Na."s), ContainsSubstring("missing"));
  CHECK_THAT(reason("\x80\x02NNa."s), ContainsSubstring("no list"));
  CHECK_THAT(reason("\x80\x02}(Nu."s), ContainsSubstring("no value"));
  CHECK_THAT(reason("\x80\x02N(u."s), ContainsSubstring("no dict"));
  CHECK_THAT(reason("\x80\x02)Na."s), ContainsSubstring("no list"));
  CHECK_THAT(reason("\x80\x02"
                    "e."s),
             ContainsSubstring("mark is missing"));
  CHECK_THAT(reason("\x80\x02(a."s), ContainsSubstring("missing"));
}

TEST_CASE("a pickle is limited in depth, values and references") {
  CHECK_THAT(reason("\x80\x02" + std::string(kMostDepth + 1, '(')), ContainsSubstring("deeply"));
  CHECK_THAT(reason("\x80\x02(" + std::string(kMostNodes + 1, 'N') + "t."),
             ContainsSubstring("too many values"));
  std::string copies = "\x80\x02Nq\x00("s;
  for (std::size_t i = 0; i < 2 * kMostNodes + 1; ++i) copies += "h\x00"s;
  CHECK_THAT(reason(copies + "t."), ContainsSubstring("too many values"));
  CHECK_THAT(reason(std::string(kMostBytes + 1, 'N')), ContainsSubstring("too large"));
}

TEST_CASE("random pickles are read or rejected, never worse") {
  std::mt19937 random(11);
  const std::string opcodes = "(.0JKMNGXC}sueat])\x85\x86\x87\x88\x89\x8a\x8chqrj\x94\x95"s;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = "\x80\x02"s;
    const std::size_t size = random() % 60;
    for (std::size_t k = 0; k < size; ++k)
      bytes += random() % 4 == 0 ? static_cast<char>(random() % 256)
                                 : opcodes[random() % opcodes.size()];
    const Result<Document> decoded = decode(bytes);
    if (decoded) CHECK(decoded->root() < decoded->size());
  }
}

}  // namespace drun::agent::pickle
