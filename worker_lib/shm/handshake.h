// core. The messages between the ranks of a node before they share memory (connect.h).
//
// Messages have fixed sizes and this machine's byte order, because both ranks are on one machine.
// Incompatible builds differ in the segment's size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker_lib/shm/cores.h"

namespace drun::worker::shm {

// The first message of a rank.
struct Hello {
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint64_t segment_bytes = 0;
  CoreMask cores{};
  bool operator==(const Hello&) const = default;
};

std::string to_text(const Hello& hello);
// Absent if the text is invalid.
std::optional<Hello> parse_hello(std::string_view text);

// Whether rank 0 accepts this rank. `is_there`: the ranks that have connected so far.
bool has_place(const Hello& hello, std::uint64_t segment_bytes, const std::vector<bool>& is_there);

// Rank 0's answer; Yes is sent with the two descriptors of the memory.
struct Answer {
  enum class Kind {
    Yes,
    No,    // the rank does not fit into the group
    Late,  // other ranks have not connected in time
  };
  Kind kind = Kind::No;
  CoreMask cores{};   // for Yes: of all ranks
  std::string why{};  // for No and Late: the reason
  bool operator==(const Answer&) const = default;
};

std::string to_text(const Answer& answer);
// An invalid message gives No with the reason.
Answer parse_answer(std::string_view text, std::size_t descriptors);

}  // namespace drun::worker::shm
