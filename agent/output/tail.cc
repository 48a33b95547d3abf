#include "agent/output/tail.h"

#include <algorithm>

namespace drun::agent {
namespace {

std::string as_shown(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (const std::size_t last = line.rfind('\r'); last != line.npos) line.remove_prefix(last + 1);
  if (line.size() <= kTailLineBytes) return std::string(line);
  std::string cut(line.substr(0, kTailLineBytes - 3));
  return cut.append("...");
}

}  // namespace

void Tail::take(std::string_view bytes) {
  if (bytes.size() >= kTailBytes) {
    bytes_.assign(bytes.substr(bytes.size() - kTailBytes));
    return;
  }
  // Moving the kept half down only when the other half is full makes it one copy a byte at most.
  if (bytes_.size() + bytes.size() > 2 * kTailBytes) bytes_.erase(0, bytes_.size() - kTailBytes);
  bytes_.append(bytes);
}

std::string_view Tail::bytes() const {
  const std::string_view all = bytes_;
  return all.substr(all.size() - std::min(all.size(), kTailBytes));
}

std::vector<std::string> last_lines(std::string_view bytes) {
  while (bytes.ends_with('\n') || bytes.ends_with('\r')) bytes.remove_suffix(1);
  std::vector<std::string> lines;
  while (!bytes.empty() || !lines.empty()) {
    const std::size_t before = bytes.rfind('\n');
    lines.push_back(as_shown(before == bytes.npos ? bytes : bytes.substr(before + 1)));
    if (before == bytes.npos || lines.size() == kTailLines) break;
    bytes = bytes.substr(0, before);
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

}  // namespace drun::agent
