// Helpers to inspect a job: exit codes, output, log directory, memory.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/support/process.h"

namespace drun::testing {

// Checks that all agents exit with this code and print `words` to standard error.
void check_ends(const std::vector<Running*>& agents, int code, const std::string& words = "");

int count(const std::string& text, const std::string& part);

// Returns the only directory that a job created in `log_dir`.
std::string only_entry(const std::string& log_dir);

// Returns the process's peak memory.
long peak_kib(pid_t pid);

}  // namespace drun::testing
