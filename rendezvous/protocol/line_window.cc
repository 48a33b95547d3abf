#include "rendezvous/protocol/line_window.h"

#include <algorithm>
#include <utility>

namespace drun::rendezvous {
namespace {

constexpr std::size_t kAllWindowsBytes = std::size_t{64} << 20;
constexpr std::size_t kSmallestWindowBytes = std::size_t{64} << 10;
constexpr std::size_t kLargestWindowBytes = std::size_t{1} << 20;

}  // namespace

std::size_t line_window_bytes(int node_count) {
  const auto nodes = static_cast<std::size_t>(std::max(1, node_count));
  return std::clamp(kAllWindowsBytes / nodes, kSmallestWindowBytes, kLargestWindowBytes);
}

std::size_t most_text_bytes(std::size_t window_bytes) {
  const std::size_t quarter = window_bytes / 4;
  return std::clamp(quarter, kLineMessageBytes + 1, kMostLinesTextBytes + kLineMessageBytes) -
         kLineMessageBytes;
}

std::size_t cost_bytes(const Lines& lines) { return kLineMessageBytes + lines.text.size(); }

bool LineLedger::accept(std::uint64_t peer, std::size_t cost) {
  Account& account = accounts_[peer];
  if (cost > window_bytes_ || account.waiting + account.owed > window_bytes_ - cost) return false;
  account.waiting += cost;
  return true;
}

std::size_t LineLedger::taken(std::uint64_t peer, std::size_t cost) {
  const auto found = accounts_.find(peer);
  if (found == accounts_.end()) return 0;
  Account& account = found->second;
  account.waiting -= std::min(cost, account.waiting);
  account.owed += cost;
  const bool is_due = account.waiting == 0 || account.owed >= window_bytes_ / 4;
  return is_due ? std::exchange(account.owed, 0) : 0;
}

}  // namespace drun::rendezvous
