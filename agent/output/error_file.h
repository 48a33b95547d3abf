// core. torchrun's error.json, a worker's own report of its failure: read and passed on.
//
// Forms:   {"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "Traceback ...",
//          "timestamp": "1690000000"}}} as torch's @record writes it, or {"message": "x",
//          "timestamp": 1690000000} with a number or a string. Everything but the message may lack.
// Units:   timestamps are seconds since 1970, whole or not. At most kLongestErrorFileBytes.
// Owner:   values; copy freely.   Thread: any.
// Errors:  Usage, naming the fault of the text: a worker can write anything, so the caller logs it
//          and continues without.   Never throws.
// Source:  torch elastic's ErrorHandler; torch's agent dies of a malformed file, this does not.
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
  std::optional<WallTime> time;  // absent: none, or one that is no time
  bool operator==(const ErrorRecord&) const = default;
};

Result<ErrorRecord> parse_error_record(std::string_view text);

// The same JSON with message.errorCode = exit_code; as it is where the message is a plain string.
Result<std::string> with_error_code(std::string_view text, int exit_code);

// The object form, for what goes wrong in drun itself.
std::string format_error_record(const ErrorRecord& record);

}  // namespace drun::agent

// edge. Error files on disk: a worker's is read, and drun's own is written for what started drun.
//
// Errors:  Result, naming the path; Usage for a file that says nothing usable (see error_file.h).
//          Never throws. Reads at most kLongestErrorFileBytes.   Thread: any.

namespace drun::agent {

// Absent when there is no such file, or an empty one: the worker wrote none.
Result<std::optional<ErrorRecord>> read_error_file(const std::string& path);

// Writes the worker's file to drun's own, with message.errorCode. Does nothing when `own` is empty
// or the worker wrote none.
Result<void> pass_on_error_file(const std::string& workers, const std::string& own, int exit_code);

// For what went wrong in drun itself. Does nothing when `own` is empty.
Result<void> write_error_file(const std::string& own, const ErrorRecord& record);

}  // namespace drun::agent
