#include "tests/support/places.h"

namespace drun::testing {

std::string built(const std::string& program) { return std::string(DRUN_BIN_DIR) + "/" + program; }
std::string source_file(const std::string& relative) {
  return std::string(DRUN_SOURCE_DIR) + "/" + relative;
}

}  // namespace drun::testing
