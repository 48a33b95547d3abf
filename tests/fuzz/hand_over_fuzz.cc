// Any message between launcher and agent is either read or rejected.
#include <cstdlib>
#include <string>
#include <string_view>

#include "launcher/remote/agent_protocol.h"

namespace {

using namespace drun;

void check_values(std::string_view line) {
  if (const auto message = hosts::parse(line)) {
    const std::string again = hosts::to_text(*message);
    const auto read = hosts::parse(again);
    if (!read || hosts::to_text(*read) != again) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_values(text);
  return 0;
}
