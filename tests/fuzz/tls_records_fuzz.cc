// Fuzzes an encrypted connection after its handshake.
#include <cstddef>
#include <cstdint>

#include "tests/support/tls_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  drun::test::fuzz_tls_records({reinterpret_cast<const char*>(data), size});
  return 0;
}
