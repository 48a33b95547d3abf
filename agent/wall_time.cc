#include "agent/wall_time.h"

#include <cstdio>

namespace drun {
namespace {

struct Broken {
  std::chrono::year_month_day day;
  std::chrono::hh_mm_ss<std::chrono::microseconds> clock;
};

Broken broken_down(WallTime time, std::chrono::seconds utc_offset) {
  const WallTime local = time + utc_offset;
  const auto midnight = std::chrono::floor<std::chrono::days>(local);
  return {.day = std::chrono::year_month_day(midnight),
          .clock = std::chrono::hh_mm_ss<std::chrono::microseconds>(local - midnight)};
}

std::string padded(long long value, int width) {
  char text[32];
  std::snprintf(text, sizeof(text), "%0*lld", width, value);
  return text;
}

std::string date(const Broken& at) {
  return padded(static_cast<int>(at.day.year()), 4) + "-" +
         padded(static_cast<unsigned>(at.day.month()), 2) + "-" +
         padded(static_cast<unsigned>(at.day.day()), 2);
}

std::string clock(const Broken& at, bool has_microseconds) {
  const long long microseconds = at.clock.subseconds().count();
  return padded(at.clock.hours().count(), 2) + ":" + padded(at.clock.minutes().count(), 2) + ":" +
         padded(at.clock.seconds().count(), 2) + "." +
         (has_microseconds ? padded(microseconds, 6) : padded(microseconds / 1000, 3));
}

}  // namespace

std::string date_and_time(WallTime time, std::chrono::seconds utc_offset) {
  const Broken at = broken_down(time, utc_offset);
  return date(at) + " " + clock(at, false);
}

std::string time_of_day(WallTime time, std::chrono::seconds utc_offset) {
  return clock(broken_down(time, utc_offset), false);
}

std::string utc_time(WallTime time) {
  const Broken at = broken_down(time, std::chrono::seconds(0));
  return date(at) + "T" + clock(at, true) + "Z";
}

}  // namespace drun
