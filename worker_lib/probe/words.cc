#include "worker_lib/probe/words.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace drun::probe {
namespace {

// Three digits that mean something, no more.
std::string short_number(double value) {
  std::array<char, 32> text{};
  const double size = std::abs(value);
  const int decimals = size >= 100 || size == 0 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  std::string number = text.data();
  if (number.find('.') == number.npos) return number;
  number.erase(number.find_last_not_of('0') + 1);
  if (number.ends_with('.')) number.pop_back();
  return number;
}

}  // namespace

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return short_number(value) + " " + kUnits[unit];
}

std::string limit_text(const std::optional<std::uint64_t>& limit) {
  return limit ? std::to_string(*limit) : "unlimited";
}

std::string rate_text(double gbytes_per_s) { return short_number(gbytes_per_s) + " GB/s"; }

std::string time_text(double seconds) {
  const double size = std::abs(seconds);
  if (size < 1e-3) return short_number(std::round(seconds * 1e6)) + " us";
  if (size < 1) return short_number(seconds * 1e3) + " ms";
  return short_number(seconds) + " s";
}

std::string clock_text(double ahead_s, double bound_s) {
  if (std::abs(ahead_s) <= bound_s) return "within " + time_text(bound_s);
  return (ahead_s > 0 ? "+" : "") + time_text(ahead_s) + " +-" + time_text(bound_s);
}

std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

}  // namespace drun::probe
