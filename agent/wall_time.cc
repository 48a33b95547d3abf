#include "agent/wall_time.h"

#include <array>
#include <cstdio>
#include <ctime>

namespace drun {
namespace {

// `format`: as for strftime(3); then the fraction of the second, with `digits` (3 or 6).
std::string formatted(WallTime time, const char* format, int digits) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const std::time_t since_1970 = seconds.time_since_epoch().count();
  std::tm parts{};
  gmtime_r(&since_1970, &parts);
  std::array<char, 64> text;
  const std::size_t size = std::strftime(text.data(), text.size(), format, &parts);
  const auto microseconds = static_cast<int>((time - seconds).count());
  std::snprintf(text.data() + size, text.size() - size, ".%0*d", digits,
                digits == 6 ? microseconds : microseconds / 1000);
  return text.data();
}

}  // namespace

std::string date_and_time(WallTime time, std::chrono::seconds utc_offset) {
  return formatted(time + utc_offset, "%Y-%m-%d %H:%M:%S", 3);
}

std::string time_of_day(WallTime time, std::chrono::seconds utc_offset) {
  return formatted(time + utc_offset, "%H:%M:%S", 3);
}

std::string utc_time(WallTime time) { return formatted(time, "%Y-%m-%dT%H:%M:%S", 6) + "Z"; }

}  // namespace drun
