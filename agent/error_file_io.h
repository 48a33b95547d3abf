// edge. Error files on disk: a worker's is read, and drun's own is written for what started drun.
//
// Errors:  Result, naming the path; Usage for a file that says nothing usable (see error_file.h).
//          Never throws. Reads at most kLongestErrorFileBytes.   Thread: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "agent/error_file.h"
#include "rendezvous/result.h"

namespace drun::agent {

// Absent when there is no such file, or an empty one: the worker wrote none.
Result<std::optional<ErrorRecord>> read_error_file(const std::string& path);

// Writes the worker's file to drun's own, with message.errorCode. Does nothing when `own` is empty
// or the worker wrote none.
Result<void> pass_on_error_file(const std::string& workers, const std::string& own, int exit_code);

// For what went wrong in drun itself. Does nothing when `own` is empty.
Result<void> write_error_file(const std::string& own, const ErrorRecord& record);

}  // namespace drun::agent
