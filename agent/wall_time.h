// core. Formats times and durations.
// Thread: any.
#pragma once

#include <chrono>
#include <string>

#include "rendezvous/job/outcome.h"

namespace drun {

// "2026-11-21 14:03:07.123", at `utc_offset`; "14:03:07.123" without the date.
std::string date_and_time(WallTime time, std::chrono::seconds utc_offset);
std::string time_of_day(WallTime time, std::chrono::seconds utc_offset);
// RFC 3339, UTC, microseconds: "2026-11-21T13:03:07.123456Z".
std::string utc_time(WallTime time);
inline WallTime wall_now() {
  return std::chrono::floor<WallTime::duration>(std::chrono::system_clock::now());
}
// The unit of durations in JSON.
inline double in_seconds(std::chrono::milliseconds time) {
  return static_cast<double>(time.count()) / 1000;
}

}  // namespace drun
