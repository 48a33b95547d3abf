// Where the build under test and its sources are.
#pragma once

#include <string>

namespace drun::testing {

std::string built(const std::string& program);  // a program or library under the build's bin/
std::string source_file(const std::string& relative);  // a file of the source tree

}  // namespace drun::testing
