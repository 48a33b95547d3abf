#include "agent/status/redaction.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace drun::agent {
namespace {

constexpr std::size_t kMostVariables = 256;
constexpr std::size_t kMostValueBytes = 1024;

// Parts of names between '_', '-' and '.'.
constexpr std::array kSecretParts{
    "TOKEN",  "TOKENS",  "SECRET", "SECRETS",   "PASSWORD",   "PASSWD",      "PASSPHRASE",
    "PASS",   "PWD",     "KEY",    "APIKEY",    "CREDENTIAL", "CREDENTIALS", "AUTH",
    "COOKIE", "SESSION", "BEARER", "SIGNATURE", "PRIVATE",    "JWT",         "AUTHORIZATION"};
constexpr std::array kReportedPrefixes{
    "CUDA_",       "NCCL_",      "GLOO_",  "TORCH",       "PYTORCH_",
    "OMP_",        "MKL_",       "KMP_",   "PYTHON",      "PET_",
    "DRUN_",       "MASTER_",    "SLURM_", "OMPI_",       "PMI_",
    "PMIX_",       "UCX_",       "FI_",    "HIP_",        "ROCR_",
    "HSA_",        "NVIDIA_",    "XLA_",   "JAX_",        "TF_",
    "ZE_",         "CCL_",       "LD_",    "MALLOC_",     "RANK",
    "WORLD_SIZE",  "LOCAL_RANK", "GROUP_", "ROLE_",       "CONDA_",
    "VIRTUAL_ENV", "LANG",       "LC_",    "KUBERNETES_", "JOB_COMPLETION_",
    "PBS_",        "LSB_"};
constexpr std::array kReportedNames{"PATH", "HOME", "SHELL", "TMPDIR", "HOSTNAME", "PWD", "TERM"};
constexpr std::array kKeyBeginnings{"hf_",         "sk-",    "ghp_",       "gho_",  "ghs_",
                                    "github_pat_", "glpat-", "xoxb-",      "xoxp-", "AKIA",
                                    "ASIA",        "AIza",   "-----BEGIN", "eyJ"};

std::string upper(std::string_view text) {
  std::string made(text);
  std::transform(made.begin(), made.end(), made.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return made;
}

bool is_reported(const std::string& name) {
  return std::find(kReportedNames.begin(), kReportedNames.end(), name) != kReportedNames.end() ||
         std::any_of(kReportedPrefixes.begin(), kReportedPrefixes.end(),
                     [&name](const char* prefix) { return name.starts_with(prefix); });
}

}  // namespace

bool is_secret_name(std::string_view name) {
  const std::string text = upper(name);
  if (text == "PWD" || text == "OLDPWD") return false;  // directories
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find_first_of("_-.", begin), text.size());
    const std::string_view part = std::string_view(text).substr(begin, end - begin);
    if (std::find(kSecretParts.begin(), kSecretParts.end(), part) != kSecretParts.end())
      return true;
    begin = end + 1;
  }
  return false;
}

std::string without_secrets(std::string_view value) {
  const bool is_key = value.size() >= 16 &&
                      std::any_of(kKeyBeginnings.begin(), kKeyBeginnings.end(),
                                  [value](const char* key) { return value.starts_with(key); });
  if (is_key) return std::string(kRedacted);
  std::string text(value);
  std::size_t at = 0;
  while ((at = text.find("://", at)) != text.npos) {
    at += 3;
    const std::size_t end = std::min(text.find_first_of("/?# ", at), text.size());
    const std::size_t sign = text.rfind('@', end);
    if (sign == text.npos || sign < at || sign >= end) continue;
    text.replace(at, sign - at, kRedacted);
  }
  return text;
}

std::vector<std::string> redacted_command(const std::vector<std::string>& words) {
  std::vector<std::string> shown;
  bool is_value_secret = false;
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    const std::string_view name = std::string_view(word).substr(0, equals);
    const bool is_name_secret = is_secret_name(name);
    if (is_value_secret && !word.starts_with('-')) {
      shown.emplace_back(kRedacted);
    } else if (is_name_secret && equals != word.npos) {
      shown.push_back(std::string(name) + "=" + std::string(kRedacted));
    } else if (equals != word.npos) {
      shown.push_back(std::string(name) + "=" +
                      without_secrets(std::string_view(word).substr(equals + 1)));
    } else {
      shown.push_back(without_secrets(word));
    }
    // A file is no secret.
    const bool is_file = upper(name).ends_with("FILE") || upper(name).ends_with("PATH");
    is_value_secret = is_name_secret && !is_file && word.starts_with('-') && equals == word.npos;
  }
  return shown;
}

std::vector<EnvironmentEntry> reported_environment(const std::vector<EnvironmentEntry>& entries) {
  std::vector<EnvironmentEntry> shown;
  for (const EnvironmentEntry& entry : entries) {
    if (!is_reported(entry.first)) continue;
    std::string value =
        is_secret_name(entry.first) ? std::string(kRedacted) : without_secrets(entry.second);
    if (value.size() > kMostValueBytes) value.replace(kMostValueBytes, value.npos, "...");
    shown.push_back({entry.first, std::move(value)});
  }
  std::sort(shown.begin(), shown.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  if (shown.size() > kMostVariables) shown.resize(kMostVariables);
  return shown;
}

}  // namespace drun::agent
