#include "launcher/memory_size.h"

#include <charconv>
#include <cstdint>

namespace drun {
namespace {

constexpr std::string_view kUnits = "kmgt";
constexpr std::uint64_t kLeast = std::uint64_t{1} << 20;
constexpr std::uint64_t kMost = std::uint64_t{1} << 50;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// The power of 1024 that "GiB" stands for; npos: none.
std::size_t power_of(std::string_view unit) {
  if (unit.empty() || (unit.size() == 1 && lower(unit[0]) == 'b')) return 0;
  const std::size_t place = kUnits.find(lower(unit[0]));
  unit.remove_prefix(1);
  if (!unit.empty() && lower(unit[0]) == 'i') {
    unit.remove_prefix(1);
    if (unit.empty()) return kUnits.npos;
  }
  const bool is_whole = unit.empty() || (unit.size() == 1 && lower(unit[0]) == 'b');
  return place == kUnits.npos || !is_whole ? kUnits.npos : place + 1;
}

Error bad() {
  return {ErrorCode::Usage, "expected an amount of memory from 1MiB to 1024TiB, like 512MiB or 2G"};
}

}  // namespace

Result<std::size_t> parse_memory_size(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec != std::errc()) return bad();
  const std::size_t power = power_of(text.substr(static_cast<std::size_t>(end - text.data())));
  if (power == kUnits.npos || number > kMost >> (10 * power)) return bad();
  const std::uint64_t bytes = number << (10 * power);
  if (bytes < kLeast) return bad();
  return static_cast<std::size_t>(bytes);
}

std::string memory_size_text(std::size_t bytes) {
  for (std::size_t power = kUnits.size(); power > 0; --power) {
    const std::size_t unit = std::size_t{1} << (10 * power);
    if (bytes == 0 || bytes % unit != 0) continue;
    return std::to_string(bytes / unit) + static_cast<char>(kUnits[power - 1] - 32) + "iB";
  }
  return std::to_string(bytes) + " bytes";
}

}  // namespace drun
