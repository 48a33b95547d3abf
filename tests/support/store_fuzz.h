// One step of abuse for the store, fed by libFuzzer (store_wire_fuzz.cc) and by a seeded random
// test.
#pragma once

#include <cstdint>
#include <string_view>

namespace drun {

// Decodes `input` whole and byte by byte, serves both and requires that they agree, and that what
// was understood means the same after being encoded again. Aborts when they don't.
void abuse_store(std::string_view input);

}  // namespace drun
