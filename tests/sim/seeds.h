// How often a simulation is run, and from which seed on.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace drun::test {

// One in so many. Sanitizers make a run some forty times slower, and look for other things than
// rare orders.
#ifdef __SANITIZE_ADDRESS__
inline constexpr int kRunShare = 10;
#else
inline constexpr int kRunShare = 1;
#endif

// What an environment variable says.
inline std::uint32_t number_of(const char* variable, std::uint32_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
}

}  // namespace drun::test
