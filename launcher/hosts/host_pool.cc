#include "launcher/hosts/host_pool.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "launcher/base/text.h"
#include "launcher/engines/host_list.h"
#include "rendezvous/base/text.h"

namespace drun::hosts {
namespace {

Error bad(std::string_view item, const std::string& reason) {
  return Error{ErrorCode::Usage, "\"" + std::string(item) + "\": " + reason};
}

// Of the hosts in a message; ", ..." replaces the rest.
constexpr std::size_t kMostShownHosts = 8;

// One item of a host list: [user@]name[:tail]. The name may contain ranges.
struct HostItem {
  std::string user{};
  std::vector<std::string> names{};   // not empty; none begins with '-', a prefix of ssh options
  std::optional<std::string> tail{};  // after the ':'
};

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Whether `name` is safe as part of ssh's destination.
bool is_name(std::string_view name, std::string_view also) {
  return !name.empty() && name.front() != '-' && std::all_of(name.begin(), name.end(), [&](char c) {
    return is_letter_or_digit(c) || also.find(c) != std::string_view::npos;
  });
}

// True for "[fe80::1]:2", false for "[01-04]:2".
bool is_bracketed_address(std::string_view text) {
  const std::string_view inner = text.substr(0, text.find(']'));
  return text.starts_with('[') && inner.find(':') != std::string_view::npos;
}

// Position of the ':' outside brackets. Absent: none; npos: several.
std::optional<std::size_t> colon_of(std::string_view text) {
  std::optional<std::size_t> colon;
  bool is_inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') is_inside = true;
    if (text[i] == ']') is_inside = false;
    if (text[i] != ':' || is_inside) continue;
    if (colon) return std::string_view::npos;
    colon = i;
  }
  return colon;
}

Result<HostItem> parse_address(std::string_view whole, std::string_view text) {
  const std::size_t end = text.find(']');
  if (end == std::string_view::npos) return bad(whole, "[ without ]");
  const std::string_view rest = text.substr(end + 1);
  HostItem item{.names = {std::string(text.substr(1, end - 1))}};
  if (!is_name(item.names.front(), ":.%-_") || (!rest.empty() && !rest.starts_with(':')))
    return bad(whole, "expected an IPv6 address such as [fe80::1] or [fe80::1]:4");
  if (!rest.empty()) item.tail = rest.substr(1);
  return item;
}

Result<HostItem> parse_names(std::string_view whole, std::string_view text) {
  const std::optional<std::size_t> colon = colon_of(text);
  if (colon == std::string_view::npos)
    return bad(whole, "several colons; write an IPv6 address in brackets: [fe80::1]:4");
  HostItem item;
  if (colon) item.tail = text.substr(*colon + 1);
  Result<std::vector<std::string>> names =
      engines::expand_host_list(text.substr(0, colon.value_or(text.npos)));
  if (!names) return with_context(names.error(), "\"" + std::string(whole) + "\"");
  item.names = *std::move(names);
  for (const std::string& name : item.names)
    if (!is_name(name, "-._")) return bad(whole, "\"" + name + "\" is not the name of a host");
  return item;
}

Result<HostItem> parse_host_item(std::string_view text) {
  const std::size_t at = text.find('@');
  const std::string_view user = at == text.npos ? std::string_view() : text.substr(0, at);
  const std::string_view rest = at == text.npos ? text : text.substr(at + 1);
  if (at != text.npos && !is_name(user, "-._+"))
    return bad(text, "expected a user before the @, such as user@host");
  Result<HostItem> item =
      is_bracketed_address(rest) ? parse_address(text, rest) : parse_names(text, rest);
  if (item) item->user = user;
  return item;
}

// Splits at `separators` outside brackets and omits empty parts.
std::vector<std::string_view> split_outside_brackets(std::string_view text,
                                                     std::string_view separators) {
  std::vector<std::string_view> parts;
  bool is_inside = false;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const bool is_end = i == text.size();
    if (!is_end && text[i] == '[') is_inside = true;
    if (!is_end && text[i] == ']') is_inside = false;
    if (!is_end && (is_inside || separators.find(text[i]) == separators.npos)) continue;
    if (i > begin) parts.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return parts;
}

// A number from 1 to kMostSlots.
std::optional<int> slot_count(std::string_view text) {
  const std::optional<int> count = whole_number<int>(text);
  return count && *count >= 1 && *count <= kMostSlots ? count : std::nullopt;
}

Error bad(std::string reason) { return Error{ErrorCode::Usage, std::move(reason)}; }

// Merges repeated hosts.
class Builder {
 public:
  Result<void> add(const HostItem& item, std::optional<int> slots) {
    for (const std::string& name : item.names) {
      const auto [place, is_new] = places_.try_emplace(name, pool_.size());
      if (is_new) {
        if (pool_.size() == engines::kMostHosts)
          return bad("over " + std::to_string(engines::kMostHosts) + " hosts");
        pool_.push_back({.name = name, .user = item.user, .slots = slots});
        continue;
      }
      PoolHost& host = pool_[place->second];
      if (host.user != item.user) return bad("\"" + name + "\" is listed with two users");
      const int sum = host.slots.value_or(1) + slots.value_or(1);
      if (sum > kMostSlots)
        return bad("\"" + name + "\" with over " + std::to_string(kMostSlots) + " slots");
      host.slots = sum;
    }
    return {};
  }
  Result<Pool> take() && {
    if (pool_.empty()) return bad("names no host; write them as node1,node2:4");
    return std::move(pool_);
  }

 private:
  Pool pool_;
  std::map<std::string, std::size_t, std::less<>> places_;
};

Error bad_slots(std::string_view text) {
  return bad("\"" + std::string(text) + "\" slots; expected a number from 1 to " +
             std::to_string(kMostSlots));
}

Result<void> add_item(Builder& builder, std::string_view text, std::optional<int> slots) {
  const Result<HostItem> item = parse_host_item(text);
  if (!item) return item.error();
  if (item->tail && slots)
    return bad("\"" + std::string(text) + "\" and slots= conflict; remove one");
  if (item->tail) {
    slots = slot_count(*item->tail);
    if (!slots) return bad_slots(*item->tail);
  }
  return builder.add(*item, slots);
}

// Turns "slots = 4" into "slots=4".
std::string without_blanks_around_equals(std::string_view text) {
  const auto is_blank = [](char c) { return kBlanks.find(c) != kBlanks.npos; };
  std::string joined;
  for (const char c : text) {
    if (is_blank(c) && joined.ends_with('=')) continue;
    while (c == '=' && !joined.empty() && is_blank(joined.back())) joined.pop_back();
    joined += c;
  }
  return joined;
}

Result<void> add_line(Builder& builder, std::string_view raw) {
  const std::string line = without_blanks_around_equals(raw.substr(0, raw.find('#')));
  std::vector<std::string_view> hosts;
  std::optional<int> slots;
  for (const std::string_view word : split_outside_brackets(line, ", \t\r")) {
    const std::size_t equals = word.find('=');
    if (equals == word.npos) {
      hosts.push_back(word);
      continue;
    }
    const std::string_view key = word.substr(0, equals);
    const std::optional<int> count = slot_count(word.substr(equals + 1));
    const bool is_most = key == "max_slots" || key == "max-slots";
    if (key != "slots" && !is_most)
      return bad("\"" + std::string(key) + "\" is unknown; write host slots=N");
    if (!count) return bad_slots(word.substr(equals + 1));
    if (!is_most) slots = count;
  }
  if (hosts.empty() && slots) return bad("slots without a host; write host slots=N");
  for (const std::string_view host : hosts)
    if (Result<void> added = add_item(builder, host, slots); !added) return added;
  return {};
}

// "node01, node02, ...", with the text of each host.
template <typename TextOf>
std::string first_hosts(const Pool& pool, TextOf text_of) {
  const std::span shown(pool.data(), std::min(pool.size(), kMostShownHosts));
  return joined(shown, ", ", text_of) + (shown.size() < pool.size() ? ", ..." : "");
}

// Devices by host name; an empty set selects the whole host.
using Choice = std::map<std::string, std::set<int>>;

Result<std::set<int>> parse_devices(std::string_view text) {
  std::set<int> devices;
  for (const std::string_view part : split_outside_brackets(text, ",")) {
    const std::optional<int> device = whole_number<int>(part);
    if (!device || *device < 0 || *device >= kMostSlots)
      return bad("\"" + std::string(text) + "\": expected devices such as 0,2 after the colon");
    devices.insert(*device);
  }
  if (devices.empty()) return bad("expected devices such as 0,2 after the colon");
  return devices;
}

Result<Choice> parse_choice(const Pool& pool, std::string_view text) {
  Choice choice;
  for (const std::string_view term : split_outside_brackets(text, "@")) {
    const Result<HostItem> item = parse_host_item(term);
    if (!item) return item.error();
    std::set<int> devices;
    if (item->tail) {
      Result<std::set<int>> parsed = parse_devices(*item->tail);
      if (!parsed) return parsed.error();
      devices = *std::move(parsed);
    }
    for (const std::string& name : item->names) {
      const auto host = std::find_if(pool.begin(), pool.end(),
                                     [&](const PoolHost& each) { return each.name == name; });
      if (host == pool.end())
        return bad("\"" + name + "\" is not one of the hosts, which are " +
                   first_hosts(pool, &PoolHost::name));
      if (host->slots && !devices.empty() && *devices.rbegin() >= *host->slots)
        return bad("\"" + name + "\" has " + std::to_string(*host->slots) +
                   " slots, so no device " + std::to_string(*devices.rbegin()) +
                   "; the first device is 0");
      const auto [place, is_new] = choice.try_emplace(name, devices);
      if (!is_new && place->second.empty() != devices.empty())
        return bad("\"" + name + "\" is listed with and without devices; remove one");
      place->second.merge(std::set<int>(devices));
    }
  }
  if (choice.empty()) return bad("names no host");
  return choice;
}

}  // namespace

Result<Pool> parse_hosts(std::string_view list) {
  Builder builder;
  for (const std::string_view text : split_outside_brackets(list, ", \t\r\n"))
    if (Result<void> added = add_item(builder, text, std::nullopt); !added) return added.error();
  return std::move(builder).take();
}

Result<Pool> parse_host_file(std::string_view text) {
  Builder builder;
  int number = 0;
  for (const std::string_view line : lines_of(text)) {
    ++number;
    if (Result<void> added = add_line(builder, line); !added)
      return with_context(added.error(), "line " + std::to_string(number));
  }
  return std::move(builder).take();
}

Result<Pool> included(const Pool& pool, std::string_view text) {
  const Result<Choice> choice = parse_choice(pool, text);
  if (!choice) return choice.error();
  Pool left;
  for (PoolHost host : pool) {
    const auto chosen = choice->find(host.name);
    if (chosen == choice->end()) continue;
    host.devices.assign(chosen->second.begin(), chosen->second.end());
    left.push_back(std::move(host));
  }
  return left;
}

Result<Pool> excluded(const Pool& pool, std::string_view text) {
  const Result<Choice> choice = parse_choice(pool, text);
  if (!choice) return choice.error();
  Pool left;
  for (PoolHost host : pool) {
    const auto chosen = choice->find(host.name);
    if (chosen != choice->end()) {
      if (chosen->second.empty()) continue;
      if (!host.slots)
        return bad("\"" + host.name + "\": its number of devices is unknown; add it, such as " +
                   host.name + ":8 or slots=8");
      for (int device = 0; device < *host.slots; ++device)
        if (!chosen->second.contains(device)) host.devices.push_back(device);
      if (host.devices.empty()) continue;
    }
    left.push_back(std::move(host));
  }
  if (left.empty()) return bad("leaves no host");
  return left;
}

namespace {

bool is_counted(const PoolHost& host) { return host.slots || !host.devices.empty(); }

int slots_of(const PoolHost& host) {
  return host.devices.empty() ? host.slots.value_or(1) : static_cast<int>(host.devices.size());
}

std::int64_t all_slots(const Pool& pool) {
  return std::accumulate(
      pool.begin(), pool.end(), std::int64_t{0},
      [](std::int64_t sum, const PoolHost& host) { return sum + slots_of(host); });
}

// "node01 4, node02 4".
std::string slots_text(const Pool& pool) {
  return first_hosts(
      pool, [](const PoolHost& host) { return host.name + " " + std::to_string(slots_of(host)); });
}

Error too_many(const Pool& pool, int np) {
  return bad("-np " + std::to_string(np) + ": the hosts have " + std::to_string(all_slots(pool)) +
             " slots (" + slots_text(pool) + "); add slots, such as " + pool.front().name +
             ":8, or set --oversubscribe");
}

// Fills the hosts in order, with at most `room` workers each.
std::vector<int> filled(const std::vector<int>& room, std::int64_t np) {
  std::vector<int> counts;
  for (const int each : room) {
    counts.push_back(static_cast<int>(std::min<std::int64_t>(each, np)));
    np -= counts.back();
  }
  return counts;
}

// Deals workers to the hosts in turn, with at most `room` each.
std::vector<int> dealt(const std::vector<int>& room, std::int64_t np) {
  std::vector<int> counts(room.size());
  while (np > 0) {
    const std::int64_t before = np;
    for (std::size_t i = 0; i < room.size() && np > 0; ++i) {
      if (counts[i] == room[i]) continue;
      ++counts[i];
      --np;
    }
    if (np == before) break;
  }
  return counts;
}

Result<std::vector<int>> counts_of_np(const Pool& pool, const SpreadRequest& wish) {
  std::vector<int> room;
  for (const PoolHost& host : pool) room.push_back(slots_of(host));
  const std::int64_t slots = all_slots(pool);
  if (*wish.np > slots && !wish.oversubscribe) return too_many(pool, *wish.np);
  const bool is_by_node = wish.map_by.order == MapBy::Order::Node;
  const std::int64_t within = std::min<std::int64_t>(*wish.np, slots);
  std::vector<int> counts = is_by_node ? dealt(room, within) : filled(room, within);
  const std::vector<int> beyond = dealt(std::vector<int>(pool.size(), *wish.np), *wish.np - within);
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += beyond[i];
  return counts;
}

Result<std::vector<int>> counts_per_node(const Pool& pool, const SpreadRequest& wish,
                                         int per_node) {
  for (const PoolHost& host : pool) {
    if (!is_counted(host) || per_node <= slots_of(host) || wish.oversubscribe) continue;
    return bad(std::to_string(per_node) + " workers on each host: " + host.name + " has " +
               std::to_string(slots_of(host)) +
               " slots; reduce the number of workers, or set --oversubscribe");
  }
  const std::int64_t most = static_cast<std::int64_t>(per_node) * static_cast<int>(pool.size());
  if (wish.np && *wish.np > most)
    return bad("-np " + std::to_string(*wish.np) + ": " + std::to_string(per_node) +
               " on each of " + std::to_string(pool.size()) + " hosts are only " +
               std::to_string(most) + "; list more hosts, or change one of the options");
  return filled(std::vector<int>(pool.size(), per_node), wish.np ? *wish.np : most);
}

// Ranks are ints.
Result<std::vector<Share>> checked(std::vector<Share> shares) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  std::int64_t sum = 0;
  for (const Share& share : shares) sum += share.workers.value_or(1);
  if (sum <= kMost) return shares;
  return bad(std::to_string(sum) + " workers on " + std::to_string(shares.size()) +
             " hosts; at most " + std::to_string(kMost) + " can be in a job");
}

}  // namespace

Result<std::vector<Share>> spread(const Pool& pool, const SpreadRequest& wish) {
  const std::optional<int> per_node = wish.map_by.per_node ? wish.map_by.per_node : wish.per_node;
  if (wish.map_by.per_node &&
      (wish.has_per_node_word || (wish.per_node && *wish.per_node != *per_node)))
    return bad("--map-by=ppr and --nproc-per-node conflict; remove one");
  if (wish.np && wish.has_per_node_word)
    return bad("-np and --nproc-per-node=gpu (or auto, cpu) conflict; remove one");
  std::vector<Share> shares;
  if (!wish.np && !per_node) {
    for (const PoolHost& host : pool) {
      shares.push_back(
          {host, wish.has_per_node_word ? std::nullopt : std::optional(slots_of(host))});
    }
    return checked(std::move(shares));
  }
  const Result<std::vector<int>> counts =
      per_node ? counts_per_node(pool, wish, *per_node) : counts_of_np(pool, wish);
  if (!counts) return counts.error();
  for (std::size_t i = 0; i < pool.size(); ++i)
    if ((*counts)[i] > 0) shares.push_back({pool[i], (*counts)[i]});
  return checked(std::move(shares));
}

}  // namespace drun::hosts
