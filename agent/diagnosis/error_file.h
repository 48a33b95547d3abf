// core. Parses torchrun's error.json, in which a worker reports its own failure, and reads, copies
// and writes such files.
//
// Forms:   {"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "Traceback ...",
//          "timestamp": "1690000000"}}}, as torch's @record writes it, or {"message": "x",
//          "timestamp": 1690000000} with a number or a string. Only the message is required.
// Units:   timestamps are seconds since 1970, integer or fractional. At most
//          kLongestErrorFileBytes are read.
//          Lone surrogates become U+FFFD.
// Errors:  Usage, with what is wrong: a worker can write anything, so the caller logs the error and
//          continues without the file. Never throws.
// Source:  torch elastic's ErrorHandler. torch's agent fails on a malformed file; this one does
//          not.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/job/outcome.h"

namespace drun::agent {

inline constexpr std::size_t kLongestErrorFileBytes = std::size_t{1} << 20;

struct ErrorRecord {
  std::string message;
  std::string traceback;         // empty: none
  std::optional<WallTime> time;  // absent: missing or invalid
  bool operator==(const ErrorRecord&) const = default;
};

Result<ErrorRecord> parse_error_record(std::string_view text);

// The same JSON with message.errorCode = exit_code; unchanged if the message is a plain string.
Result<std::string> with_error_code(std::string_view text, int exit_code);

// The object form, for a failure of drun itself.
std::string format_error_record(const ErrorRecord& record);

// --- Files on disk. Errors name the path.

// Absent if the file is missing or empty: the worker wrote none.
Result<std::optional<ErrorRecord>> read_error_file(const std::string& path);

// Copies the worker's file to drun's own and adds message.errorCode. Does nothing if `own` is empty
// or the worker wrote none.
Result<void> pass_on_error_file(const std::string& workers, const std::string& own, int exit_code);

// Reports a failure of drun itself. Does nothing if `own` is empty.
Result<void> write_error_file(const std::string& own, const ErrorRecord& record);

}  // namespace drun::agent
