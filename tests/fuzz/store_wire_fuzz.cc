// Fuzzes the store's decoder. Build with clang and -DDRUN_FUZZ=ON, then run
//   bin/fuzz/store_wire_fuzz -max_total_time=30 -dict=tests/fuzz/store_wire.dict
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tests/support/store_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  drun::abuse_store({reinterpret_cast<const char*>(data), size});
  return 0;
}
