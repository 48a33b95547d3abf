// core. One item of a list of hosts: [user@]name[:tail], where the name may have ranges.
// Errors:  Usage: "item: reason; what to write".   Thread: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/result.h"

namespace drun::hosts {

struct HostItem {
  std::string user{};
  std::vector<std::string> names{};   // at least one; none begins with '-', which ssh would obey
  std::optional<std::string> tail{};  // after the ':'
};

Result<HostItem> parse_host_item(std::string_view text);

// At `separators`, but for those within brackets; empty parts are left out.
std::vector<std::string_view> split_outside_brackets(std::string_view text,
                                                     std::string_view separators);

inline constexpr int kMostSlots = 65536;

// 1 to kMostSlots. Absent: it is no such number.
std::optional<int> slot_count(std::string_view text);

}  // namespace drun::hosts
