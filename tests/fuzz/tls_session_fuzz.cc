// Fuzzes TLS sessions. Build with clang and -DDRUN_FUZZ=ON, and run `tls_session_fuzz
// -max_total_time=30`.
#include <cstddef>
#include <cstdint>

#include "tests/support/tls_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  drun::test::fuzz_tls_session({reinterpret_cast<const char*>(data), size});
  return 0;
}
