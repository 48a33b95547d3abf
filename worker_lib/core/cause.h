// core. The first cause of a group's failure, as it travels from the rank that saw it to the others
// through the store.
//
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "drun/error.h"

namespace drun::worker {

struct Cause {
  int reporter = 0;  // the rank that says it
  WorkerError::Kind kind = WorkerError::Kind::System;
  std::optional<int> peer = std::nullopt;
  std::string operation;  // the reporter's
  std::string message;
  bool operator==(const Cause&) const = default;
};

// Texts are cut so that the whole stays under 4 KiB.
std::string encode(const Cause& cause);
// Nothing: these bytes are not a cause.
std::optional<Cause> decode_cause(std::string_view bytes);

}  // namespace drun::worker
