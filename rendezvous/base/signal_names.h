// core. Names of signals. glibc has sigabbrev_np only since 2.32, and drun supports older versions.
#pragma once

#include <optional>
#include <string_view>

namespace drun {

struct SignalName {
  int number = 0;
  std::string_view name{};  // "SIGTERM"
  // "terminated", "segmentation fault": as strsignal(3), in lower case.
  std::string_view description{};
};

// Returns nullopt for a number without a name, such as a real-time signal.
std::optional<SignalName> find_signal(int number);

// By its name, with or without SIG.
std::optional<SignalName> find_signal(std::string_view name);

}  // namespace drun
