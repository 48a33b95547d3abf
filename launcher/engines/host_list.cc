#include "launcher/engines/host_list.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "launcher/base/text.h"
#include "launcher/engines/engine_facts.h"

namespace drun::engines {
namespace {

using Span = std::pair<std::int64_t, std::int64_t>;  // first and last

bool is_name(std::string_view entry) {
  return std::any_of(entry.begin(), entry.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  });
}

std::optional<Span> span_of(std::string_view entry) {
  const std::size_t dash = entry.find('-');
  const auto first = whole_number(entry.substr(0, dash));
  const auto last = dash == entry.npos ? first : whole_number(entry.substr(dash + 1));
  if (!first || !last || *first > *last || *last > kMostCount) return std::nullopt;
  return Span{*first, *last};
}

std::int64_t numbers_in(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end());
  std::int64_t count = 0;
  std::int64_t next = 0;
  for (const auto& [first, last] : spans) {
    count += std::max<std::int64_t>(last - std::max(first, next) + 1, 0);
    next = std::max(next, last + 1);
  }
  return count;
}

}  // namespace

bool is_list(std::string_view text) { return text.find_first_of(",-") != text.npos; }

std::optional<int> size_of_list(std::string_view text) {
  std::vector<Span> spans;
  std::set<std::string_view> names;
  for (const std::string_view entry : trimmed_parts(text, ',')) {
    if (is_name(entry)) {
      names.insert(entry);
    } else if (const auto span = span_of(entry)) {
      spans.push_back(*span);
    } else {
      return std::nullopt;
    }
  }
  const std::int64_t count = numbers_in(std::move(spans)) + static_cast<std::int64_t>(names.size());
  return count > kMostCount ? std::nullopt : std::optional(static_cast<int>(count));
}

namespace {

using Words = std::vector<std::string>;

constexpr std::size_t kMostDigits = 18;  // always fits 64 bits
constexpr std::size_t kMostBytesOfAll = std::size_t{4} << 20;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_part(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' ||
         c == '_' || c == ':';
}

// Consumes `rest_`. The first problem is kept and stops parsing.
class Parser {
 public:
  explicit Parser(std::string_view list) : list_(list), rest_(list) {}

  Result<Words> parse() {
    Words hosts;
    for (;;) {
      while (!rest_.empty() && (is_blank(rest_.front()) || rest_.front() == ','))
        rest_.remove_prefix(1);
      if (rest_.empty()) break;
      Words names = item();
      if (!problem_.empty()) return Error{ErrorCode::Usage, problem_};
      if (hosts.size() + names.size() > kMostHosts) fail(too_many());
      for (std::string& name : names) hosts.push_back(std::move(name));
      if (!problem_.empty()) return Error{ErrorCode::Usage, problem_};
    }
    if (hosts.empty()) return Error{ErrorCode::Usage, "names no host"};
    return hosts;
  }

 private:
  struct Number {
    std::uint64_t value = 0;
    std::size_t width = 0;
  };

  static std::string too_many() {
    return "names more than " + std::to_string(kMostHosts) + " hosts";
  }
  void fail(const std::string& reason) {
    if (!problem_.empty()) return;
    const std::size_t at = static_cast<std::size_t>(rest_.data() - list_.data());
    problem_ = reason + ", at character " + std::to_string(at + 1) +
               "; write a list such as node[01-04,07]";
  }
  bool takes(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  // Parses up to the next separator outside brackets.
  Words item() {
    Words names(1);
    while (problem_.empty() && !rest_.empty() && !is_blank(rest_.front()) && rest_.front() != ',') {
      if (takes('[')) {
        multiply(names, group());
      } else if (is_name_part(rest_.front())) {
        const auto end = std::find_if_not(rest_.begin(), rest_.end(), is_name_part);
        const auto size = static_cast<std::size_t>(end - rest_.begin());
        multiply(names, {std::string(rest_.substr(0, size))});
        rest_.remove_prefix(size);
      } else {
        fail(rest_.front() == ']' ? "a ] without its [" : "a character that no host name has");
      }
    }
    return names;
  }

  void multiply(Words& names, const Words& parts) {
    if (!problem_.empty()) return;
    if (names.size() * parts.size() > kMostHosts) return fail(too_many());
    Words product;
    product.reserve(names.size() * parts.size());
    std::size_t bytes = 0;
    for (const std::string& name : names) {
      for (const std::string& part : parts) {
        product.push_back(name + part);
        bytes += product.back().size();
        if (product.back().size() > kMostNameBytes) return fail("a name over 255 characters");
        if (bytes > kMostBytesOfAll) return fail(too_many());
      }
    }
    names = std::move(product);
  }

  // Parses after "[", through "]".
  Words group() {
    Words numbers;
    do {
      range(numbers);
    } while (problem_.empty() && takes(','));
    if (problem_.empty() && !takes(']'))
      fail(rest_.empty() ? "a [ without its ]" : "a character that no range has");
    return numbers;
  }

  void range(Words& numbers) {
    const Number low = number();
    Number high = low;
    Number step{.value = 1};
    if (takes('-')) {
      high = number();
      if (takes('/')) step = number();
    }
    if (!problem_.empty()) return;
    if (high.value < low.value) return fail("a range that goes down");
    if (step.value == 0) return fail("a step of 0");
    if ((high.value - low.value) / step.value >= kMostHosts - numbers.size())
      return fail(too_many());
    for (std::uint64_t value = low.value; value <= high.value; value += step.value) {
      std::string digits = std::to_string(value);
      if (digits.size() < low.width) digits.insert(0, low.width - digits.size(), '0');
      numbers.push_back(std::move(digits));
    }
  }

  Number number() {
    const auto end = std::find_if_not(rest_.begin(), rest_.end(), is_digit);
    const std::string_view digits = rest_.substr(0, static_cast<std::size_t>(end - rest_.begin()));
    Number number{.width = digits.size()};
    if (digits.empty() || digits.size() > kMostDigits) {
      fail(digits.empty() ? "no number" : "a number of over 18 digits");
      return number;
    }
    std::from_chars(digits.data(), digits.data() + digits.size(), number.value);
    rest_.remove_prefix(digits.size());
    return number;
  }

  std::string_view list_;
  std::string_view rest_;
  std::string problem_;
};

}  // namespace

Result<Words> expand_host_list(std::string_view list) { return Parser(list).parse(); }

namespace {

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

// One slot per line, for the host in its first word.
std::optional<SlotList> slots_from_lines(std::string_view text, std::string from) {
  Counter counter;
  for (std::string_view line : lines_of(text)) {
    const std::string_view host = next_word(line);
    if (!host.empty() && !counter.add(host, 1)) return std::nullopt;
  }
  return std::move(counter).list(std::move(from));
}

}  // namespace

std::optional<SlotList> slots_from_words(std::string_view text, std::string from) {
  Counter counter;
  for (auto host = next_word(text); !host.empty(); host = next_word(text)) {
    if (!counter.add(host, 1)) return std::nullopt;
  }
  return std::move(counter).list(std::move(from));
}

std::optional<SlotList> slots_from_pairs(std::string_view text, std::string from) {
  Counter counter;
  for (auto host = next_word(text); !host.empty(); host = next_word(text)) {
    const auto slots = whole_number(next_word(text));
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
  facts.nodes = EngineFact<int>{static_cast<int>(count), list.from};
  facts.master_addr = EngineFact<std::string>{list.hosts.front().host, list.from};
  if (!facts.node_rank) return;
  const auto own = static_cast<std::size_t>(facts.node_rank->value);
  if (own >= count) {
    return reading.blame(facts.node_rank->from + " makes this node " + std::to_string(own) +
                         ", but " + list.from + " has " + std::to_string(count) +
                         " hosts; give --nnodes, --node-rank and --master-addr");
  }
  facts.workers = EngineFact<int>{list.hosts[own].slots, list.from};
}

}  // namespace drun::engines
