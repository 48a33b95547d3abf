#include "launcher/remote/copy_words.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace drun::hosts {
namespace {

constexpr std::string_view kMark = "@drun ";
constexpr std::size_t kMostWordBytes = 512;

std::optional<CopyWord> parse_word(std::string_view line) {
  if (line == "send") return CopyRequested{};
  if (line == "start") return CopyStarts{};
  constexpr std::string_view kWant = "want ";
  if (!line.starts_with(kWant)) return std::nullopt;
  line.remove_prefix(kWant.size());
  const std::size_t end = std::min(line.find(' '), line.size());
  CopyWanted wanted{.machine = std::string(line.substr(0, end))};
  if (end < line.size()) wanted.installed = line.substr(end + 1);
  return wanted;
}

// Position of the mark, complete or cut off at the end of `text`.
std::size_t mark_in(std::string_view text) {
  for (std::size_t at = text.find(kMark.front()); at != text.npos;
       at = text.find(kMark.front(), at + 1)) {
    const std::string_view found = text.substr(at, kMark.size());
    if (kMark.starts_with(found)) return at;
  }
  return text.size();
}

}  // namespace

std::string copy_line(std::size_t bytes, std::string_view hash) {
  return "\n@drun copy " + std::to_string(bytes) + " " + std::string(hash) + "\n";
}

std::string refuse_line(std::string_view reason) {
  return "\n@drun refuse " + std::string(reason) + "\n";
}

void CopyWords::take(std::string_view bytes, const Listener& listener) {
  held_ += bytes;
  const std::string text = std::exchange(held_, {});
  std::string_view left = text;
  while (!left.empty()) {
    const std::size_t mark = mark_in(left);
    if (mark > 0) listener.on_text(left.substr(0, mark));
    left.remove_prefix(mark);
    if (left.empty()) return;
    const std::size_t end = left.find('\n');
    if (end == left.npos && left.size() < kMostWordBytes) {
      held_ = left;
      return;
    }
    const std::optional<CopyWord> word =
        end == left.npos || left.size() <= kMark.size()
            ? std::nullopt
            : parse_word(left.substr(kMark.size(), end - kMark.size()));
    const std::size_t taken = word ? end + 1 : 1;
    if (word)
      listener.on_word(*word);
    else
      listener.on_text(left.substr(0, taken));
    left.remove_prefix(taken);
  }
}

void CopyWords::end_of_stream(const Listener& listener) {
  const std::string text = std::exchange(held_, {});
  if (!text.empty()) listener.on_text(text);
}

}  // namespace drun::hosts
