#include "launcher/report_words.h"

#include <csignal>
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

// Bytes of a colour or style sequence ("\x1b[1;31m") at the front, else 0.
std::size_t style_size(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const std::size_t end = text.find_first_not_of("0123456789;:", 2);
  return end != text.npos && text[end] == 'm' ? end + 1 : 0;
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

std::string in_words(std::chrono::milliseconds duration) {
  const long long ms = duration.count() < 0 ? 0 : duration.count();
  const long long seconds = ms / 1000;
  if (seconds < 10) return std::to_string(seconds) + "." + padded(ms % 1000, 3) + " s";
  if (seconds < 60) return std::to_string(seconds) + "." + std::to_string(ms % 1000 / 100) + " s";
  if (seconds < 3600)
    return std::to_string(seconds / 60) + " min " + std::to_string(seconds % 60) + " s";
  return std::to_string(seconds / 3600) + " h " + std::to_string(seconds % 3600 / 60) + " min";
}

std::string how_it_ended(const Failure& failure) {
  const Killed* killed = std::get_if<Killed>(&failure.status);
  if (failure.out_of_memory)
    return "out of memory: killed by the kernel (" + to_string(failure.status) + ")";
  const bool is_from_outside =
      killed != nullptr && (killed->signal == SIGKILL || killed->signal == SIGTERM);
  return to_string(failure.status) + (is_from_outside ? ", not sent by drun" : "");
}

std::string printable(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  if (const std::size_t painted = line.rfind('\r'); painted != line.npos)
    line.remove_prefix(painted + 1);
  std::string text;
  while (!line.empty()) {
    if (const std::size_t size = style_size(line); size > 0) {
      line.remove_prefix(size);
      continue;
    }
    const auto byte = static_cast<unsigned char>(line[0]);
    // U+0080 to U+009F are control characters too.
    const bool is_c1 = byte == 0xc2 && line.size() > 1 &&
                       static_cast<unsigned char>(line[1]) >= 0x80 &&
                       static_cast<unsigned char>(line[1]) < 0xa0;
    const bool is_control = (byte < 0x20 && byte != '\t') || byte == 0x7f;
    for (std::size_t i = 0; i < (is_c1 ? 2U : 1U); ++i) {
      char shown[8] = {line[i], '\0'};
      if (is_control || is_c1)
        std::snprintf(shown, sizeof(shown), "\\x%02x", static_cast<unsigned char>(line[i]));
      text += shown;
    }
    line.remove_prefix(is_c1 ? 2 : 1);
  }
  return text;
}

}  // namespace drun
