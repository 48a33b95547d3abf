#include "rendezvous/job/stderr_lines.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "rendezvous/base/text.h"

namespace drun {
namespace {

constexpr std::array kNotes{
    std::string_view("CUDA kernel errors might be "),
    std::string_view("HIP kernel errors might be "),
    std::string_view("For debugging consider passing "),
    std::string_view("Compile with `TORCH_USE_"),
    std::string_view("Search for `cuda"),
    std::string_view("Search for `hip"),
    std::string_view("GPU device may be out of range"),
    std::string_view("Exception raised from "),
};

bool is_in(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

}  // namespace

std::string_view without_rank_mark(std::string_view line) {
  line = trimmed(line);
  constexpr std::string_view kMark = "[rank";
  if (!line.starts_with(kMark)) return line;
  const std::size_t end = line.find_first_not_of("0123456789", kMark.size());
  if (end == line.npos || end == kMark.size() || !line.substr(end).starts_with("]:")) return line;
  return trimmed(line.substr(end + 2));
}

bool is_python_warning(std::string_view line) {
  const std::size_t word = line.find("Warning: ");
  if (word == line.npos) return false;
  const std::size_t before = line.substr(0, word).find_last_of(": ");
  return before != line.npos && before >= 2 && line.substr(before - 1, 2) == ": " &&
         is_digit(line[before - 2]);
}

bool is_warning(std::string_view line) {
  if (is_python_warning(line) || is_in(line, " NCCL INFO ")) return true;
  for (const std::string_view level : {"WARNING:", "WARNING ", "Warning: ", "INFO:", "DEBUG:"})
    if (line.starts_with(level)) return true;
  const bool has_bracket = line.starts_with('[');
  const bool has_date = line.size() > 1 && is_digit(line[has_bracket ? 1 : 0]);
  if (has_date)
    for (const std::string_view level : {" WARNING ", "[WARNING]", " INFO ", "[INFO]"})
      if (is_in(line.substr(0, 80), level)) return true;
  const std::size_t end = line.find(']');
  if (end == line.npos) return false;
  std::string_view head = line.substr(has_bracket ? 1 : 0, end - (has_bracket ? 1 : 0));
  if (const std::size_t date = head.find(": "); has_date && date != head.npos)
    head.remove_prefix(date + 2);
  const std::size_t number = head.find_last_not_of("0123456789");
  if (number == head.npos || head[number] != ':' || number + 1 == head.size()) return false;
  const std::size_t day = head.find_first_not_of("0123456789", 1);
  const bool is_level = head[0] == 'W' || head[0] == 'I' || head[0] == 'V';
  return is_level && day != head.npos && head[day] == ' ' && (has_bracket || has_date || day == 5);
}

bool is_note(std::string_view line) {
  return std::any_of(kNotes.begin(), kNotes.end(),
                     [line](std::string_view note) { return line.starts_with(note); });
}

}  // namespace drun
