// core. Parts of message layouts (bytes.h): limits, and fields of more than one number or text.
// Include it only in sources that define layouts.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "rendezvous/base/bytes.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/job/rank_ranges.h"

namespace drun::rendezvous {

constexpr WireRange kCount{0, std::int64_t{1} << 30};
constexpr WireRange kPid{0, std::int64_t{1} << 30};
constexpr WireRange kSignal{0, 127};
// Up to 140 years: the sum of two durations fits in the clocks' nanoseconds.
constexpr std::int64_t kMostMilliseconds = std::int64_t{1} << 42;
constexpr std::int64_t kMostMicroseconds = std::int64_t{1} << 52;
static_assert(kMostMilliseconds <= std::chrono::nanoseconds::max() / std::chrono::milliseconds(2));
static_assert(kMostMicroseconds <= std::chrono::nanoseconds::max() / std::chrono::microseconds(2));
constexpr std::size_t kNameBytes = 256;       // role, host
constexpr std::size_t kIdentityBytes = 4096;  // run id, addresses, paths
constexpr std::size_t kSentenceBytes = 4096;
constexpr std::size_t kMostFailures = 4096;

// The helpers below call fields(archive, x), which the source that includes this header defines in
// the archive's namespace.

// A variant as u8 index, then the alternative's fields. `Alternatives` stay default constructible.
template <typename Archive, typename... Alternatives>
void one_of(Archive& archive, std::variant<Alternatives...>& value) {
  auto index = static_cast<std::uint8_t>(value.index());
  archive.kind(index, sizeof...(Alternatives));
  if constexpr (Archive::kIsReader) {
    std::uint8_t each = 0;
    ((index == each++ ? void(value.template emplace<Alternatives>()) : void()), ...);
  }
  std::visit([&archive](auto& alternative) { fields(archive, alternative); }, value);
}

template <typename Element>
void list_of(auto& archive, std::vector<Element>& elements, std::size_t most) {
  archive.list(elements, most, [](auto& each, Element& element) { fields(each, element); });
}

// A flag, then the value if there is one.
template <typename Value>
void optional(auto& archive, std::optional<Value>& value) {
  bool has_value = value.has_value();
  archive.flag(has_value);
  if (has_value) fields(archive, value ? *value : value.emplace());
}

// Several fields, in this order.
void counts(auto& archive, auto&... values) { (archive.integer(values, kCount), ...); }
void flags(auto& archive, auto&... values) { (archive.flag(values), ...); }

void optional_rank(auto& archive, std::optional<int>& node_rank) {
  bool has_rank = node_rank.has_value();
  int rank = node_rank.value_or(0);
  archive.flag(has_rank);
  archive.integer(rank, kCount);
  node_rank = has_rank ? std::optional(rank) : std::nullopt;
}

// An enumeration whose values are 0 to `last`.
template <typename Enum>
void word(auto& archive, Enum& value, Enum last) {
  auto number = static_cast<int>(value);
  archive.integer(number, {0, static_cast<int>(last)});
  value = static_cast<Enum>(number);
}

void rank_ranges(auto& archive, RankRanges& ranks, std::size_t most) {
  archive.list(ranks, most, [](auto& each, RankRange& range) {
    each.integer(range.first, kCount);
    each.integer(range.last, {range.first, kCount.high});
  });
}

void moment(auto& archive, WallTime& time) {
  auto since_epoch = time.time_since_epoch();
  archive.duration(since_epoch, kMostMicroseconds);
  time = WallTime(since_epoch);
}

}  // namespace drun::rendezvous
