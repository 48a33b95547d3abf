// core. Removes secrets from the commands and environments in reports and events. Thread: any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agent/spec.h"

namespace drun::agent {

inline constexpr std::string_view kRedacted = "[redacted]";

// Whether the name of a variable or option suggests a secret: TOKEN, PASSWORD, API_KEY and similar.
bool is_secret_name(std::string_view name);

// The value without the password of a URL ("https://user:password@host"); replaced completely if it
// looks like a key ("hf_...", "sk-...", "ghp_...", "AKIA...", "-----BEGIN").
std::string without_secrets(std::string_view value);

// The words of a command: values of options with secret names ("--token=x", "--token x", "TOKEN=x")
// are replaced, the others go through without_secrets.
std::vector<std::string> redacted_command(const std::vector<std::string>& words);

// The variables that explain how a job behaves (PATH, CUDA_*, NCCL_*, PYTHON*, SLURM_*, ...),
// sorted by name, at most 256, with secrets replaced and long values cut.
std::vector<EnvironmentEntry> reported_environment(const std::vector<EnvironmentEntry>& entries);

}  // namespace drun::agent
