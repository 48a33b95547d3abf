// core. Numbers as people read them.
// Thread: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace drun::probe {

std::string bytes_text(std::uint64_t bytes);                        // "64 MiB", "1.5 TiB"
std::string limit_text(const std::optional<std::uint64_t>& limit);  // "1024", "unlimited"
std::string rate_text(double gbytes_per_s);                         // "11.2 GB/s", "0.03 GB/s"
std::string time_text(double seconds);                              // "35 us", "1.2 ms", "3.5 s"
std::string clock_text(double ahead_s, double bound_s);             // "+1.2 ms +-0.1 ms", "0"
std::string or_none(const std::string& text);                       // "none" for nothing

}  // namespace drun::probe
