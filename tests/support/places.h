// Paths of the build under test and of its sources.
#pragma once

#include <string>

namespace drun::testing {

std::string built(const std::string& program);         // a program or library in the build's bin/
std::string source_file(const std::string& relative);  // a file in the source tree

}  // namespace drun::testing
