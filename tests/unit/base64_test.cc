#include "rendezvous/base/text.h"

#include <random>

#include "tests/support/catch.h"

namespace drun {
namespace {

TEST_CASE("base64 encodes as RFC 4648 specifies") {
  CHECK(base64("").empty());
  CHECK(base64("f") == "Zg==");
  CHECK(base64("fo") == "Zm8=");
  CHECK(base64("foo") == "Zm9v");
  CHECK(base64("foobar") == "Zm9vYmFy");
  CHECK(base64("\xfb\xff") == "+/8=");
}

TEST_CASE("base64 output decodes to the original bytes") {
  std::mt19937 random(7);
  for (std::size_t size = 0; size < 300; ++size) {
    std::string bytes(size, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    CHECK(bytes_of_base64(base64(bytes)) == bytes);
  }
}

TEST_CASE("text that the base64 encoder never produces is rejected") {
  const char* const text =
      GENERATE("Z", "Zg", "Zg=", "Zh==", "Zm9v=", "Zm9vZg=", "====", "Zg==Zg==", "Zm9 ", "Zm9v\n",
               "Zm9-", "=Zg=", "Zm=v", "\xff\xff\xff\xff");
  CAPTURE(text);
  CHECK_FALSE(bytes_of_base64(text));
}

}  // namespace
}  // namespace drun
