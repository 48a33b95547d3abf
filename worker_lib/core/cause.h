// core. The first cause of a group's failure, and its encoding in the store, through which other
// ranks get it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "drun/error.h"

namespace drun::worker {

struct Cause {
  int reporter = 0;  // the rank that reports it
  WorkerError::Kind kind = WorkerError::Kind::System;
  std::optional<int> peer = std::nullopt;
  std::string operation;  // the reporter's
  std::string message;
  bool operator==(const Cause&) const = default;
};

// Texts are truncated so that the result stays below 4 KiB.
std::string encode(const Cause& cause);
// Absent if the bytes are invalid.
std::optional<Cause> decode_cause(std::string_view bytes);

}  // namespace drun::worker
