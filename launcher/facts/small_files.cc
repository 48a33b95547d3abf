#include "launcher/facts/small_files.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace drun {

std::string text_of_file(const std::string& path) {
  constexpr std::size_t kMostBytes = 64 * 1024;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 4096>
      piece;  // most files have one line; zeroing a 64 KiB buffer would be wasteful
  while (text.size() < kMostBytes && (file.read(piece.data(), piece.size()), file.gcount() > 0))
    text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
  return text;
}

std::optional<std::string> whole_text_of(const std::string& path) {
  constexpr std::size_t kMostBytes = std::size_t{4} << 20;
  std::error_code ec;
  if (!std::filesystem::is_regular_file(path, ec)) return std::nullopt;
  return all_text_of(path, kMostBytes);
}

std::optional<std::string> all_text_of(const std::string& path, std::size_t most_bytes) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 64 * 1024> part{};
  while (file && text.size() <= most_bytes) {
    file.read(part.data(), part.size());
    text.append(part.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (!file.eof() || text.size() > most_bytes) return std::nullopt;
  return text;
}

std::vector<std::string> names_in(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  std::error_code ec;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec))
    names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace drun
