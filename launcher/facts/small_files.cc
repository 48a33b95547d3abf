#include "launcher/facts/small_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

#include "rendezvous/base/unique_fd.h"

// Streams and std::filesystem would take several times as long, and drun reads about ten files and
// folders on each start.
namespace drun {
namespace {

// Returns whether the end of the file was reached. Then, or at `most_bytes`, stops.
bool read_file(const std::string& path, std::size_t most_bytes, std::string& text) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> part;  // most files have one line
  while (text.size() < most_bytes) {
    const std::size_t most = std::min(part.size(), most_bytes - text.size());
    const ssize_t count = read(fd.get(), part.data(), most);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count == 0;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
  return false;
}

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

}  // namespace

std::string text_of_file(const std::string& path) {
  constexpr std::size_t kMostBytes = 64 * 1024;
  std::string text;
  read_file(path, kMostBytes, text);
  return text;
}

std::optional<std::string> whole_text_of(const std::string& path) {
  constexpr std::size_t kMostBytes = std::size_t{4} << 20;
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) return std::nullopt;
  return all_text_of(path, kMostBytes);
}

std::optional<std::string> all_text_of(const std::string& path, std::size_t most_bytes) {
  std::string text;
  if (!read_file(path, most_bytes + 1, text)) return std::nullopt;
  return text;
}

std::vector<std::string> names_in(const std::string& folder, std::string_view prefix) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, CloseFolder> opened(opendir(folder.c_str()));
  while (const dirent* const entry = opened ? readdir(opened.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    if (name.starts_with(prefix) && name != "." && name != "..") names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace drun
