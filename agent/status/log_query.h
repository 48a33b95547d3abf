// edge. A part of a rank's log file, as `drun logs` reads it from any node of the job. The bytes of
// a request and its answer are the same on the local socket and between nodes.
//
// Request: "RANK ROUND STREAM OFFSET\n": the round may be "-" for the latest; the stream is "out"
//          or "err". At most 64 bytes.
// Answer:  a line with a JSON object (round, size, label, note), then the text as it is. At most
//          96 KiB.
// Errors:  absent for other bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "agent/output/output.h"

namespace drun::agent {

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

std::string log_request(const LogQuery& query);
std::optional<LogQuery> parse_log_request(std::string_view request);

// Cuts the label and the note, if they are long.
std::string log_answer(const LogPart& part);
std::optional<LogPart> parse_log_answer(std::string_view answer);

// --- The answers of this node, from its log files
//
// Blocks:  a file system may hang, so files are read in the log directory's thread. At most
//          kMostLogReads reads wait for it; further requests are rejected.
// Owner:   Agent; the Output must outlive it.   Thread: the io_context's only.

inline constexpr std::size_t kMostLogReads = 64;

class LogReader {
 public:
  // `host`: this node's name, for messages.
  LogReader(Output& output, std::string host) : output_(output), host_(std::move(host)) {}

  // `round`: the latest one. `on_answer` is called once with log_answer(): from here if there is
  // nothing to read, else from the loop; never if the Output is stopped before.
  void read(const std::string& request, int round,
            std::function<void(std::string answer)> on_answer);

 private:
  Output& output_;
  std::string host_;
  std::size_t reads_ = 0;  // that wait for the thread
};

}  // namespace drun::agent
