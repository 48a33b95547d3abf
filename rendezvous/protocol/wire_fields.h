// core. Parts of message layouts (bytes.h): limits, and fields of more than one number or text.
// Include it only in sources that define layouts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include "rendezvous/base/bytes.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/job/rank_ranges.h"

namespace drun::rendezvous {

constexpr WireRange kCount{0, std::int64_t{1} << 30};
constexpr WireRange kPid{0, std::int64_t{1} << 30};
constexpr WireRange kSignal{0, 127};
constexpr std::int64_t kMostMilliseconds = std::int64_t{1} << 50;
constexpr std::int64_t kMostMicroseconds = std::int64_t{1} << 60;
constexpr std::size_t kNameBytes = 256;       // role, host
constexpr std::size_t kIdentityBytes = 4096;  // run id, addresses, paths
constexpr std::size_t kSentenceBytes = 4096;
constexpr std::size_t kMostFailures = 4096;

// A variant as u8 index, then the alternative's fields. `Alternatives` stay default constructible.
template <typename Archive, typename Variant, typename Each, std::size_t... Index>
void one_of(Archive& archive, Variant& value, Each each, std::index_sequence<Index...>) {
  auto index = static_cast<std::uint8_t>(value.index());
  archive.kind(index, sizeof...(Index));
  if constexpr (Archive::kIsReader)
    ((index == Index ? void(value.template emplace<Index>()) : void()), ...);
  std::visit([&archive, &each](auto& alternative) { each(archive, alternative); }, value);
}
template <typename Archive, typename Variant, typename Each>
void one_of(Archive& archive, Variant& value, Each each) {
  one_of(archive, value, each, std::make_index_sequence<std::variant_size_v<Variant>>());
}

template <typename Archive>
void optional_rank(Archive& archive, std::optional<int>& node_rank) {
  bool has_rank = node_rank.has_value();
  int rank = node_rank.value_or(0);
  archive.flag(has_rank);
  archive.integer(rank, kCount);
  node_rank = has_rank ? std::optional(rank) : std::nullopt;
}

// An enumeration whose values are 0 to `last`.
template <typename Archive, typename Enum>
void word(Archive& archive, Enum& value, Enum last) {
  auto number = static_cast<int>(value);
  archive.integer(number, {0, static_cast<int>(last)});
  value = static_cast<Enum>(number);
}

template <typename Archive>
void rank_ranges(Archive& archive, RankRanges& ranks, std::size_t most) {
  archive.list(ranks, most, [](auto& each, RankRange& range) {
    each.integer(range.first, kCount);
    each.integer(range.last, {range.first, kCount.high});
  });
}

template <typename Archive>
void moment(Archive& archive, WallTime& time) {
  auto since_epoch = time.time_since_epoch();
  archive.duration(since_epoch, kMostMicroseconds);
  time = WallTime(since_epoch);
}

}  // namespace drun::rendezvous
