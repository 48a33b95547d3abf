// core. The messages between the ranks of a node before they share memory (connect.h).
//
// Shape:   fixed sizes, in this machine's byte order: both are on one machine. Builds that do not
//          fit differ in the segment's size.
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker_lib/shm/cores.h"

namespace drun::worker::shm {

// "I am": what a rank says first.
struct Hello {
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint64_t segment_bytes = 0;
  CoreMask cores{};
  bool operator==(const Hello&) const = default;
};

std::string to_text(const Hello& hello);
// Absent: it is none.
std::optional<Hello> parse_hello(std::string_view text);

// Whether there is a place for it in rank 0's group, which has these members, by rank.
bool has_place(const Hello& hello, std::uint64_t segment_bytes, const std::vector<bool>& is_there);

// What rank 0 says to that, with the two descriptors of the memory when it is a yes.
struct Answer {
  enum class Kind {
    Yes,
    No,    // there is no place for that rank
    Late,  // others have not come in time
  };
  Kind kind = Kind::No;
  CoreMask cores{};   // of a yes: of all ranks
  std::string why{};  // of the others
  bool operator==(const Answer&) const = default;
};

std::string to_text(const Answer& answer);
// An invalid message is a refusal with the reason.
Answer parse_answer(std::string_view text, std::size_t descriptors);

}  // namespace drun::worker::shm
