// What a stranger can send on a control connection, given to everything that reads it: driven by
// libFuzzer, and by a seeded unit test.
#pragma once

#include <string_view>

namespace drun::test {

// Asserts that whatever is understood survives encode and decode.
void fuzz_control_wire(std::string_view bytes);

}  // namespace drun::test
