// Feeds one arbitrary input to the store. Used by libFuzzer (store_wire_fuzz.cc) and by a seeded
// random test.
#pragma once

#include <cstdint>
#include <string_view>

namespace drun {

// Decodes and serves `input` whole and byte by byte. Aborts unless both agree and the decoded
// requests are the same after encoding.
void abuse_store(std::string_view input);

}  // namespace drun
