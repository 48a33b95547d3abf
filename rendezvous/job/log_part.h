// core. A part of a rank's log file, as `drun logs` reads it from any node of the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace drun {

constexpr std::size_t kMostLogPartBytes = std::size_t{64} << 10;

struct LogQuery {
  int rank = 0;
  std::optional<int> round{};  // absent: the latest
  bool is_stderr = false;
  std::uint64_t offset = 0;  // in bytes
  bool operator==(const LogQuery&) const = default;
};

struct LogPart {
  int round = 0;                 // the latest of the node that answers
  std::uint64_t size_bytes = 0;  // of the file, when it was read
  std::string text{};            // from the offset on, at most kMostLogPartBytes; any bytes
  std::string label{};           // of the rank's lines on the console
  std::string note{};            // why there is no text; empty: the file was read
  bool operator==(const LogPart&) const = default;
};

}  // namespace drun
