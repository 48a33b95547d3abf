// Fuzzes the control protocol. Build with clang and -DDRUN_FUZZ=ON, and run `control_wire_fuzz
// -max_total_time=30`.
#include <cstddef>
#include <cstdint>

#include "tests/support/control_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  drun::test::fuzz_control_wire({reinterpret_cast<const char*>(data), size});
  return 0;
}
