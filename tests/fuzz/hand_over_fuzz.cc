// Any message between launcher, agent and relay is either read or rejected.
#include <cstdlib>
#include <string>
#include <string_view>

#include "launcher/remote/agent_protocol.h"

namespace {

using namespace drun;

template <typename Value>
void check_again(const Result<Value>& again, const Value& value) {
  if (!again || !(*again == value)) std::abort();
}

// As it is parsed: without the newline.
std::string line_of(const hosts::Start& start) {
  const std::string line = hosts::to_line(start);
  return line.substr(0, line.size() - 1);
}

void check_values(std::string_view line) {
  if (const auto start = hosts::parse_start(line))
    check_again(hosts::parse_start(line_of(*start)), *start);
  if (const auto hello = hosts::parse_hello(line))
    check_again(hosts::parse_hello(hosts::to_text(*hello)), *hello);
  if (const auto end = hosts::parse_end(line))
    check_again(hosts::parse_end(hosts::to_text(*end)), *end);
  if (const auto start = hosts::parse_relay_start(line))
    check_again(hosts::parse_relay_start(hosts::to_text(*start)), *start);
  static_cast<void>(hosts::parse_ended(line));
  static_cast<void>(hosts::parse_relay_line(line));
  static_cast<void>(hosts::parse_relay_command(line));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_values(text);
  return 0;
}
