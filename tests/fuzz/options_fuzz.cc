// Any command line, variables and configuration file give either a command or a usage error with a
// reason.
//
// Input: words that end in zero bytes. After an empty word NAME=VALUE variables follow, and after
// another empty word the text of the file that --config names.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/options.h"

namespace {

constexpr std::size_t kMostBytes = 4096;

// Returns the text up to the next zero byte.
std::string next_word(std::string_view& rest) {
  const std::size_t end = std::min(rest.find('\0'), rest.size());
  std::string word(rest.substr(0, end));
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return word;
}

// Options that open files by name. Skipped, because the names are this machine's files.
bool opens_files(const std::string& word) {
  return word.starts_with("--co") || word.starts_with("--ap") || word.starts_with("-ap");
}

const std::string& config_file() {
  static const int file = ::memfd_create("config", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  return path;
}

void write_config(std::string_view text) {
  static const int file = std::atoi(config_file().c_str() + sizeof "/proc/self/fd/" - 1);
  if (::ftruncate(file, 0) != 0) std::abort();
  if (::pwrite(file, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size > kMostBytes) return 0;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> words{"drun"};
  for (std::string word = next_word(rest); !word.empty(); word = next_word(rest)) {
    if (opens_files(word)) return 0;
    words.push_back(std::move(word));
  }
  std::map<std::string, std::string, std::less<>> variables;
  for (std::string word = next_word(rest); !word.empty(); word = next_word(rest)) {
    const std::size_t equals = std::min(word.find('='), word.size());
    if (opens_files("--" + word) || word.starts_with("PET_CO") || word.starts_with("PET_AP"))
      return 0;
    variables[word.substr(0, equals)] = word.substr(std::min(equals + 1, word.size()));
  }
  if (!rest.empty()) {
    write_config(rest);
    words.insert(words.begin() + 1, "--config=" + config_file());
  }
  const drun::Lookup lookup = [&variables](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  const auto command = drun::parse_command_line(words, lookup);
  if (!command &&
      (command.error().message.empty() || command.error().code != drun::ErrorCode::Usage))
    std::abort();
  return 0;
}
