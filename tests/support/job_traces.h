// What a job has left to be looked at: its ends, its text, its log directory, its memory.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/support/process.h"

namespace drun::testing {

// All of them end, with this exit code and with `words` on standard error.
void check_ends(const std::vector<Running*>& agents, int code, const std::string& words = "");

int count(const std::string& text, const std::string& part);

// The one directory that a job has made in `log_dir`.
std::string only_entry(const std::string& log_dir);

// The most memory that a process has ever had.
long peak_kib(pid_t pid);

}  // namespace drun::testing
