// Feeds arbitrary bytes to everything that reads from a control connection, and
// from answers to queries. Used by libFuzzer and
// by a seeded unit test.
#pragma once

#include <string_view>

namespace drun::test {

// Asserts that every decoded message survives encoding and decoding.
void fuzz_control_wire(std::string_view bytes);

}  // namespace drun::test
