// Any message between launcher, agent and relay is either read or rejected.
#include <cstdlib>
#include <string>
#include <string_view>

#include "launcher/remote/agent_protocol.h"

namespace {

using namespace drun;

template <typename Message>
void check_again(std::string_view text) {
  const Result<Message> message = hosts::parse<Message>(text);
  if (!message) return;
  const std::string again = hosts::to_text(*message);
  const Result<Message> read = hosts::parse<Message>(again);
  if (!read || hosts::to_text(*read) != again) std::abort();
}

void check_values(std::string_view line) {
  check_again<hosts::Start>(line);
  check_again<hosts::Lookups>(line);
  check_again<hosts::LookupAnswers>(line);
  check_again<hosts::HostReport>(line);
  check_again<hosts::NodeSpec>(line);
  check_again<hosts::Hello>(line);
  check_again<hosts::Go>(line);
  check_again<hosts::End>(line);
  check_again<hosts::RelayStart>(line);
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
