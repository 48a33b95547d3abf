#include "launcher/engines/host_file.h"

#include <algorithm>
#include <map>
#include <utility>

#include "launcher/engines/host_list.h"
#include "rendezvous/base/text.h"

namespace drun::engines {
namespace {

std::string_view next_word(std::string_view& text, std::string_view blanks) {
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(blanks));
  text.remove_prefix(word.size());
  return word;
}

// Counts slots per host; rejects invalid hosts.
class Counter {
 public:
  bool add(std::string_view host, int slots) {
    if (host.empty() || host.size() > kMostNameBytes || slots < 1) return false;
    const auto [place, is_new] = places_.try_emplace(std::string(host), hosts_.size());
    if (is_new) hosts_.push_back({.host = std::string(host), .slots = 0});
    int& count = hosts_[place->second].slots;
    if (slots > kMostCount - count || hosts_.size() > kMostCount) return false;
    count += slots;
    return true;
  }
  std::optional<SlotList> list(std::string from) && {
    if (hosts_.empty()) return std::nullopt;
    return SlotList{.hosts = std::move(hosts_), .from = std::move(from)};
  }

 private:
  std::vector<HostSlots> hosts_;
  std::map<std::string, std::size_t, std::less<>> places_;
};

}  // namespace

std::optional<SlotList> slots_from_lines(std::string_view text, std::string from) {
  Counter counter;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::string_view host = next_word(line, kBlanks);
    if (!host.empty() && !counter.add(host, 1)) return std::nullopt;
  }
  return std::move(counter).list(std::move(from));
}

std::optional<SlotList> slots_from_words(std::string_view text, std::string from) {
  Counter counter;
  for (auto host = next_word(text, kBlanks); !host.empty(); host = next_word(text, kBlanks)) {
    if (!counter.add(host, 1)) return std::nullopt;
  }
  return std::move(counter).list(std::move(from));
}

std::optional<SlotList> slots_from_pairs(std::string_view text, std::string from) {
  Counter counter;
  for (auto host = next_word(text, kBlanks); !host.empty(); host = next_word(text, kBlanks)) {
    const auto slots = whole_number(next_word(text, kBlanks));
    if (!slots || *slots > kMostCount || !counter.add(host, static_cast<int>(*slots)))
      return std::nullopt;
  }
  return std::move(counter).list(std::move(from));
}

std::optional<SlotList> slots_from_file(Reading& reading, const FileText& file_text,
                                        std::string_view name) {
  const auto path = reading.text(name);
  if (!path) return std::nullopt;
  const std::optional<std::string> text = file_text(path->value);
  auto list = text ? slots_from_lines(*text, path->from) : std::nullopt;
  if (!list) {
    reading.blame(shown(*path) + (text ? " names no hosts" : " cannot be read on this machine") +
                  "; give --nnodes, --node-rank and --master-addr");
  }
  return list;
}

void take_hosts(Reading& reading, const SlotList& list, Facts& facts) {
  const std::size_t count = list.hosts.size();
  facts.nodes = EngineFact<int>{.value = static_cast<int>(count), .from = list.from};
  facts.master_addr = EngineFact<std::string>{.value = list.hosts.front().host, .from = list.from};
  if (!facts.node_rank) return;
  const auto own = static_cast<std::size_t>(facts.node_rank->value);
  if (own >= count) {
    return reading.blame(facts.node_rank->from + " makes this node " + std::to_string(own) +
                         ", but " + list.from + " has " + std::to_string(count) +
                         " hosts; give --nnodes, --node-rank and --master-addr");
  }
  facts.workers = EngineFact<int>{.value = list.hosts[own].slots, .from = list.from};
}

}  // namespace drun::engines
