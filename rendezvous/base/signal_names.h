// core. Names of signals. glibc has them since 2.32 only (sigabbrev_np), which is newer than drun
// needs.
#pragma once

#include <optional>
#include <string_view>

namespace drun {

struct SignalName {
  int number = 0;
  std::string_view name{};  // "SIGTERM"
  std::string_view
      description{};  // "terminated", "segmentation fault"; as strsignal(3), in lower case
};

// Nothing for a number without a name, such as a real-time signal.
std::optional<SignalName> find_signal(int number);

// By its name, with or without SIG.
std::optional<SignalName> find_signal(std::string_view name);

}  // namespace drun
