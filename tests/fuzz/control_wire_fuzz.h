// The body of the fuzz target for the control wire, so that unit tests can drive it too.
#pragma once

#include <string_view>

namespace drun::test {

// Asserts that whatever is understood survives encode and decode.
void fuzz_control_wire(std::string_view bytes);

}  // namespace drun::test
